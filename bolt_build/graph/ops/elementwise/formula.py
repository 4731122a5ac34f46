"""Elementwise functions of several tensors, one of the other's results, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_float


@dataclass(frozen=True)
class FormulaTerm:
    """A function of one or two numbers: of inputs, which come first, and of earlier terms, counted behind these."""

    op: Activation | Binary
    operands: tuple[int, ...]

    def __str__(self) -> str:
        """`mul(0,1)`, `clip[0.0,6.0](2)`"""
        numbers = (self.op.alpha, self.op.beta) if isinstance(self.op, Activation) else (0.0, 0.0)
        stated = f"[{numbers[0]},{numbers[1]}]" if any(numbers) else ""
        return f"{self.op.function}{stated}({','.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Formula(Op):
    """The last of `terms` of `count` inputs, element by element with NumPy broadcasting, in the element type of input
    0. Nothing is rounded between terms.

    It stands in kernel problems; graphs hold activations and binary functions apart.
    """

    kind = "formula"
    in_graphs = False
    count: int
    terms: tuple[FormulaTerm, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, self.count)
        for each in inputs:
            expect_float(each)
        for place, term in enumerate(self.terms):
            if any(not 0 <= index < self.count + place for index in term.operands):
                raise ShapeError(f"term {place} is of what does not come before it")
        return (TensorType(inputs[0].dtype, reduce(broadcast, (each.shape for each in inputs))),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        made = [widened(array) for array in inputs]
        for term in self.terms:
            made += term.op.evaluate([made[index] for index in term.operands])
        return (narrowed(made[-1], inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return len(self.terms) * outputs[0].elements
