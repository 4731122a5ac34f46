"""Images and volumes read at places that are data: ONNX's GridSample, and the AffineGrid that makes such places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, numpy_dtype, widened
from bolt_build.graph.example import IMAGE, Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tails

MODES = {"nearest": 1, "linear": 2, "cubic": 4}
"""How many neighbours along each axis make an element."""
PADDINGS = ("zeros", "border", "reflection")

FAR = 2.0**20
"""Places beyond are as good as there, and NaN is in front of everything. Networks that divide by an extent less one
have such places where the extent is one: there every place is the one element."""
_A = -0.75
"""Of the cubic kernel, as in ONNX."""


@dataclass(frozen=True)
class GridSample(Op):
    """Inputs x [N,C,*spatial] of up to three spatial axes and grid [N,*out,axes], output [N,C,*out]: x at the places of
    the grid, whose last axis counts the innermost spatial axis first, from -1 to 1: between the centres of the corners
    if `align_corners`, else between their outer edges. `padding` says what lies outside.
    Places are stored in fp32."""

    kind = "grid_sample"
    scales = (1,)
    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        x, grid = inputs
        expect_float(x)
        expect_float(grid)
        if self.mode not in MODES or self.padding not in PADDINGS:
            raise ShapeError(f"mode '{self.mode}' with padding '{self.padding}' is not known")
        axes = x.rank - 2
        if not 1 <= axes <= 3:
            raise ShapeError(f"samples one to three spatial axes, not {axes}")
        if grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != axes:
            raise ShapeError(f"the grid {list(grid.shape)} has no places in {list(x.shape)}")
        return (TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, grid = (widened(each) for each in inputs)
        spatial, out = x.shape[2:], grid.shape[1:-1]
        taps = [self._taps(grid[..., len(spatial) - 1 - axis], extent) for axis, extent in enumerate(spatial)]
        made = np.zeros((*x.shape[:2], *out))
        last = np.moveaxis(x, 1, -1)
        images = np.arange(x.shape[0]).reshape(-1, *(1,) * len(out))
        for chosen in product(range(MODES[self.mode]), repeat=len(spatial)):
            at = [places[tap] for (places, _), tap in zip(taps, chosen, strict=True)]
            weight = np.prod([weights[tap] for (_, weights), tap in zip(taps, chosen, strict=True)], axis=0)
            made += weight[:, None] * np.moveaxis(last[(images, *at)], -1, 1)
        return (narrowed(made, inputs[0].dtype),)

    def tails(self, node: Node, at: Padded) -> Tails:
        """Each image is read at the places of its own grid; each place of a grid by itself."""
        (x, grid), shape = node.inputs, at.shape(node.outputs[0])
        if any(at.axis(x, step) > 1 for step in at.tails(x)):
            raise PaddingReaches("reads neighbours along it")
        places = {step: at.axis(grid, step) for step in at.tails(grid)}
        found = {at.moved(x, step, shape, at.axis(x, step)): ANYTHING for step in at.tails(x)}
        return found | {at.moved(grid, s, shape, axis + (axis > 0)): ANYTHING for s, axis in places.items()}

    def _taps(self, given: Array, extent: int) -> tuple[list[Array], list[Array]]:
        """The neighbours of each place along one axis, and their weights."""
        given = np.where(np.isnan(given), -FAR, np.clip(given, -FAR, FAR))
        x = (given + 1.0) / 2.0 * (extent - 1) if self.align_corners else ((given + 1.0) * extent - 1.0) / 2.0
        if self.mode == "nearest":
            first, weights = np.rint(x), [np.ones_like(x)]
        elif self.mode == "linear":
            x = self._inside(x, extent)
            first = np.floor(x)
            weights = [1.0 - (x - first), x - first]
        else:
            first = np.floor(x) - 1.0
            t = x - first - 1.0

            def far(d: Array) -> Array:
                return _A * d**3 - 5 * _A * d**2 + 8 * _A * d - 4 * _A

            def near(d: Array) -> Array:
                return (_A + 2) * d**3 - (_A + 3) * d**2 + 1

            weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
        places, kept = [], []
        for tap, weight in enumerate(weights):
            at = self._inside(first + tap, extent)
            outside = (at < 0) | (at > extent - 1)
            places.append(np.where(outside, 0, at).astype(np.int64))
            kept.append(np.where(outside, 0.0, weight))
        return places, kept

    def _inside(self, x: Array, extent: int) -> Array:
        if self.padding == "border":
            return np.clip(x, 0, extent - 1)
        if self.padding == "zeros":
            return x
        low, high = (0.0, extent - 1.0) if self.align_corners else (-0.5, extent - 0.5)
        if high == low:
            return np.zeros_like(x)
        distance = np.abs(x - low)
        times = np.floor(distance / (high - low))
        rest = distance - times * (high - low)
        return np.where((x >= low) & (x <= high), x, np.where(times % 2 == 0, low + rest, high - rest))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * prod((MODES[self.mode],) * (inputs[0].rank - 2))

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        places = prod(inputs[1].shape[:-1])
        return super().workspace(inputs, outputs) + places * 8 * (inputs[0].rank - 2) + 3 * outputs[0].elements


_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


def import_grid_sample(node: NodeImport) -> None:
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if mode not in _MODES:
        raise Refusal("unsupported-attribute", f"mode '{mode}' is none of {', '.join(_MODES)}")
    if padding not in PADDINGS:
        raise Refusal("unsupported-attribute", f"padding_mode '{padding}' is none of {', '.join(PADDINGS)}")
    op = GridSample(_MODES[mode], padding, bool(node.integer("align_corners", 0)))
    node.emit(op, [node.input(0), node.input(1)], 0)


_MOST = 1 << 24
"""Elements of the constant grid."""


def _centres(extent: int, align_corners: bool) -> Array:
    """Centres of `extent` cells between -1 and 1, or their ends. One cell that is aligned lies at 0, as torch has it;
    ONNX divides by zero there."""
    if align_corners and extent > 1:
        return np.linspace(-1.0, 1.0, extent)
    return (2.0 * np.arange(extent) + 1.0) / extent - 1.0


def import_affine_grid(node: NodeImport) -> None:
    """The product of a constant [places, axes + 1], each place with a one behind it, and theta [N,axes,axes + 1]."""
    theta, size = node.type(0).shape, node.static_list(1, "the size")
    axes = len(size) - 2
    if axes not in (2, 3) or min(size) < 1:
        raise ShapeError(f"the size {list(size)} is not of a batch, channels and two or three axes")
    if theta != (size[0], axes, axes + 1):
        raise ShapeError(f"theta {list(theta)} must be {[size[0], axes, axes + 1]} for the size {list(size)}")
    spatial = size[2:]
    if prod(spatial) * (axes + 1) > _MOST:
        raise Refusal("model-too-large", f"a grid of {list(spatial)} is more than a product is made of")
    aligned = bool(node.integer("align_corners", 0))
    sides = np.meshgrid(*(_centres(extent, aligned) for extent in spatial), indexing="ij")
    places = np.stack([*reversed(sides), np.ones(spatial)], -1).reshape(-1, axes + 1)
    grid = node.helper(places.astype(numpy_dtype(node.type(0).dtype)), "grid")
    turned = node.emit(Transpose((0, 2, 1)), [node.input(0)])
    node.emit(Reshape((size[0], *spatial, axes)), [node.emit(MatMul(), [grid, turned])], 0)


IMPORTERS = (
    Importer(
        "AffineGrid",
        (20,),
        import_affine_grid,
        example=Example((Data((1, 2, 3)), Integers((1, 1, 4, 6)))),
        note="a constant size",
    ),
    Importer("GridSample", (16, 20, 22), import_grid_sample, example=Example((Data(IMAGE), Data((IMAGE[0], 3, 3, 2))))),
)
