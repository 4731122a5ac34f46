"""Recognises the logarithm of a sum of exponentials that a model spells out, and what is less by it: a logarithm of a
softmax.

    m = max(x); y = log(sum(exp(x - m))) + m        # torch's decomposition, TensorFlow's reduce_logsumexp
    y = x - logsumexp(x)                            # JAX's log_softmax, Sinkhorn's iterations in logarithms

What is taken off in front need not be the greatest element: whatever it is, it comes back behind the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.norm_parts import plain
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Sum:
    """The logarithm of the sum over `axes` of the exponentials of `value`; `inside` are the values between."""

    value: str
    axes: tuple[int, ...]
    keepdims: bool
    inside: tuple[str, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_LOG_SUMS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        if node.op == Binary("add"):
            _shifted(editor, journal, node)
        elif node.op == Binary("sub"):
            _share(editor, journal, node)
        elif (total := _log_of(editor, node)) is not None and not _is_shifted(editor, node.outputs[0], total):
            _become(editor, journal, node, total, total.value, "log(sum(exp(x)))")
    return journal.result(editor.finish())


def _log_of(editor: GraphEditor, node: Node) -> _Sum | None:
    """The sum of exponentials that the node, which may be a reduction, is the logarithm of."""
    of_sum = node.op == Activation("log")
    total, mode = (plain(editor, node.inputs[0]), "sum") if of_sum else (node, "log_sum")
    if total is None or not isinstance(total.op, Reduce) or total.op.mode != mode or not total.op.axes:
        return None
    powers = plain(editor, total.inputs[0])
    if powers is None or powers.op != Activation("exp"):
        return None
    inside = (*node.inputs, *total.inputs) if of_sum else total.inputs
    return _Sum(powers.inputs[0], total.op.axes, total.op.keepdims, inside)


def _offset(editor: GraphEditor, total: _Sum) -> tuple[str, str] | None:
    """x and m, where what has exponentials is x - m, and m is one number along the axes."""
    less = plain(editor, total.value)
    if less is None or less.op != Binary("sub"):
        return None
    source, offset = less.inputs
    shape, own = editor.type(total.value).shape, editor.type(offset).shape
    if editor.type(source).shape != shape or len(own) != len(shape):
        return None
    kept = all(extent == (1 if axis in total.axes else shape[axis]) for axis, extent in enumerate(own))
    return (source, offset) if kept else None


def _is_shifted(editor: GraphEditor, value: str, total: _Sum) -> bool:
    """Whether a later node adds what was taken off: it is looked at then."""
    return _offset(editor, total) is not None and any(node.op == Binary("add") for node in editor.readers(value))


def _shifted(editor: GraphEditor, journal: Journal, node: Node) -> None:
    for value, other in (node.inputs, node.inputs[::-1]):
        log = plain(editor, value)
        total = None if log is None else _log_of(editor, log)
        found = None if total is None else _offset(editor, total)
        if total is None or found is None or editor.type(value) != editor.type(node.outputs[0]):
            continue
        source, offset = found
        if _same_elements(editor, other, offset) and editor.type(other) == editor.type(value):
            inside = (value, *total.inside, total.value)
            _become(editor, journal, node, replace(total, inside=inside), source, "log(sum(exp(x - m))) + m")
            return


def _same_elements(editor: GraphEditor, value: str, offset: str) -> bool:
    """Whether the value is the offset, or has its elements in another shape: axes of one element came or went."""
    if value == offset:
        return True
    for one, other in ((value, offset), (offset, value)):
        node = plain(editor, one)
        if node is not None and isinstance(node.op, Reshape) and node.inputs[0] == other:
            return True
    first, second = plain(editor, value), plain(editor, offset)
    if first is None or second is None or first.inputs != second.inputs:
        return False
    # The greatest elements twice, with their axes and without.
    if not (isinstance(first.op, Reduce) and isinstance(second.op, Reduce)):
        return False
    return replace(first.op, keepdims=True) == replace(second.op, keepdims=True)


def _become(editor: GraphEditor, journal: Journal, node: Node, total: _Sum, source: str, words: str) -> None:
    if (why := editor.not_private(*total.inside)) is not None:
        journal.declined(node.name, f"logarithm of a sum of exponentials: {why}")
        return
    made = replace(node, op=Reduce("log_sum_exp", total.axes, total.keepdims), inputs=(source,))
    _replaced(editor, node, made)
    journal.did(node.name, "recognised logarithm of a sum of exponentials", words)


def _share(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """x - logsumexp(x) along one axis, which is the logarithm of a softmax."""
    source, below = node.inputs
    total = plain(editor, below)
    if total is not None and isinstance(total.op, Reshape):
        total = plain(editor, total.inputs[0])
    if total is None or not isinstance(total.op, Reduce) or total.op.mode != "log_sum_exp":
        return
    shape = editor.type(source).shape
    if total.inputs != (source,) or len(total.op.axes) != 1 or editor.type(node.outputs[0]).shape != shape:
        return
    (axis,) = total.op.axes
    if editor.type(below).shape != tuple(1 if at == axis else extent for at, extent in enumerate(shape)):
        return
    if (why := editor.not_private(below, total.outputs[0])) is not None:
        journal.declined(node.name, f"logarithm of a softmax: {why}")
        return
    _replaced(editor, node, replace(node, op=Line("log_softmax", axis), inputs=(source,)))
    journal.did(node.name, "recognised logarithm of a softmax", "x - logsumexp(x)")


def _replaced(editor: GraphEditor, node: Node, made: Node) -> None:
    editor.replace(node, made)
    removed = editor.prune(node.inputs)
    editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))


RECOGNISE_LOG_SUMS = Pass("recognise-log-sums", _run)
