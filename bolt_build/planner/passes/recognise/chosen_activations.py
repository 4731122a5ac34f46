"""Recognises activations that a model spells out as a choice between two formulas, by a comparison with a number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.planner.passes.recognise.formula import Reader
from bolt_build.planner.rewrite import GraphEditor

_NEAR = 1e-6
"""How far softplus may be from its argument, as a part of that, where a model takes the argument instead."""


@dataclass(frozen=True)
class Choice:
    """`above` where `value` is above `number`, else `below`. `at`: the number itself is above, too. Of most formulas
    that are looked for both branches are the same there, or either is right to within rounding."""

    value: str
    number: float
    above: str
    below: str
    at: bool


@dataclass(frozen=True)
class Chosen:
    """The node that says the same without a choice, and the formula that was found."""

    node: Node
    function: str
    formula: str


def choice_of(editor: GraphEditor, reader: Reader, node: Node) -> Choice | None:
    if not isinstance(node.op, Where) or node.epilogue:
        return None
    condition, yes, no = node.inputs
    asked = editor.producer(condition)
    if asked is None or not isinstance(asked.op, Compare) or asked.epilogue or editor.is_output(condition):
        return None
    question = asked.op.question
    if question.removesuffix("_equal") not in ("greater", "less"):
        return None
    first, second = asked.inputs
    for value, other, turned in ((first, second, False), (second, first, True)):
        number = reader.scalar(other)
        if number is not None and reader.scalar(value) is None:
            is_above = question.startswith("greater") != turned
            at = question.endswith("_equal") == is_above
            return Choice(value, number, *((yes, no) if is_above else (no, yes)), at)
    return None


def without_choice(editor: GraphEditor, reader: Reader, node: Node) -> Chosen | None:
    """What the node is where it chooses; None where it does something else, or the formula is none of these."""
    choice = choice_of(editor, reader, node)
    if choice is None or editor.type(choice.value) != editor.type(node.outputs[0]):
        return None
    return _softplus(editor, reader, node, choice) or _of_value(editor, reader, node, choice)


def _softplus(editor: GraphEditor, reader: Reader, node: Node, choice: Choice) -> Chosen | None:
    """softplus(b * x) / b where b * x is no large number, else x: as torch.export writes it."""
    product = reader.product(choice.below)
    if len(product.factors) != 1 or not _is_near(choice.number):
        return None
    inner = reader.activation(product.factors[0], "softplus")
    if inner is None or inner.inputs[0] != choice.value:
        return None
    above = reader.product(choice.value) if choice.above != choice.value else None
    times = 1.0 if above is None else above.coefficient
    if above is not None and above.factors != (choice.above,):
        return None
    last = editor.producer(choice.below)
    if last is None or editor.not_private(choice.below) is not None:
        return None
    if times == 0.0 or not reader.close(choice.below, product.coefficient * times, 1.0):
        return None
    words = "softplus(x)" if times == 1.0 else f"softplus({times:.6g} * x) / {times:.6g}"
    return Chosen(replace(last, name=node.name, outputs=node.outputs), "softplus", words)


def _is_near(number: float) -> bool:
    """Whether softplus hardly differs from an argument above the number."""
    return number > 0.0 and exp(-number) <= _NEAR * number


def _of_value(editor: GraphEditor, reader: Reader, node: Node, choice: Choice) -> Chosen | None:
    """Functions that are x, or nearly so, on one side: relu, leaky relu, thresholded relu, and both shrinks."""
    x, number = choice.value, choice.number

    def made(op: Activation, of: str, formula: str) -> Chosen:
        return Chosen(replace(node, op=op, inputs=(of,)), op.function, formula)

    if choice.above == x:
        if reader.scalar(choice.below) == 0.0:
            if number == 0.0:
                return made(Activation("relu"), x, "x where x > 0, else 0")
            if choice.at:  # it would be kept, and a thresholded relu leaves 0
                return None
            return made(Activation("thresholded_relu", number), x, f"x where x > {number:.6g}, else 0")
        product = reader.product(choice.below)
        if number == 0.0 and product.factors == (x,) and product.coefficient:
            slope = product.coefficient
            return made(Activation("leaky_relu", slope), x, f"x where x > 0, else {slope:.6g} * x")
        return None
    magnitude = reader.activation(x, "abs")
    if magnitude is None or number < 0.0 or not _is_zero(reader, choice.below, magnitude.inputs[0]):
        return None
    (inner,) = magnitude.inputs
    if choice.above == inner:
        if choice.at and number:
            return None
        return made(Activation("shrink", number, 0.0), inner, f"x where |x| > {number:.6g}, else 0")
    bias = _less_sign(editor, reader, choice.above, inner)
    if bias is None or (choice.at and number not in (0.0, bias)):
        return None
    return made(Activation("shrink", number, bias), inner, f"x - {bias:.6g} * sign(x) where |x| > {number:.6g}, else 0")


def _is_zero(reader: Reader, value: str, x: str) -> bool:
    """0, or x times 0."""
    if reader.scalar(value) == 0.0:
        return True
    product = reader.product(value)
    return product.coefficient == 0.0 and product.factors == (x,)


def _less_sign(editor: GraphEditor, reader: Reader, value: str, x: str) -> float | None:
    """b, where the value is x - b * sign(x)."""
    node = editor.producer(value)
    if node is None or node.op != Binary("sub") or node.epilogue or node.inputs[0] != x:
        return None
    product = reader.product(node.inputs[1])
    if len(product.factors) != 1:
        return None
    sign = reader.activation(product.factors[0], "sign")
    return product.coefficient if sign is not None and sign.inputs[0] == x else None
