"""Sliding windows over spatial axes, as convolution and pooling share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import ClassVar

import numpy as np

from bolt_build.graph.ir import Array, ShapeError, TensorType
from bolt_build.graph.limits import MOST_EXTENT


@dataclass(frozen=True)
class Windows:
    """A window and how it moves: one entry a spatial axis in every tuple."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def reach(self) -> tuple[int, ...]:
        """Cells from a window's first to its last, both counted."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def check(self, rank: int) -> None:
        """Raises ShapeError where an attribute does not have `rank` entries or has a value without meaning."""
        for name, least in (("kernel", 1), ("strides", 1), ("pads_begin", 0), ("pads_end", 0), ("dilations", 1)):
            entries = getattr(self, name)
            if len(entries) != rank:
                raise ShapeError(f"{name} {list(entries)} has {len(entries)} entries for {rank} spatial axes")
            if any(not least <= entry <= MOST_EXTENT for entry in entries):
                raise ShapeError(f"{name} {list(entries)} must be {least} to {MOST_EXTENT} on every axis")

    def output_shape(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Output extents for input extents `spatial`. Raises ShapeError where no window fits."""
        return tuple(self._extent(axis, extent) for axis, extent in enumerate(spatial))

    def _extent(self, axis: int, extent: int) -> int:
        padded = extent + self.pads_begin[axis] + self.pads_end[axis]
        reach, stride = self.reach[axis], self.strides[axis]
        if padded < reach:
            raise ShapeError(
                f"a window of {reach} does not fit the {padded} cells of spatial axis {axis} (padding included)"
            )
        if not self.ceil_mode:
            return (padded - reach) // stride + 1
        count = -(-(padded - reach) // stride) + 1
        starts_beyond = (count - 1) * stride >= extent + self.pads_begin[axis]
        return count - 1 if starts_beyond else count

    def touched(self, spatial: Sequence[int]) -> int:
        """Cells of an input of extents `spatial` that lie in some window. What it costs does not depend on extents."""
        found = 1
        for axis, (extent, count) in enumerate(zip(spatial, self.output_shape(spatial), strict=True)):
            steps = Steps(count, self.strides[axis], self.kernel[axis], self.dilations[axis])
            begin = self.pads_begin[axis]
            found *= steps.places_below(begin + extent) - steps.places_below(begin)
        return found

    def padded_cells(self, spatial: Sequence[int]) -> int:
        """Cells of one channel as `pad` makes it."""
        cells = zip(spatial, self.pads_begin, self.pads_end, self.reach, self.strides, strict=True)
        return prod(extent + begin + end + reach + stride for extent, begin, end, reach, stride in cells)

    def view(self, padded: Array, out: Sequence[int]) -> Array:
        """`padded` [N,C,*spatial] seen as [N,C,*out,*kernel], without a copy."""
        spatial = padded.strides[2:]
        moves = tuple(s * stride for s, stride in zip(spatial, self.strides, strict=True))
        taps = tuple(s * dilation for s, dilation in zip(spatial, self.dilations, strict=True))
        return np.lib.stride_tricks.as_strided(
            padded,
            shape=(*padded.shape[:2], *out, *self.kernel),
            strides=(*padded.strides[:2], *moves, *taps),
            writeable=False,
        )

    def pad(self, x: Array, out: Sequence[int], value: float) -> Array:
        """`x` [N,C,*spatial] with its padding, and behind it what the last window of a ceil_mode needs."""
        widths = [(0, 0), (0, 0)]
        for axis, extent in enumerate(x.shape[2:]):
            needed = (out[axis] - 1) * self.strides[axis] + self.reach[axis]
            begin = self.pads_begin[axis]
            widths.append((begin, max(self.pads_end[axis], needed - extent - begin)))
        return np.pad(x, widths, constant_values=value)


@dataclass(frozen=True)
class Steps:
    """The places i * stride + j * dilation of one axis, for i below `count` and j below `taps`; all are positive."""

    count: int
    stride: int
    taps: int
    dilation: int

    def places_below(self, limit: int) -> int:
        """How many different places are less than `limit`.

        With both moves divided by what they share, (i, j) and (i + dilation, j - stride) are one place, and no other
        pairs are. So each place has one pair from which neither step back leads to a pair, and what is to be counted
        are all pairs but those with a pair in front of them: which are a smaller grid, moved.
        """
        shared = gcd(self.stride, self.dilation)
        stride, dilation = self.stride // shared, self.dilation // shared
        limit = -(-limit // shared)
        every = _pairs_below(self.count, stride, self.taps, dilation, limit)
        again = _pairs_below(self.count - dilation, stride, self.taps - stride, dilation, limit - stride * dilation)
        return every - again


def _pairs_below(count: int, stride: int, taps: int, dilation: int, limit: int) -> int:
    """Pairs (i, j) with 0 <= i < count, 0 <= j < taps and i * stride + j * dilation < limit."""
    if count <= 0 or taps <= 0 or limit <= 0:
        return 0
    some = min(count, -(-limit // stride))
    full = min(some, max(0, -(-(limit - (taps - 1) * dilation) // stride)))
    # For i from full to some - 1, taken from the last: ceil((limit - i * stride) / dilation) taps each.
    last = limit - (some - 1) * stride
    return full * taps + _sum_of_quotients(some - full, stride, last + dilation - 1, dilation)


def _sum_of_quotients(count: int, step: int, first: int, divisor: int) -> int:
    """The sum of (first + i * step) // divisor for i below `count`, in as many rounds as Euclid's algorithm takes."""
    total, sign = 0, 1
    while count > 0:
        total += sign * (count * (count - 1) // 2 * (step // divisor) + count * (first // divisor))
        step, first = step % divisor, first % divisor
        most = (first + (count - 1) * step) // divisor
        if not most:
            break
        # Points under the line, counted by rows in place of columns: those of the whole rectangle less those above it.
        total += sign * most * count
        count, step, first, divisor, sign = most, divisor, divisor - first + step - 1, step, -sign
    return total


def auto_pads(
    auto_pad: str, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Begin and end pads of ONNX's `auto_pad` "SAME_UPPER", "SAME_LOWER" or "VALID" for input extents `spatial`."""
    if auto_pad == "VALID":
        return (0,) * len(spatial), (0,) * len(spatial)
    begin, end = [], []
    for extent, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        count = -(-extent // stride)
        total = max((count - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        less, more = total // 2, total - total // 2
        begin.append(more if auto_pad == "SAME_LOWER" else less)
        end.append(less if auto_pad == "SAME_LOWER" else more)
    return tuple(begin), tuple(end)


class Windowed:
    """What operators have in common whose window moves over [N,C,*spatial]: their fields are those of `Windows`.
    `reads_input`: no window may lie in the padding alone, where there is no result for it."""

    reads_input: ClassVar[bool] = True
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool

    @property
    def windows(self) -> Windows:
        """The window that moves over the input."""
        return Windows(self.kernel, self.strides, self.pads_begin, self.pads_end, self.dilations, self.ceil_mode)

    def pooled(self, x: TensorType) -> tuple[int, ...]:
        """The output's shape [N,C,*out] for the input `x`. Raises ShapeError."""
        if x.rank < 3:
            raise ShapeError(f"input {list(x.shape)} must have batch, channels and at least one spatial axis")
        self.windows.check(x.rank - 2)
        for pads in (self.pads_begin, self.pads_end) if self.reads_input else ():
            if any(pad >= k for pad, k in zip(pads, self.kernel, strict=True)):
                raise ShapeError(f"pads {list(pads)} must be smaller than the kernel {list(self.kernel)}")
        return (*x.shape[:2], *self.windows.output_shape(x.shape[2:]))

    def unread(self, inputs: Sequence[TensorType]) -> int:
        """Elements of the input that no window has."""
        x = inputs[0]
        return x.elements - prod(x.shape[:2]) * self.windows.touched(x.shape[2:])
