"""Removes nodes whose output is their input: identities, and reshapes, casts, slices, ... that change nothing.

So do a product with the number one and a sum with zero: exporters write out factors that a model leaves at that. And a
choice whose condition is known and the same everywhere, as where a model counts what a mask hides and there is no mask.
"""

from __future__ import annotations

from math import inf

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0, "pow": 1.0}
"""The number on the right that changes nothing; of sums and products on the left, too."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(REMOVE_COPIES.name)
    for node in editor.nodes():
        why = _copies(editor, node)
        if why is None:
            continue
        current = editor.node(node.name)
        assert current is not None
        obstacle = editor.stand_in(current.outputs[0], _kept(editor, current))
        if obstacle is None:
            journal.did(node.name, "removed", why)
        else:
            journal.declined(node.name, f"{why}, but {obstacle}")
    return journal.result(editor.finish())


def _kept(editor: GraphEditor, node: Node) -> str:
    """The value that the node's output is."""
    branch = _branch(editor, node) if isinstance(node.op, Where) else None
    if branch is not None:
        return branch
    # Of a number and a tensor the tensor is what is left.
    return node.inputs[int(editor.is_constant(node.inputs[0]) and isinstance(node.op, Binary))]


def _branch(editor: GraphEditor, node: Node) -> str | None:
    """What a choice takes everywhere: both branches are one, or its condition is known. None where it may take both."""
    condition, yes, no = node.inputs
    if yes == no:
        return yes
    known = editor.constant(condition)
    if known is None or not known.size or known.any() != known.all():
        return None
    return yes if known.all() else no


def _copies(editor: GraphEditor, node: Node) -> str | None:
    """Why the node's output is its input; None where it may differ."""
    if node.epilogue or not node.inputs:
        return None
    if isinstance(node.op, Binary):
        return _neutral(editor, node, node.op.function)
    if isinstance(node.op, Where):
        branch = _branch(editor, node)
        same = branch is not None and editor.type(branch) == editor.type(node.outputs[0])
        return "a choice whose condition is the same everywhere" if same else None
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
        case Pool(_, kernel, strides) if set(kernel) == set(strides) == {1}:
            return "a pooling of single pixels"
        case Activation("clip", low, high) if low == -inf and high == inf:
            return "a clip without bounds"
    return None


def _neutral(editor: GraphEditor, node: Node, function: str) -> str | None:
    """Why arithmetic with one number changes nothing. Vectors are weights, whose numbers no pass reads."""
    left, right = node.inputs
    if function in ("add", "mul") and editor.is_constant(left):
        left, right = right, left
    number = editor.constant(right)
    if function not in _NEUTRAL or number is None or editor.is_constant(left):
        return None
    if number.size != 1 or float(number.reshape(-1)[0]) != _NEUTRAL[function]:
        return None
    return f"{function} with {_NEUTRAL[function]:g}" if editor.type(left) == editor.type(node.outputs[0]) else None


REMOVE_COPIES = Pass("remove-copies", _run)
