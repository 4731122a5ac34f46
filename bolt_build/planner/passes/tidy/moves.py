"""Merges reshapes of reshapes and transposes of transposes; a transpose that moves only extents of 1 is a reshape.

A transpose of a reshape that only joins axes of a convolution's result becomes a reshape of a transpose: where the
convolution stores channels last, that transpose moves nothing.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


def merge_moves(graph: Graph) -> PassResult:
    """What `MERGE_MOVES` does."""
    editor, journal = GraphEditor(graph), Journal(MERGE_MOVES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or not isinstance(node.op, Reshape | Transpose):
            continue
        node = _transposed_first(editor, journal, _without_unit_moves(editor, journal, node))
        before = editor.producer(node.inputs[0])
        if before is None or before.epilogue:
            continue
        op = _merged(before.op, node.op)
        if op is None:
            continue
        covers = node.covers if editor.not_private(node.inputs[0]) else joined(before.covers, node.covers)
        merged = replace(node, op=op, inputs=before.inputs, covers=covers)
        editor.replace(node, merged)
        editor.prune(node.inputs)
        journal.did(node.name, "merged", f"a {node.op.kind} of the {before.op.kind} '{before.name}'")
    return journal.result(editor.finish())


def _merged(first: Op, second: Op) -> Op | None:
    """One op that does what `first` and then `second` do."""
    match first, second:
        case Reshape(), Reshape(shape):
            return Reshape(shape)
        case Transpose(one), Transpose(two):
            return Transpose(tuple(one[axis] for axis in two))
    return None


def _without_unit_moves(editor: GraphEditor, journal: Journal, node: Node) -> Node:
    """The node as a reshape where it is a transpose that keeps the order of all extents other than 1."""
    if not isinstance(node.op, Transpose):
        return node
    shape = editor.type(node.inputs[0]).shape
    moved = [axis for axis in node.op.perm if shape[axis] != 1]
    if moved != sorted(moved) or node.op.perm == tuple(range(len(shape))):
        return node
    plain = replace(node, op=Reshape(editor.type(node.outputs[0]).shape))
    editor.replace(node, plain)
    journal.did(node.name, "made a reshape", "the transpose moves only extents of 1")
    return plain


def _transposed_first(editor: GraphEditor, journal: Journal, node: Node) -> Node:
    """The node as a reshape of a transpose where it is a transpose of a reshape of a convolution."""
    before = editor.producer(node.inputs[0])
    if not isinstance(node.op, Transpose) or before is None or not isinstance(before.op, Reshape) or before.epilogue:
        return node
    conv = editor.producer(before.inputs[0])
    if conv is None or not isinstance(conv.op, Conv) or editor.not_private(node.inputs[0]) is not None:
        return node
    groups = _joined_axes(editor.type(before.inputs[0]).shape, editor.type(before.outputs[0]).shape)
    if groups is None:
        return node
    turned = Transpose(tuple(axis for group in node.op.perm for axis in groups[group]))
    (type_,) = turned.infer([editor.type(before.inputs[0])])
    between = editor.new_value(f"{node.name}.turned", type_)
    plain = replace(node, op=Reshape(editor.type(node.outputs[0]).shape), inputs=(between,))
    editor.remove(before)
    editor.replace(node, Node(before.name, turned, before.inputs, (between,), covers=before.covers), plain)
    journal.did(node.name, "moved", f"in front of the reshape '{before.name}', which joins axes")
    return plain


def _joined_axes(shape: tuple[int, ...], joined_to: tuple[int, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Of each axis of `joined_to`: the axes of `shape` that it is made of; None where one of those is cut."""
    groups, axis = [], 0
    for extent in joined_to:
        group, size = [axis] if axis < len(shape) else [], shape[axis] if axis < len(shape) else 1
        axis += 1
        while size < extent and axis < len(shape):
            group.append(axis)
            size *= shape[axis]
            axis += 1
        if size != extent or not group:
            return None
        groups.append(tuple(group))
    return tuple(groups) if axis == len(shape) else None


MERGE_MOVES = Pass("merge-moves", merge_moves)
