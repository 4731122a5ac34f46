"""Elementwise functions of several tensors, one of the other's results, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import dtype_of, narrowed, numpy_dtype, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.graph.ops.operands import broadcast, expect_count

FormulaOp = Activation | Binary | Ask | Cast | Compare | Logic | Where
"""Casts are those between booleans and floating point."""


@dataclass(frozen=True)
class FormulaTerm:
    """A function of up to three numbers or booleans: of inputs, which come first, and of earlier terms, counted behind
    these."""

    op: FormulaOp
    operands: tuple[int, ...]

    @property
    def word(self) -> str:
        """What the function is called: `mul`, `greater`, `where`."""
        match self.op:
            case Activation() | Binary() | Logic():
                return self.op.function
            case Ask(question) | Compare(question):
                return question
            case Cast(to):
                return "holds" if to is DType.BOOL else "number"
        return "where"

    def __str__(self) -> str:
        """`mul(0,1)`, `clip[0.0,6.0](2)`"""
        numbers = (self.op.alpha, self.op.beta) if isinstance(self.op, Activation) else (0.0, 0.0)
        stated = f"[{numbers[0]},{numbers[1]}]" if any(numbers) else ""
        return f"{self.word}{stated}({','.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Formula(Op):
    """The last of `terms` of `count` inputs, element by element with NumPy broadcasting: booleans, or numbers in the
    element type of the first input of floating point. Nothing is rounded between terms. Inputs may be integers that
    are compared with each other.

    It stands in kernel problems; graphs hold the functions apart.
    """

    kind = "formula"
    in_graphs = False
    count: int
    terms: tuple[FormulaTerm, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, self.count)
        for place, term in enumerate(self.terms):
            if any(not 0 <= index < self.count + place for index in term.operands):
                raise ShapeError(f"term {place} is of what does not come before it")
            types = [inputs[index].dtype if index < self.count else None for index in term.operands]
            integers = [each for each in types if each is not None and each.is_integer]
            if integers and (not isinstance(term.op, Compare) or types != integers[:1] * 2):
                raise ShapeError(f"term {place} is of integers, which are compared with each other alone")
        shape = reduce(broadcast, (each.shape for each in inputs))
        return (TensorType(self._result([each.dtype for each in inputs]), shape),)

    def _result(self, inputs: Sequence[DType]) -> DType:
        """The element type of the last term. Raises ShapeError where no input says which numbers it has."""
        asks = [dtype is DType.BOOL for dtype in inputs]
        for term in self.terms:
            chosen = isinstance(term.op, Where) and asks[term.operands[1]] and asks[term.operands[2]]
            asks.append(chosen or isinstance(term.op, Ask | Compare | Logic) or term.op == Cast(DType.BOOL))
        found = DType.BOOL if asks[-1] else next((dtype for dtype in inputs if dtype.is_float), None)
        if found is None:
            raise ShapeError("a formula that gives numbers has an input of floating point")
        return found

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        made = [widened(array) for array in inputs]
        for term in self.terms:
            made += term.op.evaluate([made[index] for index in term.operands])
        result = self._result([dtype_of(array) for array in inputs])
        first = next((array.dtype for array in inputs if dtype_of(array).is_float), None)
        return (narrowed(made[-1], numpy_dtype(DType.BOOL) if result is DType.BOOL or first is None else first),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return len(self.terms) * outputs[0].elements
