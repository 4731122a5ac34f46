"""Numbers as small integers and back: real = (stored - zero point) * scale.

All of it is computed in fp32, whatever the layer's precision: quotients are rounded to the nearest integer, halves to
the even one, and end at the limits of the integers' type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.arrays import held_dtype, narrowed, numpy_dtype
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import broadcast, expect_count
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import elementwise

INTEGERS = (DType.I8, DType.U8, DType.I16, DType.U16)
"""What numbers are quantised to."""
STEPS = 255
"""Steps of a range that is found at run time: those of uint8."""


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min), int(info.max)


def saturated(quotient: Array, zero: Array, to: DType) -> Array:
    """The integers next to `quotient` (fp32), moved by `zero`; NaN becomes the zero point."""
    rounded = np.rint(np.nan_to_num(quotient, nan=0.0, posinf=np.inf, neginf=-np.inf)) + zero.astype(np.float32)
    return np.asarray(np.clip(rounded, *limits(to)).astype(numpy_dtype(to)))


class _Quantised(Op):
    """What lies on the elements of input 0; the others broadcast to it."""

    def _shape(self, inputs: Sequence[TensorType]) -> tuple[int, ...]:
        x = inputs[0].shape
        for other in inputs[1:]:
            if broadcast(x, other.shape) != x:
                raise ShapeError(f"{list(other.shape)} does not broadcast to {list(x)}")
        return x

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at)


def _expect(t: TensorType, dtypes: Sequence[DType], what: str) -> None:
    if t.dtype not in dtypes:
        raise ShapeError(f"{what} is of {t.dtype.value}, not of {', '.join(dtype.value for dtype in dtypes)}")


_REAL = tuple(PRECISIONS.values())
_SCALED = (*INTEGERS, DType.I32)


@dataclass(frozen=True)
class Quantize(_Quantised):
    """Inputs x (floating point or int32), scale and zero point (of `to`): round(x / scale) + zero point."""

    kind = "quantize"
    scales = (1,)
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        x, scale, zero = inputs
        _expect(x, (*_REAL, DType.I32), "what is quantised")
        _expect(scale, _REAL, "the scale")
        _expect(zero, (self.to,), "the zero point")
        _expect(zero, INTEGERS, "the result")
        return (TensorType(self.to, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, scale, zero = inputs
        with np.errstate(all="ignore"):
            return (saturated(x.astype(np.float32) / scale.astype(np.float32), zero, self.to),)


@dataclass(frozen=True)
class Dequantize(_Quantised):
    """Inputs q, scale and zero point (of q's type): (q - zero point) * scale, of `to`."""

    kind = "dequantize"
    scales = (1,)
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        q, scale, zero = inputs
        _expect(q, _SCALED, "what is dequantised")
        _expect(scale, _REAL, "the scale")
        _expect(zero, (q.dtype,), "the zero point")
        if self.to not in _REAL:
            raise ShapeError(f"makes floating-point numbers, not {self.to.value}")
        return (TensorType(self.to, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        q, scale, zero = inputs
        with np.errstate(all="ignore"):
            real = (q.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale.astype(np.float32)
        return (narrowed(real, held_dtype(self.to)),)


@dataclass(frozen=True)
class FakeQuantize(_Quantised):
    """`Quantize` to `to` and `Dequantize` behind it, with the same scale and zero point: numbers remain, on a grid."""

    kind = "fake-quantize"
    scales = (1,)
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        Quantize(self.to).infer(inputs)
        _expect(inputs[0], _REAL, "what is rounded")
        return (TensorType(inputs[0].dtype, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, scale, zero = inputs
        (q,) = Quantize(self.to).evaluate(inputs)
        real = (q.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale.astype(np.float32)
        return (narrowed(real, x.dtype),)


@dataclass(frozen=True)
class Requantize(_Quantised):
    """Inputs sums (int32), the scales of both factors and of the result, and its zero point (of `to`):
    round(sums * (a * b / y)) + zero point."""

    kind = "requantize"
    scales = (1, 2, 3)
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 5)
        sums, *scales, zero = inputs
        _expect(sums, (DType.I32,), "what is scaled")
        for scale in scales:
            _expect(scale, _REAL, "a scale")
        _expect(zero, (self.to,), "the zero point")
        _expect(zero, INTEGERS, "the result")
        return (TensorType(self.to, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        sums, a, b, y = (each.astype(np.float32) for each in inputs[:4])
        with np.errstate(all="ignore"):
            return (saturated(sums * (a * b / y), inputs[4], self.to),)


@dataclass(frozen=True)
class ScaleSums(_Quantised):
    """Inputs sums (int32), the scales of both factors and optionally a bias: sums * (a * b) + bias, of `to`."""

    kind = "scale-sums"
    scales = (1, 2, 3)
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3, 4)
        _expect(inputs[0], (DType.I32,), "what is scaled")
        for scale in inputs[1:]:
            _expect(scale, _REAL, "a scale")
        if self.to not in _REAL:
            raise ShapeError(f"makes floating-point numbers, not {self.to.value}")
        return (TensorType(self.to, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        sums, a, b, *bias = (each.astype(np.float32) for each in inputs)
        with np.errstate(all="ignore"):
            real = sums * (a * b)
            return (narrowed(real + bias[0] if bias else real, held_dtype(self.to)),)


class _OfRange(_Quantised):
    """What lies between the least and the largest number of a tensor, and zero, in 255 steps."""

    def _range(self, least: Array, most: Array) -> tuple[Array, Array]:
        """Scale and zero point, as numbers of fp32: a scale of 1 where all is zero, as onnxruntime has it."""
        low, high = np.minimum(least.astype(np.float32), 0), np.maximum(most.astype(np.float32), 0)
        width = np.asarray(high - low, np.float32)
        with np.errstate(all="ignore"):
            scale = np.where(width == 0, np.float32(1), width / np.float32(STEPS))
            return scale, np.rint(np.clip(-low / scale, 0, STEPS))


@dataclass(frozen=True)
class RangeScale(_OfRange):
    """Inputs the least and the largest number of a tensor; the scale of uint8 for all of it."""

    kind = "range-scale"
    scales = (0, 1, -1)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        for each in inputs:
            _expect(each, _REAL, "a limit")
        return (TensorType(inputs[0].dtype, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        least, most = inputs
        return (self._range(least, most)[0],)


@dataclass(frozen=True)
class RangeZero(_OfRange):
    """Inputs the least and the largest number of a tensor; the zero point of uint8 for all of it."""

    kind = "range-zero"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        for each in inputs:
            _expect(each, _REAL, "a limit")
        return (TensorType(DType.U8, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (self._range(*inputs)[1].astype(np.uint8),)


@dataclass(frozen=True)
class RangeQuantize(_OfRange):
    """Inputs x, and its least and largest number: x as uint8, with their scale and zero point.

    It has the limits in place of the scale, because every precision holds numbers of x as they are, and no scale.
    """

    kind = "range-quantize"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        for each in inputs:
            _expect(each, _REAL, "what is quantised")
        return (TensorType(DType.U8, self._shape(inputs)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, least, most = inputs
        scale, zero = self._range(least, most)
        with np.errstate(all="ignore"):
            return (saturated(x.astype(np.float32) / scale, zero, DType.U8),)
