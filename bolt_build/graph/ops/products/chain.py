"""Two products, a convolution and a pooling, a multiplication and a product, or either and a normalisation, in one
kernel, where what the first leaves is never stored; and the same where it is, as with the means of what a convolution
leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, EpilogueOp, Member, Op, TensorType
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.moves.stack import UnfoldDepth


@dataclass(frozen=True)
class Chain(Op):
    """Inputs: the first `operands` are those of `first` and, at the places that they name, of the stages `between`; the
    others those of `second` behind its own input 0, which is what `first` and these stages leave.

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

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        found = self.first.indices([inputs[index] for index in self._own])
        return {self._own[at]: extent for at, extent in found.items()}

    def inner(self, inputs: Sequence[TensorType]) -> TensorType:
        """What lies between, as a tensor of input 0's element type whatever those of the other inputs are.

        Raises ShapeError where the first does.
        """
        (inner,) = self.first.infer([TensorType(inputs[0].dtype, inputs[index].shape) for index in self._own])
        return inner

    @property
    def _own(self) -> tuple[int, ...]:
        """The first's own inputs, without operands of stages."""
        stages = {stage.operand for stage in self.between}
        return tuple(index for index in range(self.operands) if index not in stages)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.first.infer([inputs[index] for index in self._own])
        inner = self.inner(inputs)
        return (*([inner] if self.keeps else []), *self.second.infer([inner, *inputs[self.operands :]]))

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """What lies between is rounded once, when its stages are through, where it is a factor: to the type of the
        weights, the first's, or the second's where the first has none."""
        inner = self._left([widened(array) for array in inputs])
        if self.second.factors > 1:
            weights = inputs[1 if self.first.factors > 1 else self.operands]
            inner = widened(narrowed(inner, weights.dtype))
        (result,) = self.second.evaluate([inner, *(widened(array) for array in inputs[self.operands :])])
        return (narrowed(result, inputs[0].dtype),)

    def _left(self, wide: Sequence[Array]) -> Array:
        """What the first and its stages leave, not rounded."""
        (inner,) = self.first.evaluate([wide[index] for index in self._own])
        for stage in self.between:
            sides = [inner] if stage.operand is None else [inner, wide[stage.operand]]
            (inner,) = stage.op.evaluate(sides[::-1] if stage.swapped else sides)
        return inner

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        inner = self.inner(inputs)
        own = self.first.flops([inputs[index] for index in self._own], [inner])
        return own + self.second.flops([inner, *inputs[self.operands :]], outputs[-1:])

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return self.first.unread(inputs[: self.operands])


@dataclass(frozen=True)
class Kept(Chain):
    """A chain whose first operator's results are stored as well, in front of the second's: two outputs."""

    kind = "kept"
    keeps = True

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """The second reads what was not rounded yet."""
        inner = self._left([widened(array) for array in inputs])
        (result,) = self.second.evaluate([inner, *(widened(array) for array in inputs[self.operands :])])
        return (narrowed(inner, inputs[0].dtype), narrowed(result, inputs[0].dtype))


@dataclass(frozen=True)
class Averaged(Kept):
    """An operator and the means of what it leaves."""

    kind = "averaged"


@dataclass(frozen=True)
class Normed(Chain):
    """A chain of an operator and the normalisation of what it leaves, whose axes are moved in between where there is a
    `move`, or whose images become depths of a volume."""

    kind = "normed"
    move: Transpose | UnfoldDepth | None = None

    @property
    def sequence(self) -> tuple[Member, ...]:
        *before, last = super().sequence
        return (*before, *([] if self.move is None else [Member(self.move, 0)]), last)

    def moved(self, inputs: Sequence[TensorType]) -> TensorType:
        """What is normalised. Raises ShapeError where the first or the move does."""
        inner = self.inner(inputs)
        return inner if self.move is None else self.move.infer([inner])[0]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return self.second.infer([self.moved(inputs), *inputs[self.operands :]])

    def _left(self, wide: Sequence[Array]) -> Array:
        inner = super()._left(wide)
        return inner if self.move is None else self.move.evaluate([inner])[0]

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        own = self.first.flops([inputs[index] for index in self._own], [self.inner(inputs)])
        return own + self.second.flops([self.moved(inputs), *inputs[self.operands :]], outputs)
