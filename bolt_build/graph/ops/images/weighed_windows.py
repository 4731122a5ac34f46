"""Windows of an image times filters that are data: of each image, or of each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float


@dataclass(frozen=True)
class WeighedWindows(Op):
    """Input 0 is x [N, C, H, W], input 1 has filters [N or 1, S * taps, H' or 1, W' or 1], output [N, C, H', W'].

    Channel c of the result is the sum over taps of c's windows times filter c // `shared` % S. A window has `kernel`
    rows and columns; outside of x are zeros. Filters of one row and column are those of every pixel. Elements of a
    filter are neighbours; where filters are `turned` those of a tap are, and input 1 has [.., taps * S, ..].

    For example depthwise convolutions whose filters each image mixes (CondConv) or a template makes (trackers), and
    filters that a network predicts for each pixel (involution, LSNet, kernel prediction). No model has the operator; a
    pass makes it.
    """

    kind = "weighed_windows"
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads_begin: tuple[int, int] = (0, 0)
    pads_end: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    shared: int = 1
    turned: bool = False

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        x, filters = inputs
        expect_float(x)
        expect_float(filters)
        if x.rank != 4 or filters.rank != 4:
            raise ShapeError(f"{list(x.shape)} and {list(filters.shape)} are not an image and filters of four axes")
        out = tuple(
            (extent + begin + end - dilation * (taps - 1) - 1) // stride + 1
            for extent, begin, end, dilation, taps, stride in zip(
                x.shape[2:], self.pads_begin, self.pads_end, self.dilations, self.kernel, self.strides, strict=True
            )
        )
        sets = filters.shape[1] // self.taps
        if min(out) < 1:
            raise ShapeError(f"a window of {list(self.kernel)} is larger than {list(x.shape[2:])} with its padding")
        if not sets or filters.shape[1] % self.taps or x.shape[1] % (sets * self.shared):
            raise ShapeError(f"{filters.shape[1]} elements are no filters of {self.taps} for {x.shape[1]} channels")
        if any(have not in (1, need) for have, need in zip(filters.shape[2:], out, strict=True)):
            raise ShapeError(f"filters of {list(filters.shape[2:])} pixels do not fit {list(out)}")
        if filters.shape[0] not in (1, x.shape[0]):
            raise ShapeError(f"filters of {filters.shape[0]} images do not fit {x.shape[0]}")
        return (TensorType(x.dtype, (*x.shape[:2], *out)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        given = [TensorType(DType.F32, each.shape) for each in inputs]
        (type_,) = self.infer(given)
        x, filters = map(widened, inputs)
        channels, (height, width) = x.shape[1], type_.shape[2:]
        pads = tuple(zip(self.pads_begin, self.pads_end, strict=True))
        x = np.pad(x, ((0, 0), (0, 0), *pads))
        sets = filters.shape[1] // self.taps
        if self.turned:
            own = filters.reshape(filters.shape[0], self.taps, sets, *filters.shape[2:]).swapaxes(1, 2)
        else:
            own = filters.reshape(filters.shape[0], sets, self.taps, *filters.shape[2:])
        of_channel = np.arange(channels) // self.shared % sets
        total = np.zeros(type_.shape, x.dtype)
        for tap, (row, column) in enumerate(product(*map(range, self.kernel))):
            top, left = row * self.dilations[0], column * self.dilations[1]
            down, across = self.strides
            cut = x[:, :, top : top + down * (height - 1) + 1 : down, left : left + across * (width - 1) + 1 : across]
            total += cut * own[:, of_channel, tap]
        return (narrowed(total, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * self.taps
