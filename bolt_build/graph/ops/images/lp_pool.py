"""Pooling by a norm of each window: LpPool and GlobalLpPool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.ops.products.conv import import_window
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import image_by_image
from bolt_build.graph.windows import Windowed


@dataclass(frozen=True)
class LpPool(Windowed, Op):
    """Input [N,C,*spatial], output [N,C,*out]: the p-th root of the sum of |x|^p over each window; padding is 0."""

    kind = "lp_pool"
    reads_input = False
    p: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        expect_float(x)
        if self.p < 1:
            raise ShapeError(f"p is {self.p}, but norms begin at 1")
        return (TensorType(x.dtype, self.pooled(x)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        windows = self.windows
        out = windows.output_shape(x.shape[2:])
        with np.errstate(all="ignore"):
            powers = np.abs(widened(x)) ** self.p
            total = windows.view(windows.pad(powers, out, 0.0), out).sum(axis=tuple(range(-len(out), 0)))
            return (narrowed(total ** (1.0 / self.p), x.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * prod(self.kernel)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """With the padded input."""
        x = inputs[0]
        return super().workspace(inputs, outputs) + prod(x.shape[:2]) * self.windows.padded_cells(x.shape[2:])

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)


def import_lp_pool(node: NodeImport) -> None:
    window = import_window(node)
    op = LpPool(node.integer("p", 2), *window, bool(node.integer("ceil_mode", 0)))
    node.emit(op, [node.input(0)], 0)


def import_global_lp_pool(node: NodeImport) -> None:
    spatial = node.type(0).shape[2:]
    ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
    node.emit(LpPool(node.integer("p", 2), spatial, ones, zeros, zeros, ones), [node.input(0)], 0)


IMPORTERS = (
    Importer("LpPool", (2, 11, 18, 22), import_lp_pool, example=Example((Data(IMAGE),), (("kernel_shape", (2, 2)),))),
    Importer("GlobalLpPool", (2, 22), import_global_lp_pool),
)
