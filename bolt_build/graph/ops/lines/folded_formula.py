"""A reduction of an elementwise function of several tensors, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, TensorType
from bolt_build.graph.ops.elementwise.formula import Formula
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.operands import broadcast


@dataclass(frozen=True)
class FoldedFormula(Op):
    """`fold` of `formula` of all inputs, which broadcast as NumPy's do, in the element type of input 0. Nothing is
    rounded between both, and nothing of what lies between is stored.

    For example the mean of squared differences of two images, or rows that are weighed and added up. It stands in
    kernel problems; graphs hold the nodes apart.
    """

    kind = "folded_formula"
    in_graphs = False
    formula: Formula
    fold: Reduce

    def whole(self, inputs: Sequence[TensorType]) -> TensorType:
        """What lies between."""
        return TensorType(inputs[0].dtype, reduce(broadcast, (each.shape for each in inputs)))

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return self.fold.infer(self.formula.infer(inputs))

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (whole,) = self.formula.evaluate([widened(array) for array in inputs])
        (result,) = self.fold.evaluate([whole])
        return (narrowed(result, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return (len(self.formula.terms) + 1) * self.whole(inputs).elements

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return sum(each.elements for each in inputs) + (len(self.formula.terms) + 1) * self.whole(inputs).elements
