"""Orders the channels of a product whose result is cut in parts, so that parts of whole loads begin at whole loads: the
others stand behind them, and zeros make the rest a whole one.

For example a query of one channel beside keys and values of 96 each, as in MobileViT V2: keys and values are read where
they lie then, where all three were copied. What `pad-slices` pads part by part is cut in whole loads already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.padding import padding_wishes
from bolt_build.planner.passes.align.pad_channels import PAD_CHANNELS, WHOLE
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import channel_axis
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import PaddingPolicy


def _run(graph: Graph, padding: PaddingPolicy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ORDER_SLICES.name)
    wishes = padding_wishes(graph.nodes, padding)
    for node in editor.nodes():
        if not _makes_channels(editor, node):
            continue
        parts = _parts(editor, node)
        if not parts or not _begin_within_loads(editor, node, parts):
            continue
        wish, key = wishes.of((node.name,))
        if wish == "never":
            journal.declined(node.name, f"{key} is never")
            continue
        _order(editor, node, parts)
        sizes = "+".join(str(_size(node, part)) for part in parts)
        journal.did(node.name, f"ordered parts of {sizes} channels", f"whole loads of {WHOLE} first")
    return journal.result(editor.finish())


def _makes_channels(editor: GraphEditor, node: Node) -> bool:
    """Whether a node is a product with weights that may stand in another order."""
    if not isinstance(node.op, Conv | MatMul) or not all(isinstance(stage.op, Activation) for stage in node.epilogue):
        return False
    if isinstance(node.op, Conv) and node.op.groups != 1:
        return False
    weights = node.op_inputs[1:]
    flat = isinstance(node.op, Conv) or editor.type(weights[0]).rank == 2
    return flat and all(map(editor.is_constant, weights)) and not editor.is_output(node.outputs[0])


def _parts(editor: GraphEditor, product: Node) -> list[Node]:
    """The slices that read the product in the order of their channels, where nothing else does and they share none;
    otherwise nothing."""
    out = editor.type(product.outputs[0])
    axis = channel_axis(product, out)
    readers = list(editor.readers(product.outputs[0]))
    for node in readers:
        if not isinstance(node.op, Slice) or node.epilogue or set(node.op.step) != {1}:
            return []
        if any(
            count != size for at, (count, size) in enumerate(zip(node.op.count, out.shape, strict=True)) if at != axis
        ):
            return []
    ordered = sorted(readers, key=lambda node: _begin(node, axis))
    ends = [_begin(node, axis) + _count(node, axis) for node in ordered]
    apart = all(end <= _begin(node, axis) for end, node in zip(ends, ordered[1:], strict=False))
    return ordered if apart else []


def _begin(part: Node, axis: int) -> int:
    assert isinstance(part.op, Slice)
    return part.op.begin[axis]


def _count(part: Node, axis: int) -> int:
    assert isinstance(part.op, Slice)
    return part.op.count[axis]


def _size(product: Node, part: Node) -> int:
    assert isinstance(part.op, Slice)
    return _count(part, 1 if isinstance(product.op, Conv) else len(part.op.count) - 1)


def _begin_within_loads(editor: GraphEditor, product: Node, parts: list[Node]) -> bool:
    """Whether a part of whole loads begins within one, or rows of the product end within one."""
    out = editor.type(product.outputs[0])
    axis = channel_axis(product, out)
    whole = [part for part in parts if _count(part, axis) % WHOLE == 0]
    within = out.shape[axis] % WHOLE != 0 or any(_begin(part, axis) % WHOLE for part in whole)
    return bool(whole) and within


def _order(editor: GraphEditor, product: Node, parts: list[Node]) -> None:
    out = editor.type(product.outputs[0])
    axis = channel_axis(product, out)
    ordered = sorted(parts, key=lambda part: _count(part, axis) % WHOLE != 0)
    places: list[int] = []
    for part in ordered:
        assert isinstance(part.op, Slice)
        begin, count = _begin(part, axis), _count(part, axis)
        moved = tuple(len(places) if at == axis else each for at, each in enumerate(part.op.begin))
        places += range(begin, begin + count)
        editor.replace(part, replace(part, op=replace(part.op, begin=moved)))
    places += [-1] * (-len(places) % WHOLE)
    inputs = [*product.inputs]
    rows_first = isinstance(product.op, Conv) or (isinstance(product.op, MatMul) and product.op.transpose_b)
    own = len(product.op_inputs)
    for index in range(1, own):
        inputs[index] = _taken(editor, inputs[index], places, 0 if rows_first or index > 1 else 1)
    shape = tuple(len(places) if at == axis else size for at, size in enumerate(out.shape))
    value = editor.new_value(f"{product.outputs[0]}.ordered", replace(out, shape=shape))
    editor.redirect(product.outputs[0], value)
    editor.replace(product, replace(product, inputs=tuple(inputs), outputs=(value,)))


def _taken(editor: GraphEditor, name: str, places: list[int], axis: int) -> str:
    """The constant with these of its rows, or columns, and zeros for those of -1."""
    array = editor.constant(name)
    assert array is not None
    found: Array = array.take(np.maximum(places, 0), axis)
    there = np.asarray(places) >= 0
    found = found * there.reshape([-1 if at == axis else 1 for at in range(array.ndim)]).astype(found.dtype)
    return editor.new_constant(f"{name}.ordered", np.ascontiguousarray(found), editor.type(name).dtype)


ORDER_SLICES = Pass("order-slices", by_padding=_run, pays_on=PAD_CHANNELS.pays_on)
