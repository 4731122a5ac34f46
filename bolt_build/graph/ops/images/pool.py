"""Windowed pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.graph.ops.operands import expect_count
from bolt_build.graph.ops.products.conv import import_window
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import image_by_image
from bolt_build.graph.windows import Windowed, Windows


@dataclass(frozen=True)
class Pool(Windowed, Op):
    """Input [N,C,*spatial], output [N,C,*out]. `mode` is "max" or "average". ONNX MaxPool, AveragePool.

    With `ceil_mode` the output size rounds up, but a window never starts beyond the input and its begin padding
    (ONNX's rule). `count_include_pad` divides by the window's cells that lie inside input and padding.
    """

    kind = "pool"
    mode: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False
    count_include_pad: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if self.mode not in ("max", "average"):
            raise ShapeError(f"mode '{self.mode}' is neither 'max' nor 'average'")
        return (TensorType(x.dtype, self.pooled(x)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        values, windows = widened(x), self.windows
        out = windows.output_shape(x.shape[2:])
        taps = tuple(range(-len(out), 0))
        if self.mode == "max":
            lowest = -np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).min
            return (narrowed(windows.view(windows.pad(values, out, lowest), out).max(axis=taps), x.dtype),)
        total = windows.view(windows.pad(values, out, 0.0), out).sum(axis=taps)
        with np.errstate(invalid="ignore"):
            return (narrowed(total / self._cells(x.shape[2:], out), x.dtype),)

    def _cells(self, spatial: tuple[int, ...], out: tuple[int, ...]) -> Array:
        """What each window's sum is divided by, [1,1,*out]."""
        windows = self.windows
        ones = np.ones((1, 1, *spatial))
        if self.count_include_pad:
            ones = np.pad(ones, [(0, 0), (0, 0), *zip(self.pads_begin, self.pads_end, strict=True)], constant_values=1)
            bare = Windows(self.kernel, self.strides, (0,) * len(out), (0,) * len(out), self.dilations)
            ones = bare.pad(ones, out, 0.0)
        else:
            ones = windows.pad(ones, out, 0.0)
        counts: Array = windows.view(ones, out).sum(axis=tuple(range(-len(out), 0)))
        return counts

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].elements * prod(self.kernel)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """With the padded input."""
        x = inputs[0]
        padded = prod(x.shape[:2]) * self.windows.padded_cells(x.shape[2:])
        return super().workspace(inputs, outputs) + padded

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)


def import_pool(node: NodeImport) -> None:
    window = import_window(node)
    mode = "max" if node.node.op_type == "MaxPool" else "average"
    ceil, include = bool(node.integer("ceil_mode", 0)), bool(node.integer("count_include_pad", 0))
    pool, stored = Pool(mode, *window, ceil, include), node.type(0).dtype
    if stored in (DType.I8, DType.U8):  # every precision holds them as they are
        real = node.emit(Cast(DType.F32), [node.input(0)])
        node.emit(Cast(stored), [node.emit(pool, [real])], 0)
    else:
        node.emit(pool, [node.input(0)], 0)
    if len(node.node.outputs) > 1 and node.node.outputs[1]:
        places = PoolPlaces(*window, ceil, bool(node.integer("storage_order", 0)))
        node.emit(places, [node.input(0)], 1)


_POOLED = Example((Data(IMAGE),), (("kernel_shape", (2, 2)),))

IMPORTERS = (
    Importer(
        "MaxPool",
        (1, 8, 10, 11, 12, 22),
        import_pool,
        ignores=("storage_order",),
        example=_POOLED,
    ),
    Importer("AveragePool", (7, 10, 11, 19, 22), import_pool, example=_POOLED),
)
