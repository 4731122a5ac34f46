"""Products and convolutions of quantised tensors whole: integers are multiplied and added up, and what follows is
computed on the sums, which are never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, EpilogueOp, Op, ShapeError, TensorType
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.integer_product import FACTORS, IntegerConv, IntegerMatMul
from bolt_build.graph.ops.quantised.quantize import saturated

OWN = 6
"""Inputs that every one has: both factors, scale and zero point of the first, and those of the second."""


@dataclass(frozen=True)
class QuantisedProduct(Op):
    """Inputs x and w (i8 or u8), scale and zero point of x ([]), scale and zero point of w ([], or one a column of the
    result); where `biased` a bias in fp32, one a column; where `to` is an integer type its scale and zero point ([]);
    and the operands of `stages`.

    `product` of x and w less their zero points, times both scales, with the bias and then the stages applied, all in
    fp32; of `to`, rounded where that is an integer type. Columns of a convolution are its filters.
    """

    kind = "quantised-product"
    scales = (2, -1)
    product: Conv | MatMul
    to: DType = DType.F32
    biased: bool = False
    stages: tuple[EpilogueOp, ...] = ()

    @property
    def rounds(self) -> bool:
        """Whether its result is of integers."""
        return not self.to.is_float

    @property
    def own(self) -> int:
        """Inputs in front of the operands of stages."""
        return OWN + self.biased + 2 * self.rounds

    @property
    def axis(self) -> int:
        """The axis of columns: 1 of a convolution, the last of a product."""
        return 1 if isinstance(self.product, Conv) else -1

    @property
    def sums(self) -> IntegerConv | IntegerMatMul:
        """What makes the integer sums of the factors and their zero points."""
        op = self.product
        if isinstance(op, MatMul):
            return IntegerMatMul(op.transpose_a, op.transpose_b)
        return IntegerConv(op.strides, op.pads_begin, op.pads_end, op.dilations, op.groups)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(inputs) < self.own:
            raise ShapeError(f"takes {self.own} inputs, not {len(inputs)}")
        x, w, x_scale, x_zero, w_scale, w_zero = inputs[:OWN]
        (sums,) = self.sums.infer([x, w, x_zero, w_zero])
        columns = sums.shape[self.axis]
        expected = [
            ("the scale of x", x_scale, ((),)), ("scales of w", w_scale, ((), (columns,))),
            *([("biases", inputs[OWN], ((columns,),))] if self.biased else []),
        ]  # fmt: skip
        for what, each, shapes in expected:
            if each.shape not in shapes:
                raise ShapeError(f"{what} {list(each.shape)} must be {' or '.join(str(list(s)) for s in shapes)}")
        if x_zero.shape:
            raise ShapeError(f"x has one zero point, not {list(x_zero.shape)}")
        if self.rounds and (self.to not in FACTORS or inputs[self.own - 1] != TensorType(self.to, ())):
            raise ShapeError(f"makes i8 or u8 with one zero point, not {self.to.value}")
        if not self.rounds and self.to is not DType.F32:
            raise ShapeError(f"makes f32, i8 or u8, not {self.to.value}")
        return (TensorType(self.to, sums.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, w, x_scale, x_zero, w_scale, w_zero = inputs[:OWN]
        (sums,) = self.sums.evaluate([x, w, x_zero, w_zero])
        behind = (1,) * (sums.ndim - 2) if self.axis == 1 else ()
        with np.errstate(all="ignore"):
            scale = np.asarray(x_scale.astype(np.float32) * w_scale.astype(np.float32))
            real = sums.astype(np.float32) * (scale.reshape(-1, *behind) if scale.ndim else scale)
            if self.biased:
                real = real + inputs[OWN].astype(np.float32).reshape(-1, *behind)
            for stage in self.stages:
                sides = [real] if stage.operand is None else [real, inputs[stage.operand].astype(np.float32)]
                (real,) = stage.op.evaluate(sides[::-1] if stage.swapped else sides)
            if not self.rounds:
                return (real.astype(np.float32),)
            y_scale, y_zero = inputs[self.own - 2 : self.own]
            return (saturated(real / y_scale.astype(np.float32), y_zero, self.to),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return self.product.flops(inputs[:2], outputs)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return self.product.workspace(inputs[:2], outputs)

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return self.product.unread(inputs[:2])
