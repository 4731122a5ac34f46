"""Merges reshapes of reshapes and transposes of transposes; a transpose that moves only extents of 1 is a reshape."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.shape import Reshape, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_MOVES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or not isinstance(node.op, Reshape | Transpose):
            continue
        node = _without_unit_moves(editor, journal, node)
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


MERGE_MOVES = Pass("merge-moves", _run)
