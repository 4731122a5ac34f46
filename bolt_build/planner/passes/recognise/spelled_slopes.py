"""Recognises slopes below zero that a model spells out with relu, absolute values and bounds: PRelu and leaky relu."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from bolt_build.graph.ir import Node, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.passes.recognise.formula import Reader, clip_bounds
from bolt_build.planner.rewrite import GraphEditor


@dataclass(frozen=True)
class Slope:
    """The node that says the same with one slope, and the formula that was found."""

    node: Node
    formula: str


@dataclass(frozen=True)
class _Part:
    """`times` * min(x, 0) * the constant `channels`, where there is one."""

    times: float
    channels: str | None


def spelled_slope(editor: GraphEditor, reader: Reader, node: Node) -> Slope | None:
    """What the node is where it adds up what a tensor is above zero and, times a slope, below zero."""
    if not isinstance(node.op, Binary) or node.op.function not in ("add", "sub"):
        return None
    sides = (node.inputs, node.inputs[::-1]) if node.op.function == "add" else (node.inputs,)
    for first, second in sides:
        sign = -1.0 if node.op.function == "sub" else 1.0
        if (found := _two_parts(editor, reader, node, first, second, sign)) is not None:
            return found
        if (found := _absolute(editor, reader, node, first, second, sign)) is not None:
            return found
    return None


def _two_parts(editor: GraphEditor, reader: Reader, node: Node, first: str, second: str, sign: float) -> Slope | None:
    """relu(x) + slope * min(x, 0)."""
    above = reader.activation(first, "relu")
    if above is None or editor.type(x := above.inputs[0]) != editor.type(node.outputs[0]):
        return None
    part = _below(editor, reader, x, second)
    if part is None:
        return None
    times = sign * part.times
    if part.channels is None:
        return Slope(_leaky(node, x, times), f"max(x, 0) + {times:.6g} * min(x, 0)")
    constant = editor.constant(part.channels)
    assert constant is not None
    dtype = editor.type(part.channels).dtype
    slope = part.channels
    if times != 1.0:
        slope = editor.new_constant(f"{node.name}.slope", (constant * times).astype(constant.dtype), dtype)
    made = replace(node, op=Binary("prelu"), inputs=(x, slope))
    return Slope(made, "max(x, 0) + slope * min(x, 0)")


def _absolute(editor: GraphEditor, reader: Reader, node: Node, first: str, second: str, sign: float) -> Slope | None:
    """a * x + (1 - a) * abs(x), whose slope below zero is 2 a - 1."""
    plain, other = reader.product(first), reader.product(second)
    if len(plain.factors) != 1 or len(other.factors) != 1:
        return None
    inner = reader.activation(other.factors[0], "abs")
    x = plain.factors[0]
    if inner is None or inner.inputs[0] != x or editor.type(x) != editor.type(node.outputs[0]):
        return None
    a, b = plain.coefficient, sign * other.coefficient
    if not reader.close(x, a + b, 1.0):
        return None
    return Slope(_leaky(node, x, a - b), f"{a:.6g} * x + {b:.6g} * abs(x)")


def _leaky(node: Node, x: str, slope: float) -> Node:
    return replace(node, op=Activation("leaky_relu", slope) if slope else Activation("relu"), inputs=(x,))


def _below(editor: GraphEditor, reader: Reader, x: str, value: str) -> _Part | None:
    """What `value` is of min(x, 0); None where it is anything else."""
    product = reader.product(value)
    constants = [factor for factor in product.factors if editor.constant(factor) is not None]
    rest = [factor for factor in product.factors if editor.constant(factor) is None]
    if len(constants) > 1 or len(rest) != 1:
        return None
    times = _times_below(editor, reader, x, rest[0])
    if times is None or not np.isfinite(product.coefficient * times):
        return None
    channels = constants[0] if constants else None
    if channels is not None and not _slopes(editor, x, channels):
        return None
    return _Part(product.coefficient * times, channels)


def _times_below(editor: GraphEditor, reader: Reader, x: str, value: str) -> float | None:
    """k, where `value` is k * min(x, 0)."""
    if (negative := reader.activation(value, "relu")) is not None:
        inner = reader.product(negative.inputs[0])
        return inner.coefficient if inner.factors == (x,) and inner.coefficient < 0 else None
    if (bounded := reader.activation(value, "clip")) is not None:
        assert isinstance(bounded.op, Activation)
        return 1.0 if bounded.inputs == (x,) and clip_bounds(bounded.op) == (-inf, 0.0) else None
    node = editor.producer(value)
    if node is None or node.epilogue or node.op != Binary("sub"):
        return None
    for at, times in ((0, 2.0), (1, -2.0)):
        absolute = reader.activation(node.inputs[1 - at], "abs")
        if node.inputs[at] == x and absolute is not None and absolute.inputs[0] == x:
            return times
    return None


def _slopes(editor: GraphEditor, x: str, channels: str) -> bool:
    """Whether a constant may be the slopes of PRelu: it is of x's type and broadcasts to it."""
    of = editor.type(x)
    given = editor.type(channels)
    if given.dtype != of.dtype:
        return False
    try:
        return Binary("prelu").infer((of, TensorType(given.dtype, given.shape))) == (of,)
    except ShapeError:
        return False
