"""Recognises activations that a model spells out in arithmetic: hard_swish, silu, mish, gelu, clip and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, pi, sqrt

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.chosen_activations import without_choice
from bolt_build.planner.passes.recognise.formula import Reader, clip_bounds
from bolt_build.planner.passes.recognise.spelled_slopes import spelled_slope
from bolt_build.planner.rewrite import GraphEditor, joined

_DEEPEST = 4
"""Sums and products inside each other that spell out a polynomial."""


@dataclass(frozen=True)
class Match:
    """The activation that a node ends, of which value, and the formula that was found."""

    op: Activation
    value: str
    formula: str


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_ACTIVATIONS.name)
    reader = Reader(editor)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or not isinstance(node.op, Activation | Binary | Where):
            continue
        if editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        if isinstance(node.op, Where):
            chosen = without_choice(editor, reader, node)
            if chosen is not None:
                _replace(editor, node, chosen.node)
                journal.did(node.name, f"recognised {chosen.function}", chosen.formula)
            continue
        slope = spelled_slope(editor, reader, node)
        if slope is not None:
            _replace(editor, node, slope.node)
            journal.did(node.name, f"recognised {_function(slope.node)}", slope.formula)
            continue
        match = next((found for recognise in _RECOGNISERS if (found := recognise(reader, node)) is not None), None)
        if match is None or match.op == node.op or editor.type(match.value) != editor.type(node.outputs[0]):
            continue
        _replace(editor, node, replace(node, op=match.op, inputs=(match.value,)))
        journal.did(node.name, f"recognised {match.op.function}", match.formula)
    return journal.result(editor.finish())


def _function(node: Node) -> str:
    assert isinstance(node.op, Activation | Binary)
    return node.op.function


def _replace(editor: GraphEditor, node: Node, made: Node) -> None:
    """Puts `made` in the place of a node, and what nobody needs any longer under it."""
    made = replace(made, covers=node.covers)
    editor.replace(node, made)
    removed = editor.prune(node.inputs)
    editor.replace(made, replace(made, covers=joined(*(n.covers for n in removed), node.covers)))


def _gated(reader: Reader, node: Node) -> Match | None:
    """x * gate(x), with a number anywhere among the factors."""
    if not isinstance(node.op, Binary) or node.op.function not in ("mul", "div"):
        return None
    product = reader.product(node.outputs[0])
    if len(product.factors) != 2:
        return None
    for x, gate in (product.factors, product.factors[::-1]):
        for recognise in (_silu, _silu_tanh, _mish, _hard_swish, _gelu, _gelu_tanh):
            match = recognise(reader, product.coefficient, x, gate)
            if match is not None:
                return match
    return None


def _silu(reader: Reader, coefficient: float, x: str, gate: str) -> Match | None:
    node = reader.activation(gate, "sigmoid")
    if node is None or not reader.close(x, coefficient, 1):
        return None
    if node.inputs[0] == x:
        return Match(Activation("silu"), x, "x * sigmoid(x)")
    inner = reader.product(node.inputs[0])
    if inner.factors != (x,):
        return None
    return Match(Activation("swish", inner.coefficient), x, f"x * sigmoid({inner.coefficient:g} x)")


def _silu_tanh(reader: Reader, coefficient: float, x: str, gate: str) -> Match | None:
    inner = _half_plus_half(reader, coefficient, gate, "tanh")
    product = None if inner is None else reader.product(inner)
    if product is None or product.factors != (x,):
        return None
    return Match(_swish(reader, x, 2 * product.coefficient), x, f"x * (1 + tanh({product.coefficient:.6g} x)) / 2")


def _swish(reader: Reader, x: str, scale: float) -> Activation:
    return Activation("silu") if reader.close(x, scale, 1) else Activation("swish", scale)


def _mish(reader: Reader, coefficient: float, x: str, gate: str) -> Match | None:
    outer = reader.activation(gate, "tanh")
    inner = None if outer is None else reader.activation(outer.inputs[0], "softplus")
    if inner is None or inner.inputs[0] != x or not reader.close(x, coefficient, 1):
        return None
    return Match(Activation("mish"), x, "x * tanh(softplus(x))")


def _hard_swish(reader: Reader, coefficient: float, x: str, gate: str) -> Match | None:
    line = _hard_line(reader, gate, coefficient)
    if line is None or line[0] != x or not reader.close(x, line[1], 1 / 6) or not reader.close(x, line[2], 0.5):
        return None
    return Match(Activation("hard_swish"), x, "x * clip(x + 3, 0, 6) / 6")


def _gelu(reader: Reader, coefficient: float, x: str, gate: str) -> Match | None:
    inner = _half_plus_half(reader, coefficient, gate, "erf")
    if inner is None:
        return None
    product = reader.product(inner)
    if product.factors != (x,) or not reader.close(x, product.coefficient, sqrt(0.5)):
        return None
    return Match(Activation("gelu"), x, "x * (1 + erf(x / sqrt(2))) / 2")


def _gelu_tanh(reader: Reader, coefficient: float, x: str, gate: str) -> Match | None:
    inner = _half_plus_half(reader, coefficient, gate, "tanh")
    if inner is None:
        return None
    powers = _powers(reader, inner, x, _DEEPEST)
    if powers is None or powers.keys() != {1, 3} or not reader.close(x, powers[1], sqrt(2 / pi)):
        return None
    if not reader.close(x, powers[3] / powers[1], 0.044715):
        return None
    return Match(Activation("gelu_tanh"), x, "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2")


def _powers(reader: Reader, value: str, x: str, depth: int) -> dict[int, float] | None:
    """The coefficients of `value` by powers of x, where it is a polynomial of few nodes, of third degree at most."""
    if value == x:
        return {1: 1.0}
    if not depth:
        return None
    found: dict[int, float] | None
    product, total = reader.product(value), reader.sum(value)
    if product.factors != (value,):
        found = {0: product.coefficient}
        for factor in product.factors:
            other = _powers(reader, factor, x, depth - 1)
            found = None if found is None or other is None else _multiplied(found, other)
    elif total.terms != (value,):
        found = {0: total.constant}
        for term in total.terms:
            other = _powers(reader, term, x, depth - 1)
            found = None if found is None or other is None else _added(found, other)
    else:
        return None
    if found is None or max(found, default=0) > 3:
        return None
    return {power: coefficient for power, coefficient in found.items() if coefficient}


def _multiplied(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    found = dict.fromkeys((p + q for p in a for q in b), 0.0)
    for p, one in a.items():
        for q, other in b.items():
            found[p + q] += one * other
    return found


def _added(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    return {power: a.get(power, 0.0) + b.get(power, 0.0) for power in {*a, *b}}


def _half_plus_half(reader: Reader, coefficient: float, gate: str, function: str) -> str | None:
    """u, where coefficient * gate is 1/2 + function(u) / 2."""
    total = reader.sum(gate)
    if len(total.terms) != 1 or not reader.close(gate, coefficient * total.constant, 0.5):
        return None
    product = reader.product(total.terms[0])
    if len(product.factors) != 1 or not reader.close(gate, coefficient * product.coefficient, 0.5):
        return None
    node = reader.activation(product.factors[0], function)
    return None if node is None else node.inputs[0]


def _hard_line(reader: Reader, gate: str, coefficient: float) -> tuple[str, float, float] | None:
    """(x, a, b) where coefficient * gate is clip(a * x + b, 0, 1)."""
    node = reader.activation(gate, "hard_sigmoid")
    if node is not None and isinstance(node.op, Activation) and reader.close(gate, coefficient, 1):
        return node.inputs[0], node.op.alpha, node.op.beta
    node = reader.activation(gate, "clip")
    if node is None or not isinstance(node.op, Activation) or not node.op.alpha == 0 < node.op.beta:
        return None
    if not reader.close(gate, coefficient * node.op.beta, 1):
        return None
    total = reader.sum(node.inputs[0])
    if len(total.terms) != 1:
        return None
    product = reader.product(total.terms[0])
    if len(product.factors) != 1:
        return None
    return product.factors[0], coefficient * product.coefficient, coefficient * total.constant


def _logistic(reader: Reader, node: Node) -> Match | None:
    """1 / (1 + exp(-x)) and x / (1 + exp(-x))."""
    match node.op:
        case Activation("reciprocal"):
            x, power = None, _one_and_power(reader, node.inputs[0])
        case Binary("div"):
            number = reader.scalar(node.inputs[0])
            if number not in (None, 1.0):
                return None
            x, power = None if number == 1.0 else node.inputs[0], _one_and_power(reader, node.inputs[1])
        case _:
            return None
    product = None if power is None else reader.product(power)
    if product is None or len(product.factors) != 1:
        return None
    if x is None:
        close = reader.close(product.factors[0], product.coefficient, -1)
        return Match(Activation("sigmoid"), product.factors[0], "1 / (1 + exp(-x))") if close else None
    if product.factors != (x,):
        return None
    return Match(_swish(reader, x, -product.coefficient), x, f"x / (1 + exp({product.coefficient:.6g} x))")


def _softplus(reader: Reader, node: Node) -> Match | None:
    """log(1 + exp(x))."""
    if node.op != Activation("log"):
        return None
    power = _one_and_power(reader, node.inputs[0])
    return None if power is None else Match(Activation("softplus"), power, "log(1 + exp(x))")


def _one_and_power(reader: Reader, value: str) -> str | None:
    """u, where `value` is 1 + exp(u), and nothing else reads it."""
    if reader.inner(value) is None:
        return None
    total = reader.sum(value)
    power = reader.activation(total.terms[0], "exp") if len(total.terms) == 1 and total.constant == 1.0 else None
    return None if power is None else power.inputs[0]


def _hard_sigmoid(reader: Reader, node: Node) -> Match | None:
    """clip(x + b, 0, h) / h, and clip(a * x + b, 0, 1)."""
    match node.op:
        case Binary("mul" | "div"):
            product = reader.product(node.outputs[0])
            if len(product.factors) != 1:
                return None
            line = _hard_line(reader, product.factors[0], product.coefficient)
        case Activation("clip"):
            line = _hard_line(reader, node.outputs[0], 1.0)
        case _:
            return None
    if line is None or (line[1], line[2]) == (1.0, 0.0):
        return None
    formula = f"clip({line[1]:.6g} * x + {line[2]:.6g}, 0, 1)"
    return Match(Activation("hard_sigmoid", line[1], line[2]), line[0], formula)


def _clip(reader: Reader, node: Node) -> Match | None:
    """Bounds by max and min with numbers, and clips that are a relu."""
    low, high, x = _bounds(reader, node)
    if x is None:
        return None
    own = x
    while (inner := reader.inner(x)) is not None:
        inner_low, inner_high, source = _bounds(reader, inner)
        if source is None or max(low, inner_low) > min(high, inner_high):
            break
        low, high, x = max(low, inner_low), min(high, inner_high), source
    if (low, high) == (0.0, inf):
        return Match(Activation("relu"), x, "max(x, 0)")
    if x == own and isinstance(node.op, Activation):
        return None
    return Match(Activation("clip", low, high), x, f"min(max(x, {low:.6g}), {high:.6g})")


def _bounds(reader: Reader, node: Node) -> tuple[float, float, str | None]:
    """(low, high, x) of a node that only bounds x; x is None for any other node."""
    match node.op:
        case Activation("relu"):
            return 0.0, inf, node.inputs[0]
        case Activation("clip"):
            return *clip_bounds(node.op), node.inputs[0]
        case Binary("max" | "min" as function):
            for x, other in (node.inputs, node.inputs[::-1]):
                number = reader.scalar(other)
                if number is not None and reader.scalar(x) is None:
                    return (number, inf, x) if function == "max" else (-inf, number, x)
    return -inf, inf, None


def _leaky_relu(reader: Reader, node: Node) -> Match | None:
    """max(x, a * x) with a below 1, and PRelu with one number for all channels."""
    if not isinstance(node.op, Binary) or node.op.function not in ("max", "prelu"):
        return None
    if node.op.function == "prelu":
        slope = reader.scalar(node.inputs[1])
        return None if slope is None else Match(Activation("leaky_relu", slope), node.inputs[0], "one slope for all x")
    for x, scaled in (node.inputs, node.inputs[::-1]):
        product = reader.product(scaled)
        if scaled != x and product.factors == (x,) and 0 < product.coefficient < 1:
            return Match(Activation("leaky_relu", product.coefficient), x, f"max(x, {product.coefficient:.6g} * x)")
    return None


_RECOGNISERS: tuple[Callable[[Reader, Node], Match | None], ...] = (
    _gated, _logistic, _softplus, _hard_sigmoid, _clip, _leaky_relu,
)  # fmt: skip

RECOGNISE_ACTIVATIONS = Pass("recognise-activations", _run)
