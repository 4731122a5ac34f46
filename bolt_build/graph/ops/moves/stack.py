"""What makes convolutions of few axes of those of many: windows along one axis become channels, and images are those of
all depths.

No model has these operators. Passes put them in front of convolutions and behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count


class _Moves(Op):
    """No floating-point operations, and no wider types."""

    moves = True

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0


@dataclass(frozen=True)
class Stack(_Moves):
    """x [N,C,...,A,...] to [N,channels,...,extent,...]: channel c * count + j of position q along `axis` is channel c
    of position q * stride + j * dilation - begin, zero where that lies outside; so are channels from C * count on.

    A convolution's window along the axis is thus channels of one position.
    """

    kind = "stack"
    axis: int
    count: int
    stride: int
    dilation: int
    begin: int
    extent: int
    channels: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if not 2 <= self.axis < x.rank:
            raise ShapeError(f"axis {self.axis} is no spatial axis of {list(x.shape)}")
        if min(self.count, self.stride, self.dilation, self.extent) < 1 or self.begin < 0:
            raise ShapeError("count, stride, dilation and extent must be at least 1, begin at least 0")
        if self.channels < x.shape[1] * self.count:
            raise ShapeError(f"{x.shape[1]} channels {self.count} times are more than {self.channels}")
        shape = [*x.shape]
        shape[1], shape[self.axis] = self.channels, self.extent
        return (TensorType(x.dtype, tuple(shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        reach = (self.extent - 1) * self.stride + (self.count - 1) * self.dilation + 1
        widths = [(0, 0)] * x.ndim
        widths[self.axis] = (self.begin, max(0, reach - self.begin - x.shape[self.axis]))
        padded = np.pad(x, widths)
        places = [np.arange(self.extent) * self.stride + j * self.dilation for j in range(self.count)]
        stacked = np.stack([padded.take(place, self.axis) for place in places], 2)
        y = stacked.reshape(x.shape[0], -1, *stacked.shape[3:])
        widths = [(0, 0), (0, self.channels - y.shape[1]), *[(0, 0)] * (y.ndim - 2)]
        return (np.pad(y, widths),)


@dataclass(frozen=True)
class FoldDepth(_Moves):
    """x [N,C,D,*rest] to [N * D,C,*rest]: each depth is an image. Channels last no element moves."""

    kind = "fold-depth"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if x.rank < 4:
            raise ShapeError(f"{list(x.shape)} has no depth beside rows or columns")
        return (TensorType(x.dtype, (x.shape[0] * x.shape[2], x.shape[1], *x.shape[3:])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        shape = (x.shape[0] * x.shape[2], x.shape[1], *x.shape[3:])
        return (np.ascontiguousarray(np.moveaxis(x, 2, 1)).reshape(shape),)


@dataclass(frozen=True)
class UnfoldDepth(_Moves):
    """x [N * depth,C,*rest] to [N,C,depth,*rest]: what `FoldDepth` folded."""

    kind = "unfold-depth"
    depth: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if x.rank < 3 or self.depth < 1 or x.shape[0] % self.depth:
            raise ShapeError(f"the images of {list(x.shape)} are no whole multiples of {self.depth} depths")
        return (TensorType(x.dtype, (x.shape[0] // self.depth, x.shape[1], self.depth, *x.shape[2:])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        split = x.reshape(x.shape[0] // self.depth, self.depth, *x.shape[1:])
        return (np.ascontiguousarray(np.moveaxis(split, 1, 2)),)


def around_axis(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Positions in front of a spatial axis, along it and behind it."""
    return prod(shape[2:axis]), shape[axis], prod(shape[axis + 1 :])
