"""Computes a convolution over patches as a product: its windows neither overlap nor leave anything out.

Vision transformers begin so. A step moves pixels of each patch beside each other, and the product then reads whole
lines of memory. Kernels of convolutions would gather three channels at a time.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

LEAST_WINDOW, MOST_CHANNELS = 8, 4
"""Of smaller windows, or more channels, convolution kernels read lines that are long enough."""
SUFFIX = ".patches"
"""Behind the name of a weight whose rows are patches."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_PATCHES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or node.epilogue or not editor.is_constant(node.inputs[1]):
            continue
        window = editor.type(node.inputs[1]).shape[1:]
        if len(window) not in (3, 4) or window[0] > MOST_CHANNELS or min(window[-2:]) < LEAST_WINDOW:
            continue
        if node.op.strides != window[1:]:
            continue
        obstacle = _obstacle(editor, node, node.op)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        _multiply(editor, node)
        journal.did(node.name, "made a product", f"of patches of {'x'.join(map(str, window[1:]))}")
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, op: Conv) -> str | None:
    """Why a convolution whose windows do not overlap is no product of patches."""
    shape = editor.type(node.inputs[0]).shape
    if any(op.pads_begin) or any(op.pads_end):
        return "its windows leave the image"
    if op.groups != 1 or set(op.dilations) != {1}:
        return "the convolution is grouped or dilated"
    if any(extent % step for extent, step in zip(shape[2:], op.strides, strict=True)):
        whole, patch = ("x".join(map(str, extents)) for extents in (shape[2:], op.strides))
        return f"images of {whole} are no whole patches of {patch}"
    if len(node.inputs) > 2 and not editor.is_constant(node.inputs[2]):
        return f"the bias of '{node.name}' is not constant"
    return None


def _multiply(editor: GraphEditor, node: Node) -> None:
    """[N,C,H,W] becomes [N, patches, channels x rows x columns of one], that times the weight the convolution's result
    with channels last, and that the result. Volumes have depths in front of rows. Pixels move once, from where images
    of planes have them: to turn channels to the last place first would be a step of its own."""
    images, channels, *extents = editor.type(node.inputs[0]).shape
    filters, _, *window = editor.type(node.inputs[1]).shape
    rank = len(window)
    grid = tuple(extent // step for extent, step in zip(extents, window, strict=True))
    apart = [each for pair in zip(grid, window, strict=True) for each in pair]
    weight = _weight(editor, node)
    made: list[Node] = []

    def add(what: str, op: Transpose | Reshape | MatMul, inputs: tuple[str, ...], covers: tuple[str, ...] = ()) -> str:
        (type_,) = op.infer([editor.type(name) for name in inputs])
        value = editor.new_value(f"{node.name}.{what}", type_)
        made.append(Node(editor.free_node_name(f"{node.name}.{what}"), op, inputs, (value,), covers=covers))
        return value

    x = add("cut", Reshape((images, channels, *apart)), (node.inputs[0],))
    x = add("moved", Transpose((0, *range(2, 2 * rank + 1, 2), 1, *range(3, 2 * rank + 2, 2))), (x,))
    x = add("patches", Reshape((images, prod(grid), channels * prod(window))), (x,))
    x = add("product", MatMul(), (x, weight, *node.inputs[2:]), node.covers)
    x = add("grid", Reshape((images, *grid, filters)), (x,))
    back = Node(node.name, Transpose((0, rank + 1, *range(1, rank + 1))), (x,), node.outputs)
    editor.replace(node, *made, back)


def _weight(editor: GraphEditor, node: Node) -> str:
    """[K,C,p,q] as [C p q, K]; of volumes likewise."""
    name = node.inputs[1]
    array, dtype = editor.constant(name), editor.type(name).dtype
    assert array is not None
    rows = array.reshape(array.shape[0], -1).T
    return editor.new_constant(f"{name}{SUFFIX}", np.ascontiguousarray(rows.astype(held_dtype(dtype))), dtype)


def _multiplies_whole_lines(target: Target, precision: str) -> bool:
    """On GPUs whose products read tiles by TMA."""
    return target.gpu is not None and target.gpu.warpgroup_mma and target.gpu.instruction(precision) is not None


MULTIPLY_PATCHES = Pass("multiply-patches", _run, pays_on=_multiplies_whole_lines)
