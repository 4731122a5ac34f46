"""Two products with the same A operand, of which one is a gate of the other, in one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, EpilogueOp, Op, ShapeError, TensorType
from bolt_build.graph.ops.products.conv import Conv


@dataclass(frozen=True)
class Gated(Op):
    """y = first(a) * second(b), whose stages are functions of the value alone.

    Inputs: the A operand, weights and perhaps a bias of a, as `product` reads them: `operands` in all; then weights
    and perhaps a bias of b. Without the latter a and b are columns (channels, of convolutions) of one product: its
    first and its last half, or `neighbours`, those of even and of odd number.

    It stands in kernel problems; graphs hold products and gate apart.
    """

    kind = "gated"
    in_graphs = False
    product: Op
    operands: int
    first: tuple[EpilogueOp, ...] = ()
    second: tuple[EpilogueOp, ...] = ()
    neighbours: bool = False

    @property
    def axis(self) -> int:
        """Of columns, or channels, in what the product leaves."""
        return 1 if isinstance(self.product, Conv) else -1

    def joint(self, inputs: Sequence[TensorType]) -> bool:
        """True where a and b are columns of one product."""
        return len(inputs) == self.operands

    def sides(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """What the products leave, one or two, as tensors of input 0's element type whatever those of biases are.

        Raises ShapeError where a product does.
        """
        alike = [TensorType(inputs[0].dtype, each.shape) for each in inputs]
        found = self.product.infer(alike[: self.operands])
        return found if self.joint(inputs) else (*found, *self.product.infer([alike[0], *alike[self.operands :]]))

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        left, *others = self.sides(inputs)
        if others:
            if others != [left]:
                raise ShapeError(f"{list(left.shape)} is no gate of {list(others[0].shape)}")
            return (left,)
        axis = self.axis % left.rank
        if left.shape[axis] % 2:
            raise ShapeError(f"{left.shape[axis]} columns have no halves")
        return (TensorType(left.dtype, (*left.shape[:axis], left.shape[axis] // 2, *left.shape[axis + 1 :])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        wide = [widened(array) for array in inputs]
        (a,) = self.product.evaluate(wide[: self.operands])
        if len(inputs) > self.operands:
            (b,) = self.product.evaluate([wide[0], *wide[self.operands :]])
        else:
            lines = a.swapaxes(0, self.axis)
            half = len(lines) // 2
            sides = (lines[::2], lines[1::2]) if self.neighbours else (lines[:half], lines[half:])
            a, b = (side.swapaxes(0, self.axis) for side in sides)
        for stage in self.first:
            (a,) = stage.op.evaluate([a])
        for stage in self.second:
            (b,) = stage.op.evaluate([b])
        return (narrowed(a * b, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        left, *others = self.sides(inputs)
        found = self.product.flops(inputs[: self.operands], [left])
        for right in others:
            found += self.product.flops([inputs[0], *inputs[self.operands :]], [right])
        return found + outputs[0].elements

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return self.product.unread(inputs[: self.operands])
