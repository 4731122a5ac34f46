"""Patches of an image that are put back at their places, and added up where they overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float


@dataclass(frozen=True)
class PatchSum(Op):
    """Input [N, C * cells of `block`, places], output [N, C, *image]: each cell of the image is the sum of the elements
    that patches have of it, 0 where none has one. Patches begin `strides` apart, the first of them `pads` outside of
    the image; their cells lie `dilations` apart. What falls outside is left out."""

    kind = "patch_sum"
    shaped = True
    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    counts: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        expect_float(x)
        if (
            len({len(each) for each in (self.image, self.block, self.strides, self.dilations, self.pads, self.counts)})
            > 1
        ):
            raise ShapeError("an image and its patches have different numbers of axes")
        taps, places = prod(self.block), prod(self.counts)
        if x.rank != 3 or x.shape[2] != places or x.shape[1] % taps:
            raise ShapeError(f"{list(x.shape)} are no patches {list(self.block)} at {list(self.counts)} places")
        return (TensorType(x.dtype, (x.shape[0], x.shape[1] // taps, *self.image)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        batch, rows, _ = x.shape
        channels = rows // prod(self.block)
        patches = widened(x).reshape(batch, channels, *self.block, *self.counts)
        added = np.zeros((batch, channels, *self.image), patches.dtype)
        with np.errstate(all="ignore"):
            for tap in np.ndindex(*self.block):
                places = [self._places(axis, cell) for axis, cell in enumerate(tap)]
                own = patches[(slice(None), slice(None), *tap)]
                for axis, (given, _) in enumerate(places, 2):
                    own = own.take(given, axis)
                added[np.ix_(np.arange(batch), np.arange(channels), *(to for _, to in places))] += own
        return (narrowed(added, x.dtype),)

    def _places(self, axis: int, cell: int) -> tuple[Array, Array]:
        """Patches along an axis whose cell lies in the image, and where."""
        at = np.arange(self.counts[axis]) * self.strides[axis] + cell * self.dilations[axis] - self.pads[axis]
        inside = (at >= 0) & (at < self.image[axis])
        return np.flatnonzero(inside), at[inside]

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * inputs[0].elements + outputs[0].elements
