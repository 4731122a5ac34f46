"""Recognises a softmax that a model spells out: powers over their sum, with the largest score taken off or without.

What is one number for all scores that are added up changes no softmax. So a largest score that a model takes off itself
goes, also in front of a softmax. Where a product of the powers is divided by their sum, the powers are divided first:
attention reads its shares so. A further power that a model adds to the sum is that of a sink (`sinks.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.norm_parts import number_of, plain, reciprocal_of
from bolt_build.planner.passes.recognise.sinks import is_read_by_product, sink_beside, with_column
from bolt_build.planner.rewrite import GraphEditor, joined

_FORMULA = "exp(x - max(x)) / sum(exp(x - max(x)))"
_SUNK = "exp(x) / (exp(sink) + sum(exp(x)))"
_LITTLE = 1e-7
"""What a model adds to a sum that is 1 at least, so that it is never 0: fp32 has no digit for it."""


@dataclass(frozen=True)
class _Sum:
    """The sum of `powers` along `axis`; `least` is what is added to it, infinity for what is no number: `power`."""

    powers: str
    axis: int
    least: float
    power: str | None = None


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_SOFTMAXES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue:
            continue
        if isinstance(node.op, Softmax):
            _without_largest(editor, journal, node, node.op)
        elif isinstance(node.op, Binary) and editor.type(node.outputs[0]).dtype in PRECISIONS.values():
            for above, below in _quotients(editor, node):
                total = _sum_of(editor, below)
                if total is not None and _recognised(editor, journal, node, above, total):
                    break
    return journal.result(editor.finish())


def _quotients(editor: GraphEditor, node: Node) -> list[tuple[str, str]]:
    """What the node may divide, and by what."""
    if node.op == Binary("div"):
        return [(node.inputs[0], node.inputs[1])]
    if node.op != Binary("mul"):
        return []
    below = [(above, reciprocal_of(editor, factor)) for above, factor in (node.inputs, node.inputs[::-1])]
    return [(above, value) for above, value in below if value is not None]


def _recognised(editor: GraphEditor, journal: Journal, node: Node, above: str, total: _Sum) -> bool:
    """Makes a softmax of the division of powers, or of a product with them, by their sum."""
    powers = plain(editor, total.powers)
    if powers is None or powers.op != Activation("exp"):
        return False
    scores, largest = powers.inputs[0], _largest(editor, powers.inputs[0], total.axis)
    if total.least > (_LITTLE if largest is not None else 0.0):
        return _with_sink(editor, journal, node, above, total)
    product = plain(editor, above)
    if above == total.powers:
        product = None
    elif not _is_product_of(editor, product, total) or editor.type(above) != editor.type(node.outputs[0]):
        return False
    if product is not None and (why := editor.not_private(above)) is not None:
        journal.declined(node.name, f"softmax: {why}")
        return True
    readers = editor.readers(total.powers)
    if editor.is_output(total.powers) or len(readers) != 2:
        journal.declined(node.name, f"softmax: '{total.powers}' is read by more than its sum and one node")
        return True
    source, op = largest or scores, Softmax(total.axis)
    words = _FORMULA if largest is not None else _FORMULA.replace(" - max(x)", "")
    if product is None:
        made = replace(node, op=op, inputs=(source,))
        editor.replace(node, made)
    else:
        shares = editor.new_value(f"{total.powers}.shares", editor.type(total.powers))
        first = Node(editor.free_node_name(f"{node.name}.softmax"), op, (source,), (shares,))
        made = replace(product, name=node.name, inputs=(shares, product.inputs[1]), outputs=node.outputs)
        editor.remove(product)
        editor.replace(node, first, made)
    removed = editor.prune((*node.inputs, total.powers))
    covers = joined(node.covers, *(each.covers for each in removed), () if product is None else product.covers)
    editor.replace(made, replace(made, covers=covers))
    journal.did(node.name, "recognised softmax", words + ("" if product is None else ", in front of a product"))
    return True


def _with_sink(editor: GraphEditor, journal: Journal, node: Node, above: str, total: _Sum) -> bool:
    """Makes a softmax with a further column of powers over a sum with one more power, where a product reads it."""
    powers = plain(editor, total.powers)
    if powers is None or total.power is None or total.axis != editor.type(total.powers).rank - 1:
        return False
    if editor.is_output(total.powers) or len(editor.readers(total.powers)) != 2:
        return False
    product = None if above == total.powers else plain(editor, above)
    if product is None and (above != total.powers or not is_read_by_product(editor, node.outputs[0])):
        return False
    if product is not None and not _is_product_of(editor, product, total):
        return False
    if product is not None and (editor.not_private(above) or editor.type(above) != editor.type(node.outputs[0])):
        return False
    found = sink_beside(editor, powers.inputs[0], total.power)
    if found is None:
        return False
    label = f"{node.name}.sink"
    shares = node.outputs[0] if product is None else editor.new_value(f"{label}.shares", editor.type(total.powers))
    made = with_column(editor, label, *found, shares)
    if made is None:
        return False
    last = made[-1]
    if product is not None:
        last = replace(product, name=node.name, inputs=(shares, product.inputs[1]), outputs=node.outputs)
        editor.remove(product)
        made = (*made, last)
    editor.replace(node, *made)
    removed = editor.prune((*node.inputs, total.powers))
    covers = joined(node.covers, *(each.covers for each in removed), () if product is None else product.covers)
    editor.replace(last, replace(last, covers=covers))
    journal.did(node.name, "recognised softmax", _SUNK)
    return True


def _is_product_of(editor: GraphEditor, product: Node | None, total: _Sum) -> bool:
    """Whether it multiplies the powers, which are added up along its depth."""
    if product is None or product.op != MatMul() or len(product.inputs) != 2 or product.inputs[0] != total.powers:
        return False
    return total.axis == editor.type(total.powers).rank - 1 and product.inputs[1] != total.powers


def _without_largest(editor: GraphEditor, journal: Journal, node: Node, op: Softmax) -> None:
    """Takes from a softmax's argument what the model takes off itself."""
    source = _largest(editor, node.inputs[0], op.axis)
    if source is None:
        return
    made = replace(node, inputs=(source,))
    editor.replace(node, made)
    removed = editor.prune(node.inputs)
    editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
    journal.did(node.name, "left out the largest score", "a softmax takes it off itself")


def _largest(editor: GraphEditor, value: str, axis: int) -> str | None:
    """x where the value is x less a maximum of x, which is one number along the axis."""
    node = plain(editor, value)
    if node is None or node.op != Binary("sub") or editor.type(node.inputs[0]) != editor.type(value):
        return None
    most = _reduced(editor, node.inputs[1], editor.type(value).rank)
    if most is None or not isinstance(most.op, Reduce) or most.op.mode != "max" or most.inputs[0] != node.inputs[0]:
        return None
    return node.inputs[0] if axis in most.op.axes else None


def _sum_of(editor: GraphEditor, value: str) -> _Sum | None:
    """The sum that the value is, and what is added to it."""
    node, least, rank, power = plain(editor, value), 0.0, editor.type(value).rank, None
    if node is not None and node.op == Binary("add"):
        for side, other in (node.inputs, node.inputs[::-1]):
            number = number_of(editor, other)
            if number is None:
                number = inf if _reduced(editor, side, rank) is not None and not editor.is_constant(side) else -1.0
            if number >= 0.0 and power is None:
                value, least, power = side, number, other
    total = _reduced(editor, value, rank)
    if total is None or not isinstance(total.op, Reduce) or total.op.mode != "sum" or len(total.op.axes) != 1:
        return None
    return _Sum(total.inputs[0], total.op.axes[0], least, power)


def _reduced(editor: GraphEditor, value: str, rank: int) -> Node | None:
    """The reduction that makes the value, with its axes kept: by itself, or by a reshape. All axes need no keeping."""
    node = plain(editor, value)
    if node is not None and isinstance(node.op, Reshape):
        inner = plain(editor, node.inputs[0])
        if inner is None or not isinstance(inner.op, Reduce) or inner.op.keepdims:
            return None
        shape = editor.type(inner.inputs[0]).shape
        kept = tuple(1 if axis in inner.op.axes else extent for axis, extent in enumerate(shape))
        return inner if editor.type(value).shape == kept else None
    if node is None or not isinstance(node.op, Reduce):
        return None
    whole = editor.type(value).elements == 1
    return node if whole or (node.op.keepdims and editor.type(value).rank == rank) else None


RECOGNISE_SOFTMAXES = Pass("recognise-softmaxes", _run)
