"""Products and convolutions of small integers, exactly: sums are int32, which wraps around as hardware does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.tail import Padded, PaddingReaches, Tails
from bolt_build.graph.tail_rules import image_by_image

FACTORS = (DType.I8, DType.U8)


def _expect_factor(t: TensorType, zero: TensorType) -> None:
    if t.dtype not in FACTORS:
        raise ShapeError(f"multiplies i8 and u8, not {t.dtype.value}")
    if zero.dtype is not t.dtype:
        raise ShapeError(f"the zero point of {t.dtype.value} is of {zero.dtype.value}")


def _expect_zeros(t: TensorType, count: int, what: str) -> None:
    if t.shape not in ((), (count,)):
        raise ShapeError(f"zero points {list(t.shape)} must be one, or [{count}], one a {what}")


def _wrapped(exact: Array) -> Array:
    """float64 sums, exact below 2^53, as int32."""
    return np.asarray(exact.astype(np.int64).astype(np.int32))


@dataclass(frozen=True)
class IntegerMatMul(Op):
    """Inputs a [...,M,K] ([...,K,M] if transpose_a), b [...,K,N] ([...,N,K] if transpose_b), both of i8 or u8, the zero
    point of a ([] or [M]) and that of b ([] or [N]); output int32: the product of both less their zero points."""

    kind = "integer-matmul"
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def product(self) -> MatMul:
        """The same of real numbers."""
        return MatMul(self.transpose_a, self.transpose_b)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 4)
        a, b, a_zero, b_zero = inputs
        _expect_factor(a, a_zero)
        _expect_factor(b, b_zero)
        (result,) = self.product.infer([TensorType(DType.F32, each.shape) for each in (a, b)])
        _expect_zeros(a_zero, result.shape[-2], "row")
        _expect_zeros(b_zero, result.shape[-1], "column")
        return (TensorType(DType.I32, result.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        a, b, a_zero, b_zero = (each.astype(np.float64) for each in inputs)
        rows = a_zero if not a_zero.ndim else a_zero[None, :] if self.transpose_a else a_zero[:, None]
        columns = b_zero if not b_zero.ndim else b_zero[:, None] if self.transpose_b else b_zero[None, :]
        (exact,) = self.product.evaluate([a - rows, b - columns])
        return (_wrapped(exact),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return self.product.flops(inputs[:2], outputs)

    def tails(self, node: Node, at: Padded) -> Tails:
        """A padded integer is no zero of the product unless the zero point says so: sums over it are refused."""
        for side, turned in ((0, self.transpose_a), (1, self.transpose_b)):
            rank = len(at.shape(node.inputs[side]))
            depth = rank - 1 if (side == 0) != turned else rank - 2
            if any(at.axis(node.inputs[side], step) == depth for step in at.tails(node.inputs[side])):
                raise PaddingReaches("adds up over it, and padding counts")
        return self.product.tails(node, at)


@dataclass(frozen=True)
class IntegerConv(Op):
    """Inputs x [N,C,*spatial] and w [K,C/groups,*kernel], both of i8 or u8, the zero point of x ([]) and that of w ([]
    or [K]), optionally bias [K] of int32; output [N,K,*out] of int32. Pads are x's zero point."""

    kind = "integer-conv"
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    @property
    def product(self) -> Conv:
        """The same of real numbers."""
        return Conv(self.strides, self.pads_begin, self.pads_end, self.dilations, self.groups)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 4, 5)
        x, w, x_zero, w_zero, *bias = inputs
        _expect_factor(x, x_zero)
        _expect_factor(w, w_zero)
        for each in bias:
            if each.dtype is not DType.I32:
                raise ShapeError(f"the bias is of {each.dtype.value}, not of i32")
        (result,) = self.product.infer([TensorType(DType.F32, each.shape) for each in (x, w, *bias)])
        if x_zero.shape != ():
            raise ShapeError(f"the input has one zero point, not {list(x_zero.shape)}")
        _expect_zeros(w_zero, w.shape[0], "filter")
        return (TensorType(DType.I32, result.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, w, x_zero, w_zero, *bias = (each.astype(np.float64) for each in inputs)
        filters = w_zero.reshape(-1, *(1,) * (w.ndim - 1))
        (exact,) = self.product.evaluate([x - x_zero, w - filters, *bias])
        return (_wrapped(exact),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return self.product.flops(inputs[:2], outputs)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return self.product.workspace(inputs, outputs)

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return self.product.unread(inputs)

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)
