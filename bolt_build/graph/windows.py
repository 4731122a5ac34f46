"""Sliding windows over spatial axes, as convolution and pooling share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.ir import Array, ShapeError


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
            if any(entry < least for entry in entries):
                raise ShapeError(f"{name} {list(entries)} must be at least {least} on every axis")

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
        """Cells of an input of extents `spatial` that lie in some window."""
        found = 1
        for axis, (extent, count) in enumerate(zip(spatial, self.output_shape(spatial), strict=True)):
            first, stride = -self.pads_begin[axis], self.strides[axis]
            starts = range(first, first + count * stride, stride)
            taps = range(0, self.reach[axis], self.dilations[axis])
            found *= len({start + tap for start in starts for tap in taps if 0 <= start + tap < extent})
        return found

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
