"""Images made larger and smaller in one step: along one axis, or along two that lie beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_axis, expect_count, expect_float, expect_indices
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import image_by_image


@dataclass(frozen=True)
class Resample(Op):
    """Of inputs (data, and for each of `axes` first [results] of i64 and weights [results, taps]): along an axis result
    i is the sum over taps t of weights[i, t] times the data at first[i] + t, or at the edge that is nearest to it.

    No model has the operator; a pass makes it of interpolations. Nothing is rounded between the axes.
    """

    kind = "resample"
    axes: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(self.axes) not in (1, 2) or self.axes != tuple(range(self.axes[0], self.axes[0] + len(self.axes))):
            raise ShapeError(f"axes {list(self.axes)} are neither one nor two beside each other")
        expect_count(inputs, 1 + 2 * len(self.axes))
        data, *tables = inputs
        expect_float(data)
        shape = list(data.shape)
        for axis, first, weights in zip(self.axes, tables[::2], tables[1::2], strict=True):
            expect_axis(axis, data)
            expect_indices(first)
            expect_float(weights)
            if weights.rank != 2 or first.shape != weights.shape[:1] or 0 in weights.shape:
                raise ShapeError(f"{list(first.shape)} places do not have weights {list(weights.shape)}")
            shape[axis] = first.shape[0]
        return (TensorType(data.dtype, tuple(shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        data, *tables = inputs
        found = widened(data)
        for axis, first, weights in zip(self.axes, tables[::2], tables[1::2], strict=True):
            places = np.clip(first[:, None] + np.arange(weights.shape[1]), 0, data.shape[axis] - 1)
            taken = np.take(found, places, axis=axis)
            found = (taken * widened(weights).reshape(*weights.shape, *(1,) * (data.ndim - axis - 1))).sum(axis + 1)
        return (narrowed(found, data.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Of one axis after the other, the last one first: a row of the input is interpolated once."""
        (made,), shape, total = outputs, list(inputs[0].shape), 0
        for axis, weights in reversed(tuple(zip(self.axes, inputs[2::2], strict=True))):
            shape[axis] = made.shape[axis]
            total += 2 * prod(shape) * weights.shape[1]
        return total

    def ascending(self, inputs: Sequence[TensorType]) -> Mapping[int, tuple[int, int]]:
        """Places where results begin: half of the neighbours of the first and of the last result are outside."""
        data, *tables = inputs
        found = {}
        for at, (axis, weights) in enumerate(zip(self.axes, tables[1::2], strict=True)):
            taps = weights.shape[1]
            found[1 + 2 * at] = (-(taps // 2), data.shape[axis] - (taps + 1) // 2)
        return found

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)
