"""Removes nodes whose output is their input: identities, and reshapes, casts, slices, ... that change nothing."""

from __future__ import annotations

from math import inf

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(REMOVE_COPIES.name)
    for node in editor.nodes():
        why = _copies(editor, node)
        if why is None:
            continue
        current = editor.node(node.name)
        assert current is not None
        obstacle = editor.stand_in(current.outputs[0], current.inputs[0])
        if obstacle is None:
            journal.did(node.name, "removed", why)
        else:
            journal.declined(node.name, f"{why}, but {obstacle}")
    return journal.result(editor.finish())


def _copies(editor: GraphEditor, node: Node) -> str | None:
    """Why the node's output is its input; None where it may differ."""
    if node.epilogue or not node.inputs:
        return None
    before, after = editor.type(node.inputs[0]), editor.type(node.outputs[0])
    if before != after:
        return None
    match node.op:
        case Identity():
            return "an identity"
        case Reshape():
            return "a reshape to the same shape"
        case Cast():
            return "a cast to the same type"
        case Transpose(perm) if perm == tuple(range(before.rank)):
            return "a transpose that keeps the order"
        case Slice(begin, _, step) if not any(begin) and all(s == 1 for s in step):
            return "a slice of everything"
        case Pad(begin, end) if not any(begin) and not any(end):
            return "a pad by nothing"
        case Concat() if len(node.inputs) == 1:
            return "a concatenation of one tensor"
        case Activation("clip", low, high) if low == -inf and high == inf:
            return "a clip without bounds"
    return None


REMOVE_COPIES = Pass("remove-copies", _run)
