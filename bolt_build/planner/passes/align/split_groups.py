"""Computes a convolution with few groups of many channels as one without for each: products side by side.

Before Hopper, kernels for groups multiply on the instructions of one warp and read their weights again for every tile.
Large groups are worth kernels of their own, which the family for products has: their parts are copied out of the input,
and their results lie beside each other where the next layer reads them. On Hopper one kernel of that family computes
all groups side by side, which is one launch and fills the GPU with the tiles of all.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

_WHOLE = 8
"""Half-precision elements of a load of 16 bytes, which a group must consist of."""
_LEAST_CHANNELS, _MOST_GROUPS = 48, 16
_MOST_TAPS = 32
"""Taps along an axis that kernels for products take: beyond them, each group would be computed by plain loops."""
_LEAST_WORK = 5e8
"""Operations of a group: below them launches take longer than products, by reckoning."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SPLIT_GROUPS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or node.op.groups < 2 or editor.type(node.inputs[0]).rank > 4:
            continue
        filters, channels, *kernel = editor.type(node.op_inputs[1]).shape
        groups, y = node.op.groups, editor.type(node.outputs[0]).shape
        if min(channels, filters // groups) < _LEAST_CHANNELS or groups > _MOST_GROUPS:
            continue
        if max(kernel) > _MOST_TAPS:
            journal.declined(node.name, f"products have at most {_MOST_TAPS} taps along an axis, not {max(kernel)}")
            continue
        if 2.0 * prod(y) / groups * channels * prod(kernel) < _LEAST_WORK:
            journal.declined(node.name, f"{groups} launches take longer than its groups do in one")
            continue
        obstacle = _obstacle(editor, node, channels, filters // groups)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        _split(editor, node, node.op, channels, filters // groups)
        journal.did(node.name, "split", f"its {groups} groups of {channels} channels are products of their own")
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, channels: int, filters: int) -> str | None:
    """Why large groups stay together."""
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return "its weights are computed"
    if channels % _WHOLE or filters % _WHOLE:
        return f"groups of {channels} channels and {filters} filters are no whole loads"
    if any(stage.operand is not None for stage in node.epilogue):
        return "something is added to its results"
    return None


def _split(editor: GraphEditor, node: Node, op: Conv, channels: int, filters: int) -> None:
    x, output = editor.type(node.inputs[0]), editor.type(node.outputs[0])
    made, results = list[Node](), list[str]()
    given, shape = (x.shape[0], channels, *x.shape[2:]), (output.shape[0], filters, *output.shape[2:])
    for group in range(op.groups):
        part = editor.new_value(f"{node.name}.given{group}", replace(x, shape=given))
        begin = (0, group * channels, *(0,) * (x.rank - 2))
        name = editor.free_node_name(f"{node.name}.given{group}")
        made.append(Node(name, Slice(begin, given, (1,) * x.rank), (node.inputs[0],), (part,)))
        inputs = [part]
        for weight in node.inputs[1:]:
            array, dtype = editor.constant(weight), editor.type(weight).dtype
            assert array is not None
            own = np.ascontiguousarray(array[group * filters : (group + 1) * filters].astype(held_dtype(dtype)))
            inputs.append(editor.new_constant(f"{weight}.group{group}", own, dtype))
        result = editor.new_value(f"{node.name}.group{group}", replace(output, shape=shape))
        name = editor.free_node_name(f"{node.name}.group{group}")
        conv = replace(node, name=name, op=replace(op, groups=1), inputs=tuple(inputs), outputs=(result,))
        made.append(conv)
        results.append(result)
    editor.replace(node, *made, Node(node.name, Concat(1), tuple(results), node.outputs))


def _multiplies_groups_apart(target: Target, precision: str) -> bool:
    """Whether products of groups are fast on tensor cores in kernels of their own alone."""
    gpu = target.gpu
    return gpu is not None and gpu.instruction(precision) is not None and not gpu.warpgroup_mma


SPLIT_GROUPS = Pass("split-groups", _run, pays_on=_multiplies_groups_apart)
