"""The largest elements of cells of regions: ONNX's MaxRoiPool, torchvision's RoIPool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import within
from bolt_build.graph.ops.moves.shape import Cast, Reshape, Slice
from bolt_build.graph.ops.operands import expect_regions

FAR = 1 << 24
"""Pixels from the origin at which a corner lies at most: fp32 has no halves beyond."""


@dataclass(frozen=True)
class RoiPool(Op):
    """Inputs x [N,C,H,W], regions [R,4] from left, top to right, bottom, and of which image each is, [R]. Output
    [R,C,height,width]: each cell is the greatest pixel that it touches; 0 where it touches none of the image. `scale`
    takes corners to pixels, which are rounded, halves away from zero; both corners are inside. All in fp32."""

    kind = "roi_pool"
    height: int
    width: int
    scale: float = 1.0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_regions(inputs)
        x, regions, _ = inputs
        if self.height < 1 or self.width < 1:
            raise ShapeError(f"{self.height} by {self.width} cells are none")
        return (TensorType(x.dtype, (regions.shape[0], x.shape[1], self.height, self.width)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, images = widened(inputs[0]), within(inputs[2], inputs[0].shape[0])
        corners = _rounded(np.nan_to_num(inputs[1].astype(np.float32) * np.float32(self.scale), nan=0.0))
        made = np.zeros((len(images), x.shape[1], self.height, self.width))
        for index, ((left, top, right, bottom), image) in enumerate(zip(corners, images, strict=True)):
            for row, (above, below) in enumerate(_cells(top, bottom, self.height, x.shape[2])):
                for column, (first, last) in enumerate(_cells(left, right, self.width, x.shape[3])):
                    if above < below and first < last:
                        made[index, :, row, column] = x[image, :, above:below, first:last].max((1, 2))
        return (narrowed(made, inputs[0].dtype),)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {2: inputs[0].shape[0]}


def _rounded(places: Array) -> Array:
    """Halves away from zero."""
    whole = np.trunc(places)
    up = np.where(np.abs(places - whole) >= 0.5, np.copysign(1.0, places), 0.0)
    return np.asarray(np.clip(whole + up, -FAR, FAR), np.int64)


def _cells(begin: int, end: int, cells: int, extent: int) -> list[tuple[int, int]]:
    """Of each cell along an axis the first pixel, and the one behind the last."""
    each = np.float32(max(end - begin + 1, 1)) / np.float32(cells)
    edges = [(int(np.floor(np.float32(at) * each)), int(np.ceil(np.float32(at + 1) * each))) for at in range(cells)]
    return [(min(max(low + begin, 0), extent), min(max(high + begin, 0), extent)) for low, high in edges]


def import_max_roi_pool(node: NodeImport) -> None:
    """Rows of five: the number of the image, and the corners."""
    cells, shape = node.integers("pooled_shape"), node.type(1).shape
    if len(cells) != 2 or len(shape) != 2 or shape[1] != 5:
        raise ShapeError(f"regions {list(shape)} are no [R, 5], or {list(cells)} no rows and columns of cells")
    first = node.emit(Slice((0, 0), (shape[0], 1), (1, 1)), [node.input(1)])
    images = node.emit(Cast(DType.I64), [node.emit(Reshape((shape[0],)), [first])])
    corners = node.emit(Slice((0, 1), (shape[0], 4), (1, 1)), [node.input(1)])
    node.emit(RoiPool(*cells, node.real("spatial_scale", 1.0)), [node.input(0), corners, images], 0)


IMPORTERS = (
    Importer(
        "MaxRoiPool", (1, 22), import_max_roi_pool, note="as many regions as are known at import",
        example=Example((Data(IMAGE), Data((3, 5))), (("pooled_shape", (2, 2)),)),
    ),
)  # fmt: skip
