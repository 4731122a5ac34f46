"""Where in its input each result of a max pooling was found: MaxPool's second output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import widened
from bolt_build.graph.ir import Array, Op, TensorType
from bolt_build.graph.ops.operands import expect_count
from bolt_build.graph.windows import Windowed


@dataclass(frozen=True)
class PoolPlaces(Windowed, Op):
    """Input [N,C,*spatial], output int64 [N,C,*out]: the place of each window's first greatest element in the whole
    input, counted row by row, or where `column_major` with the first spatial axis fastest within a channel."""

    kind = "pool_places"
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False
    column_major: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        return (TensorType(DType.I64, self.pooled(x)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, spatial = widened(inputs[0]), inputs[0].shape[2:]
        if x.dtype.kind == "f":
            x, lowest = np.where(np.isnan(x), -np.inf, x), -np.inf
        else:
            lowest = float(np.iinfo(x.dtype).min)
        windows, out = self.windows, self.windows.output_shape(spatial)
        places = np.arange(prod(spatial)).reshape(spatial, order="F" if self.column_major else "C")
        shape = (*inputs[0].shape[:2], *out, prod(self.kernel))
        cells = windows.view(windows.pad(x, out, lowest), out).reshape(shape)
        named = windows.view(windows.pad(places[None, None], out, -1.0), out).reshape(1, 1, *out, prod(self.kernel))
        # Cells of the padding stand behind all others.
        order = np.argsort(named < 0, axis=-1, kind="stable")
        best = np.argmax(np.take_along_axis(cells, np.broadcast_to(order, shape), -1), -1)[..., None]
        found = np.take_along_axis(np.broadcast_to(np.take_along_axis(named, order, -1), shape), best, -1)[..., 0]
        images = np.arange(prod(shape[:2])).reshape(*shape[:2], *(1,) * len(out))
        return (np.asarray(found + images * prod(spatial), np.int64),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].elements * prod(self.kernel)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """With the windows of the input and of the places, and the order of their cells."""
        taken = outputs[0].elements * prod(self.kernel)
        return super().workspace(inputs, outputs) + 4 * taken
