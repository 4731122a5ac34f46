"""Convolutions of few channels and a stride of two, over a copy with two by two pixels in one (space to depth)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.dtypes import DType
from bolt_build.families.base import Operand
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED, element
from bolt_build.families.common.geometry import strides
from bolt_build.graph.ops.products.conv import Conv

_SPACE = "bolt::cutlass_kernels"
CHANNELS = 4
"""Most channels of a pixel; it takes so many."""
CELL = 4 * CHANNELS
"""Half-precision elements of two by two pixels."""


def spread(strides: tuple[int, int, int, int], row: int, pitch: int) -> tuple[int, int, int, int]:
    """Strides of image, row, column and channel where pixels, of `row` channels, lie `pitch` elements apart."""
    image, down, column, channel = strides
    return image // row * pitch, down // row * pitch, column // row * pitch, channel


@dataclass(frozen=True)
class Fold:
    """A copy of the input in cells of two by two pixels, made before the product: cell (i, j) begins at row
    2 i - top and column 2 j - left, and what lies outside the image is zero.

    `strides` are those of image, row, column and channel in the input, in elements. `element` is the C++ type of the
    input, `to` the type of the copy.
    """

    batch: int
    height: int
    width: int
    channels: int
    strides: tuple[int, int, int, int]
    rows: int
    columns: int
    top: int
    left: int
    element: str
    to: DType = DType.F16

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return self.batch * self.rows * self.columns * CELL * 2

    @property
    def form(self) -> str:
        """In a few words."""
        return f"{self.to.value} cells of 2x2 pixels of {CHANNELS} channels"

    def apart(self, row: int, pitch: int) -> Fold:
        """The same of an image whose pixels, of `row` channels, lie `pitch` elements apart."""
        return replace(self, strides=spread(self.strides, row, pitch))

    @property
    def text(self) -> str:
        image, row, column, channel = self.strides
        value = struct(
            f"{_SPACE}::Fold",
            batch=self.batch, height=self.height, width=self.width, channels=self.channels,
            image=image, row=row, column=column, channel=channel,
            rows=self.rows, columns=self.columns, top=self.top, left=self.left,
        )  # fmt: skip
        return f"{self.source}{{{value}}}"

    @property
    def source(self) -> str:
        return f"{_SPACE}::Folded<{self.element}{element(self.to)}>"


def folds(op: Conv, x: Operand) -> bool:
    """True where the convolution is cheaper over cells of two by two pixels."""
    halves = tuple(op.strides) == (2, 2) and tuple(op.dilations) == (1, 1)
    return halves and x.shape[1] <= CHANNELS


@dataclass(frozen=True)
class Folding:
    """A convolution over cells: `rows` of windows, each one run of `taps` cells that begins at every cell of a row."""

    fold: Fold
    rows: int
    taps: int
    weights: str

    @property
    def depth(self) -> int:
        return self.taps * CELL


def folding(op: Conv, x: Operand, weights: Operand, out: tuple[int, int]) -> Folding:
    """How a convolution for which `folds` is true is computed; `out` is the height and width of its output."""
    outputs, channels, kernel_h, kernel_w = weights.shape
    rows, taps = -(-kernel_h // 2), -(-kernel_w // 2)
    step = strides(x)
    fold = Fold(
        x.shape[0], x.shape[2], x.shape[3], channels, (step[0], step[2], step[3], step[1]),
        out[0] - 1 + rows, out[1] - 1 + taps, op.pads_begin[0], op.pads_begin[1], COMPUTED[x.format.dtype],
        weights.format.dtype,
    )  # fmt: skip
    packed = struct(
        f"{_SPACE}::FoldedFilter",
        outputs=outputs, channels=channels, kernel_h=kernel_h, kernel_w=kernel_w, rows=rows, taps=taps,
    )  # fmt: skip
    return Folding(fold, rows, taps, packed)
