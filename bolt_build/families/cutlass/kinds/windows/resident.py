"""Implicit GEMM on Hopper for small windows over few channels: weights stay in registers, TMA loads tiles with their
halo."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE
from bolt_build.families.cutlass.kinds.whole import OneOrderTile, WholeTile
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

UNIT = 8
"""Pixels of a tile along a row: of 64 channels, what shared memory's swizzle takes as one unit."""
CHANNELS = 64
"""Output channels of a warpgroup: the rows of its instruction."""
STEP = 16
"""Channels that an instruction multiplies."""
MOST_STEPS = 4
"""A box of the input has 64 channels."""
MOST_REGISTERS = 208
"""Of a thread's 240, those that weights and sums may take."""
_BARRIERS = 2048
"""Bytes of shared memory that tiles leave."""


@dataclass(frozen=True)
class ResidentTile(WholeTile, OneOrderTile):
    """`rows` by `width` pixels of the output, and `steps` of 16 channels in each tap of the window.

    Two warpgroups hold the weights of 64 output channels each and compute a tile `together`, or both hold the same ones
    and take tiles in turns.
    """

    rows: int
    steps: int
    together: bool
    width: int = UNIT

    header: ClassVar[str] = "_resident"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = False
    loads: ClassVar[int] = 8

    @property
    def pixels(self) -> int:
        return self.rows * self.width

    @property
    def channels(self) -> int:
        """Output channels that a block computes."""
        return 2 * CHANNELS if self.together else CHANNELS

    def tiles(self, product: Product) -> int:
        """Tiles of the images, whatever their channels."""
        shape = dict(product.shape)
        return shape["batch"] * ceil(shape["out_h"] / self.rows) * ceil(shape["out_w"] / self.width)

    def groups(self, product: Product) -> int:
        """Blocks that compute the output channels of a tile."""
        return ceil(product.n / self.channels)

    @property
    def group(self) -> str:
        return "resident weights"

    @property
    def parameters(self) -> Named:
        wide = (("width", self.width),) if self.width != UNIT else ()
        turns = "together" if self.together else "turns"
        return (("rows", self.rows), *wide, ("steps", self.steps), ("resident", turns))

    @classmethod
    def read(cls, reader: Reader) -> ResidentTile:
        rows, width, steps = reader.number("rows"), reader.number("width", UNIT), reader.number("steps")
        return cls(rows, steps, reader.word("resident", {"turns": False, "together": True}), width)

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::ResidentTile<14, 4, true, 3, 3, 8>`"""
        values = (self.rows, self.steps, boolean(self.together), *taps(product), self.width)
        return f"{SPACE}::ResidentTile<{', '.join(map(str, values))}{product.element}>"

    def packed(self, product: Product) -> str:
        """The product's weights as the tile's threads hold them."""
        return packed(product, self.steps, self.groups(product) * self.channels // CHANNELS)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        staged = 2 * self.pixels * CHANNELS * 2
        reason = refuse_windows(self.rows, self.width, self.steps, staged, gpu, product)
        if reason is not None:
            return reason
        if self.together and product.n <= CHANNELS:
            return Reason("half of its channels would be beyond the {} of the product", product.n)
        shape = dict(product.shape)
        if self.rows >= 2 * shape["out_h"]:
            return Reason("half of its rows would be beyond the {} of an image", shape["out_h"])
        if self.width > UNIT and self.width >= 2 * shape["out_w"]:
            return Reason("half of its columns would be beyond the {} of an image", shape["out_w"])
        return None

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return "its registers hold the weights of the whole depth"

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """The tiles of the busiest SM, or memory."""
        gpu = gpu_of(target)
        rounds = ceil(self.tiles(product) / max(1, gpu.sms // self.groups(product)))
        waits = rounds * _RESIDUAL if product.residual else 0.0
        one = tile_seconds(self.rows, self.width, self.channels, product, target, work.functions)
        return waits + seconds_of(rounds, one, work.nbytes, target)

    def __str__(self) -> str:
        who = "together" if self.together else "in turns"
        return f"{self.rows}x{self.width} pixels {who}, weights of {self.steps * STEP} channels in registers"


# Widths of the instruction: 32, 64, 112 and 128 pixels. 14 rows divide images of 56, 112 and 224. Tiles of more pixels
# load less of their neighbours, where windows leave the sums enough registers.
RESIDENT_TILES = (
    *(
        ResidentTile(rows, steps, together)
        for together, steps, rows in every((False, True), range(1, MOST_STEPS + 1), (14, 16, 8, 4))
    ),
    *(
        ResidentTile(rows, steps, together, 2 * UNIT)
        for together, steps, rows in every((False, True), range(1, MOST_STEPS + 1), (14, 16))
    ),
)


def taps(product: Product) -> tuple[int, int]:
    """Rows and columns of the product's windows."""
    shape = dict(product.shape)
    return shape["kernel_h"], shape["kernel_w"]


def registers(pixels: int, steps: int, window: tuple[int, int]) -> int:
    """Registers of a thread that hold weights and sums."""
    return window[0] * window[1] * steps * 4 + pixels // 2


def window_bytes(rows: int, width: int, window: tuple[int, int]) -> int:
    """Bytes of the boxes that a tile loads: one for each column of the window."""
    return window[1] * (rows + window[0] - 1) * width * CHANNELS * 2


def packed(product: Product, steps: int, groups: int) -> str:
    """The product's weights as the threads hold them, for so many groups of 64 output channels."""
    height, width = taps(product)
    fragments = struct(
        f"{SPACE}::Fragments",
        outputs=product.n, taps_h=height, taps_w=width, depth=product.depth, groups=groups, steps=steps,
    )  # fmt: skip
    return f"{SPACE}::ResidentFilter{{{product.weights}, {fragments}}}"


def refuse_windows(rows: int, width: int, steps: int, staged: int, gpu: Gpu, product: Product) -> str | None:
    """Why tiles of `rows` by `width` pixels, which stage so many bytes, cannot be loaded and multiplied."""
    if not gpu.warpgroup_mma:
        return "needs WGMMA"
    if not side_by_side(product):
        return "takes convolutions with a stride and a dilation of one"
    if product.access != 8:
        return Reason("stores 8 columns at once, {} is no multiple", product.n)
    if product.depth > MOST_STEPS * STEP:
        return Reason(
            "holds weights of {} channels at most in registers, here are {}", MOST_STEPS * STEP, product.depth
        )
    if steps != ceil(product.depth / STEP):
        return Reason("multiplies {} channels a tap, here are {}", steps * STEP, product.depth)
    window = taps(product)
    needed = registers(rows * width, steps, window)
    if needed > MOST_REGISTERS:
        return Reason("weights and accumulators take {} registers of a thread, which has {}", needed, MOST_REGISTERS)
    loaded = 2 * window_bytes(rows, width, window)
    if loaded + staged + _BARRIERS > gpu.shared_memory:
        return Reason("two tiles and what is stored take {} bytes of shared memory", loaded + staged)
    return None


def side_by_side(product: Product) -> bool:
    """True for undilated windows with a stride of one."""
    shape = dict(product.shape)
    steps = ("stride_h", "stride_w", "dilation_h", "dilation_w")
    return product.kernel == "Conv" and all(shape[name] == 1 for name in steps)


# Fitted to 206 kernels on an H200, off by 8%. Products in a second of one SM, and bytes that come to it from L2;
# seconds in which a launch begins and weights come, and what each tile waits for the residual; bytes in a second from
# memory, in parts of what the row states; the pixels that the narrowest instruction is as slow as. Seconds in which a
# warpgroup stores a tile, and for each instruction that activations take of a result.
_MULTIPLIES, _LOADS = 2.62e12, 48.4e9
_BEGINS, _RESIDUAL = 2.9e-6, 0.204e-6
_MEMORY = 0.77
_NARROWEST = 48
_STORE, FUNCTION = 0.517e-6, 1.3e-11


def products_seconds(rows: int, width: int, channels: int, product: Product, target: Target) -> float:
    """Predicted time of an SM for a tile's products, or for its loads."""
    window, steps = taps(product), ceil(product.depth / STEP)
    products = max(rows * width, _NARROWEST) * channels * window[0] * window[1] * steps * STEP
    return max(products / _MULTIPLIES, window_bytes(rows, width, window) / _LOADS) / speed(target)


def tile_seconds(rows: int, width: int, channels: int, product: Product, target: Target, functions: int) -> float:
    """Predicted time of a tile of an SM, where one warpgroup multiplies while the other stores. Activations of a result
    take so many instructions."""
    products = products_seconds(rows, width, channels, product, target)
    store = _STORE + rows * width * channels * functions * FUNCTION / speed(target)
    return max(products, (products + store) / 2)


def speed(target: Target) -> float:
    """Of an SM, in parts of what an SM has on which constants were fitted."""
    return target.rate("fp16") / gpu_of(target).sms / MEASURED_RATE


def seconds_of(rounds: int, tile: float, nbytes: int, target: Target) -> float:
    """Predicted time of a kernel whose busiest SM has so many tiles, each of so many seconds."""
    return _BEGINS + max(rounds * tile, nbytes / (_MEMORY * target.bandwidth))
