"""Gives windows with an odd number of filters more of them, up to whole stores, and takes away their channels behind.

Super-resolution, segmentation, generators and vocoders end so: three filters of 64 channels, or one. Hopper's kernels
store 16 bytes at once or nothing, so without this such a layer is computed by kernels of one warp's instructions. What
is added are rows of zeros, which those kernels would multiply as well. Restoring networks add the image to such a
result of the model: a step behind does that for the few channels that are left.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import EpilogueOp, Graph, Node
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

_WHOLE = 8
"""Half-precision elements of a store of 16 bytes."""
_MOST = ((16, 0), (64, 256), (1 << 30, 576))
"""Filters of a window, and the depth of their product from which on what it gains is more than to move their results
once more."""
_LEAST = 16
"""The depth from which on tensor cores gain anything: a window over one channel, as ECA's gates have, is a few
multiply-adds of each result, which plain instructions compute while memory moves it."""
SUFFIX = ".whole"
"""Behind the names of weights with more filters."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(PAD_FILTERS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or node.op.groups > 1 or editor.type(node.inputs[0]).rank not in (3, 4):
            continue
        if not _pays(editor, node):
            continue
        filters = editor.type(node.op_inputs[1]).shape[0]
        obstacle = _obstacle(editor, node)
        if obstacle is not None:
            journal.declined(node.name, f"{filters} filters are no whole store, but {obstacle}")
            continue
        whole = -(-filters // _WHOLE) * _WHOLE
        _pad(editor, node, whole)
        journal.did(node.name, f"padded {filters} filters to {whole}", "kernels store 16 bytes at once")
    return journal.result(editor.finish())


def _pays(editor: GraphEditor, node: Node) -> bool:
    """Whether the product gains more than its results take that are moved once more. Those of the graph are moved
    anyway, into planes."""
    filters, channels, *kernel = editor.type(node.op_inputs[1]).shape
    if filters % _WHOLE == 0 or (prod(kernel) == 1 and filters < _WHOLE) or channels * prod(kernel) < _LEAST:
        return False
    if not editor.type(node.outputs[0]).elements:
        return False
    if editor.is_output(node.outputs[0]):
        return True
    return prod(kernel) > 1 and channels * prod(kernel) >= next(depth for most, depth in _MOST if filters <= most)


def _obstacle(editor: GraphEditor, node: Node) -> str | None:
    """Why the convolution keeps its filters."""
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return "its weights are computed"
    joins = [at for at, stage in enumerate(node.epilogue) if stage.operand is not None]
    if joins and not editor.is_output(node.outputs[0]):
        return "something is added to its results"
    return None


def _place(node: Node, stage: int) -> int:
    """Where a stage's operand stands in the node's inputs."""
    place = node.epilogue[stage].operand
    assert place is not None
    return place


def _pad(editor: GraphEditor, node: Node, whole: int) -> None:
    """A residual, which has the filters that there are, is added behind, with all stages that follow it."""
    (output,) = node.outputs
    type_ = editor.type(output)
    first = next((at for at, stage in enumerate(node.epilogue) if stage.operand is not None), len(node.epilogue))
    inputs = [node.inputs[0]]
    for name in node.op_inputs[1:]:
        array, dtype = editor.constant(name), editor.type(name).dtype
        assert array is not None
        widths = ((0, whole - array.shape[0]), *((0, 0),) * (array.ndim - 1))
        inputs.append(editor.new_constant(f"{name}{SUFFIX}", np.pad(array, widths).astype(held_dtype(dtype)), dtype))
    shape = (type_.shape[0], whole, *type_.shape[2:])
    wide = editor.new_value(f"{output}{SUFFIX}", replace(type_, shape=shape))
    conv = replace(
        node, name=editor.free_node_name(f"{node.name}{SUFFIX}"), inputs=tuple(inputs), outputs=(wide,),
        epilogue=node.epilogue[:first],
    )  # fmt: skip
    op = Rearrange(shape, tuple(range(len(shape))), shape, 0, type_.shape)
    if first == len(node.epilogue):
        editor.replace(node, conv, Node(node.name, op, (wide,), node.outputs))
        return
    taken = editor.new_value(f"{output}.taken", type_)
    moved = Node(editor.free_node_name(f"{node.name}.taken"), op, (wide,), (taken,))
    editor.replace(node, conv, moved, _joined(node, first, taken))


def _joined(node: Node, first: int, value: str) -> Node:
    """The stages of a node from that numbered `first` on, which has an operand, as a node of their own on `value`."""
    stage, *behind = node.epilogue[first:]
    sides = [value, node.inputs[_place(node, first)]]
    inputs, later = sides[::-1] if stage.swapped else sides, list[EpilogueOp]()
    for at, each in enumerate(behind, first + 1):
        if each.operand is None:
            later.append(each)
            continue
        later.append(replace(each, operand=len(inputs)))
        inputs.append(node.inputs[_place(node, at)])
    return replace(node, op=stage.op, inputs=tuple(inputs), epilogue=tuple(later))


def _multiplies_whole_stores(target: Target, precision: str) -> bool:
    """On GPUs whose products write tiles by TMA."""
    return target.gpu is not None and target.gpu.warpgroup_mma and target.gpu.instruction(precision) is not None


PAD_FILTERS = Pass("pad-filters", _run, pays_on=_multiplies_whole_stores)
