"""Regions of feature maps as images of one size: ONNX's RoiAlign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import within
from bolt_build.graph.ops.operands import expect_regions

MOST_SAMPLES = 1 << 20
"""Along an axis of a cell, where regions say how many there are: a larger region is none of an image."""
_MOST_RATIO = 64
_Samples = list[tuple[Array, Array]]
"""Of each sample along an axis its neighbours, and their weights."""


@dataclass(frozen=True)
class RoiAlign(Op):
    """Inputs x [N,C,H,W], regions [R,4] from left, top to right, bottom, and of which image each is, [R]. Output
    [R,C,height,width]: each cell is the mean of samples in it, interpolated linearly, or the `maximum` of their four
    weighted neighbours, as ONNX defines that. There are `ratio` samples along an axis, or one for each pixel begun
    where that is 0. `scale` takes regions to pixels; `half`: pixels' centres lie half a pixel inside. A sample more
    than a pixel outside of the image is 0."""

    kind = "roi_align"
    height: int
    width: int
    ratio: int = 0
    scale: float = 1.0
    maximum: bool = False
    half: bool = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_regions(inputs)
        x, regions, _ = inputs
        if self.height < 1 or self.width < 1 or not 0 <= self.ratio <= _MOST_RATIO:
            raise ShapeError(f"{self.height} by {self.width} cells of {self.ratio} samples are not supported")
        return (TensorType(x.dtype, (regions.shape[0], x.shape[1], self.height, self.width)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, regions = widened(inputs[0]), widened(inputs[1])
        images = within(inputs[2], x.shape[0])
        made = np.zeros((len(regions), x.shape[1], self.height, self.width))
        for index, (region, image) in enumerate(zip(regions, images, strict=True)):
            left, top, right, bottom = region * self.scale - (0.5 if self.half else 0.0)
            rows = self._samples(top, bottom - top, self.height, x.shape[2])
            columns = self._samples(left, right - left, self.width, x.shape[3])
            for row, (rows_at, down) in enumerate(rows):
                for column, (columns_at, across) in enumerate(columns):
                    made[index, :, row, column] = self._cell(x[image], rows_at, columns_at, down, across)
        return (narrowed(made, inputs[0].dtype),)

    def _samples(self, begin: float, size: float, cells: int, extent: int) -> list[tuple[_Samples, int]]:
        """Of each cell along an axis its samples inside, each as neighbours with weights, and how many there are."""
        size = size if self.half else max(size, 1.0)
        each = size / cells
        found = np.ceil(each) if self.ratio == 0 else self.ratio
        many = int(np.clip(np.nan_to_num(found), 0, MOST_SAMPLES))
        cells_made = []
        for cell in range(cells):
            places = begin + cell * each + (np.arange(many) + 0.5) * each / max(many, 1)
            inside = places[(places >= -1.0) & (places <= extent)]
            samples = []
            for place in np.maximum(inside, 0.0):
                low = min(int(place), extent - 1)
                place = place if low < extent - 1 else float(low)
                at = np.asarray([low, min(low + 1, extent - 1)])
                samples.append((at, np.asarray([1.0 - (place - low), place - low])))
            cells_made.append((samples, many))
        return cells_made

    def _cell(self, image: Array, rows: _Samples, columns: _Samples, down: int, across: int) -> Array:
        weighed = [
            (image[:, at[:, None], to] * (weights[:, None] * others)).reshape(len(image), 4)
            for at, weights in rows
            for to, others in columns
        ]
        if not self.maximum:
            return np.asarray(sum(each.sum(1) for each in weighed) / max(down * across, 1))
        if len(weighed) < down * across:
            weighed.append(np.zeros((len(image), 4)))
        return np.max(np.stack(weighed), (0, 2)) if weighed else np.zeros(len(image))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 8 * outputs[0].elements * max(self.ratio, 2) ** 2

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {2: inputs[0].shape[0]}


_MODES = ("avg", "max")
_PIXELS = ("half_pixel", "output_half_pixel")


def import_roi_align(node: NodeImport) -> None:
    mode = node.text("mode", "avg")
    if mode not in _MODES:
        raise Refusal("unsupported-attribute", f"mode '{mode}' is none of {', '.join(_MODES)}")
    pixels = node.text("coordinate_transformation_mode", "half_pixel") if node.version >= 16 else "output_half_pixel"
    if pixels not in _PIXELS:
        message = f"coordinate_transformation_mode '{pixels}' is none of {', '.join(_PIXELS)}"
        raise Refusal("unsupported-attribute", message)
    op = RoiAlign(
        node.integer("output_height", 1), node.integer("output_width", 1), node.integer("sampling_ratio", 0),
        node.real("spatial_scale", 1.0), mode == "max", pixels == "half_pixel",
    )  # fmt: skip
    node.emit(op, [node.input(0), node.input(1), node.input(2)], 0)


IMPORTERS = (
    Importer(
        "RoiAlign", (10, 16, 22), import_roi_align,
        example=Example((Data(IMAGE), Data((3, 4)), Data((3,), DType.I64)), (("output_height", 2),)),
        note="as many regions as are known at import",
    ),
)  # fmt: skip
