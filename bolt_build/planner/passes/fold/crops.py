"""Leaves out of a convolution what a slice behind it cuts off: those results are made with padding that need not be.

Causal networks over time are written so: a window pads both ends of a line alike, and what looked ahead is cut off
("chomp"). A window of an even extent is too, whose line would grow by one. Without the slice, activations and residuals
behind it are the convolution's own.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined

SUFFIX = ".cropped"
"""Behind the names of values between the convolution and its slice."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_CROPS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Slice) or node.epilogue or set(node.op.step) != {1}:
            continue
        found = _behind(editor, node)
        if not found:
            continue
        conv, *between = found
        assert isinstance(conv.op, Conv)
        obstacle, op = _obstacle(editor, node, found), None
        if obstacle is None:
            obstacle, op = _smaller(editor, conv, conv.op, node.op)
        if op is None:
            journal.declined(node.name, f"cannot be part of '{conv.name}': {obstacle}")
            continue
        _fold(editor, node, replace(conv, op=op), between)
        journal.did(node.name, "folded", f"'{conv.name}' computes none of what it cuts off")
    return journal.result(editor.finish())


def _behind(editor: GraphEditor, node: Node) -> list[Node]:
    """The convolution, and what computes each of its elements by itself between it and the slice; nothing where there
    is none."""
    found: list[Node] = []
    before = editor.producer(node.inputs[0])
    while before is not None and isinstance(before.op, Activation | BatchNorm) and not before.epilogue:
        found.insert(0, before)
        before = editor.producer(before.inputs[0])
    return [before, *found] if before is not None and isinstance(before.op, Conv) and not before.epilogue else []


def _obstacle(editor: GraphEditor, node: Node, found: list[Node]) -> str | None:
    """Why what is cut off is wanted, or is no border."""
    assert isinstance(node.op, Slice)
    if node.op.count[:2] != editor.type(node.inputs[0]).shape[:2]:
        return "it takes images or channels"
    return next((why for each in found if (why := editor.not_private(each.outputs[0])) is not None), None)


def _smaller(editor: GraphEditor, conv: Node, op: Conv, cut: Slice) -> tuple[str | None, Conv | None]:
    """The convolution with that much less padding, or why there is none."""
    image, kernel = editor.type(conv.inputs[0]).shape[2:], editor.type(conv.inputs[1]).shape[2:]
    begins, ends = [], []
    for axis, reach in enumerate(op.windows(kernel).reach):
        stride, extent, count = op.strides[axis], image[axis], cut.count[axis + 2]
        begin = op.pads_begin[axis] - cut.begin[axis + 2] * stride
        end = (count - 1) * stride + reach - extent - begin
        # Windows of a stride may leave up to as much of the image itself unread.
        if begin < 0 or end <= -stride or count < 1:
            return "it cuts off more than padding adds", None
        begins.append(begin)
        ends.append(max(end, 0))
    return None, replace(op, pads_begin=tuple(begins), pads_end=tuple(ends))


def _fold(editor: GraphEditor, node: Node, conv: Node, between: list[Node]) -> None:
    assert isinstance(node.op, Slice)
    (made,) = node.outputs
    type_, chain = editor.type(made), [conv, *between]
    chain[-1] = replace(chain[-1], covers=joined(chain[-1].covers, node.covers))
    values = [editor.new_value(f"{each.outputs[0]}{SUFFIX}", type_) for each in chain[:-1]] + [made]
    editor.remove(node)
    for index, (each, value) in enumerate(zip(chain, values, strict=True)):
        given = each.inputs if index == 0 else (values[index - 1], *each.inputs[1:])
        old = editor.node(each.name)
        assert old is not None
        editor.replace(old, replace(each, inputs=given, outputs=(value,)))


FOLD_CROPS = Pass("fold-crops", _run)
