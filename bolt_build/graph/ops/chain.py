"""Two products, or a convolution and a pooling, in one kernel: what the first leaves is never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, EpilogueOp, Member, Op, ShapeError, TensorType


@dataclass(frozen=True)
class Chain(Op):
    """Inputs: the first `operands` are those of `first`, the others those of `second` behind its own input 0, which is
    what `first` and the stages `between` (without operands) leave.

    It stands in kernel problems; graphs hold the two operators apart.
    """

    kind = "chain"
    in_graphs = False
    first: Op
    operands: int
    between: tuple[EpilogueOp, ...]
    second: Op

    @property
    def sequence(self) -> tuple[Member, ...]:
        *before, last = self.first.sequence
        own = self.operands - sum(member.own or 0 for member in before)
        return (*before, Member(last.op, own, self.between), *self.second.sequence)

    def inner(self, inputs: Sequence[TensorType]) -> TensorType:
        """What lies between, as a tensor of input 0's element type whatever those of the other inputs are.

        Raises ShapeError.
        """
        if any(stage.operand is not None for stage in self.between):
            raise ShapeError("stages between two products have no operands")
        (inner,) = self.first.infer([TensorType(inputs[0].dtype, t.shape) for t in inputs[: self.operands]])
        return inner

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.first.infer(inputs[: self.operands])
        return self.second.infer([self.inner(inputs), *inputs[self.operands :]])

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """What lies between is rounded once, when its stages are through, to the type of the first's weights."""
        (inner,) = self.first.evaluate([widened(array) for array in inputs[: self.operands]])
        for stage in self.between:
            (inner,) = stage.op.evaluate([inner])
        rest = [widened(array) for array in inputs[self.operands :]]
        (result,) = self.second.evaluate([widened(narrowed(inner, inputs[1].dtype)), *rest])
        return (narrowed(result, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        inner = self.inner(inputs)
        own = self.first.flops(inputs[: self.operands], [inner])
        return own + self.second.flops([inner, *inputs[self.operands :]], outputs)

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return self.first.unread(inputs[: self.operands])
