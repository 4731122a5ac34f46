"""Kernels for one product of few channels, of `mma.sync`: each warp computes whole rows in its registers, beside the
weights in shared memory.

Such a product takes as long as memory moves its rows. Tiles of a warpgroup have a load, a product and a store one after
the other, TMA takes as long for a short row as for one of 128 bytes, and columns are rounded up to those of a tile.
Here lanes load and store their own words, no warp waits for another, and no column is computed for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE
from bolt_build.families.cutlass.kinds.whole import OneOrderTile, WholeTile
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class ThinTile(WholeTile, OneOrderTile):
    """`rows` of a warp at a time, and warps of a block, of which a multiprocessor has one. `x`: a warp loads its rows
    whole, before it computes them or `ahead`, and has sums of a run of columns at a time; or it loads `runs` of their
    channels, some of them ahead, and has sums of all columns."""

    rows: int
    warps: int
    x: str

    header: ClassVar[str] = "_thin"
    memory_mb: ClassVar[int] = 500
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = False
    loads: ClassVar[int] = 8
    group: ClassVar[str] = "thin rows"

    @property
    def parameters(self) -> Named:
        return (("rows", self.rows), ("warps", self.warps), ("x", self.x))

    @classmethod
    def read(cls, reader: Reader) -> ThinTile:
        rows, warps = reader.number("rows"), reader.number("warps")
        return cls(rows, warps, reader.word("x", {way: way for way in _WAYS}))

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::ThinTile<24, 144, 32, 16, bolt::cutlass_kernels::ThinLoads::ahead>`"""
        return f"{SPACE}::ThinTile<{self.stated(product)}>"

    def stated(self, product: Product) -> str:
        """What is between the type's brackets."""
        values = (product.depth, product.n, self.rows, self.warps, f"{SPACE}::ThinLoads::{self.x}")
        return f"{', '.join(map(str, values))}{product.element}"

    def packed(self, product: Product) -> str:
        return f"{SPACE}::ThinFilter{{{product.weights}, {product.n}, {product.depth}}}"

    def registers(self, product: Product, beside: int = 0) -> int:
        """Of a thread, about: its words of x, as they come and as they are multiplied, sums, and what a residual brings
        of a run of columns. So many other tensors come `beside` each word of x."""
        fragments, run = self.rows // 16, min(_RUN, product.n)
        blocks = ceil(product.depth / _RUN)
        if self.x == "runs":
            words, sums = 8 * (min(blocks, _AHEAD // fragments) * (1 + beside) + 1), product.n // 2
        else:
            words, sums = 8 * blocks * (1 + (1 + beside if self.x == "ahead" else beside)), run // 2
        return fragments * (words + sums + (run // 4 if product.residual else 0)) + _ADDRESSES

    def refuse(self, gpu: Gpu, product: Product, beside: int = 0) -> str | None:
        """`beside`: so many other tensors come with x."""
        if (reason := refuse_product(gpu, product)) is not None:
            return reason
        if self.x == "runs" and product.depth <= _RUN:
            return Reason("{} channels are no more than one run", product.depth)
        needed, most = self.registers(product, beside), min(255, gpu.registers // (32 * self.warps) // 8 * 8)
        if needed > most:
            return Reason("a thread would need {} registers, {} warps leave it {}", needed, self.warps, most)
        working = ceil(product.m / self.rows) / gpu.sms
        if working < self.warps / 2:
            return Reason("{} rows are work for less than half of its {} warps", product.m, self.warps)
        return None

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return "its warps compute whole rows"

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """What the warps of the busiest SM execute, what one of them waits for, or memory."""
        gpu = gpu_of(target)
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        # Tiles go to a warp of each SM first.
        tiles = ceil(ceil(product.m / self.rows) / gpu.sms)
        depth = ceil(product.depth / 16) * 16
        stored = product.n * (_STORED + work.functions + (_ADDED if product.residual else 0))
        products = self.rows * (product.n * depth / _MULTIPLIES + product.depth * _READ)
        busy = tiles * max(products, self.rows * stored / _INSTRUCTIONS) / speed
        memory = work.nbytes / (_MEMORY * target.bandwidth)
        longer = _LONGER[self.x] * (_MORE_ROWS if self.rows > 16 else 1.0)
        return _BEGINS + longer * max(busy, ceil(tiles / self.warps) * _WAITS, memory)

    def __str__(self) -> str:
        return f"{self.rows} rows of a warp, {self.warps} warps{_WORDS[self.x]}"


_RUN = 32
"""Columns, or channels of x, that a warp has at once."""
_AHEAD = 4
"""Runs of channels of 16 rows that a warp loads ahead."""
_WORDS = {"ahead": ", loaded ahead", "runs": ", loaded in runs", "whole": ""}
_WAYS = tuple(_WORDS)
_WEIGHTS_AT_MOST = 96 << 10
"""Bytes of weights that each SM fetches at most: with more, warpgroups share what they load."""
_ADDRESSES = 40
"""Registers of a thread for weights on their way, addresses and counters."""

THIN_TILES = tuple(ThinTile(rows, warps, x) for x, rows, warps in every(_WAYS, (16, 32), (24, 16, 12, 8)))

# Fitted to 76 kernels on an H200, off by 9%. Of an SM in a second products and instructions of a lane, with what their
# warps wait for, and seconds in which a channel of a row comes; instructions of a result, and with a residual; seconds
# of a launch and of the first weights, and in which a warp alone loads, computes and stores a tile; the part of the
# bandwidth that these kernels reach.
_MULTIPLIES, _INSTRUCTIONS, _READ = 1.1e12, 1.6e11, 6e-11
_STORED, _ADDED = 2, 32
_BEGINS, _WAITS = 2.6e-6, 0.95e-6
_MEMORY = 0.82
_LONGER = {"ahead": 1.0, "runs": 1.03, "whole": 1.05}
"""How much longer warps take that wait for their rows, or for the last runs of them."""
_MORE_ROWS = 1.02
"""The same with 32 rows: the last tiles are larger."""


def weight_bytes(product: Product) -> int:
    """Shared memory of weights and biases."""
    return product.n * (product.depth * 2 + 4)


def refuse_product(gpu: Gpu, product: Product) -> str | None:
    """Why no tile is one for the product on this GPU, None where some may be."""
    if not gpu.overlaps:
        return "rows of single warps need launches that overlap"
    if product.kernel != "Gemm":
        return "rows of single warps are of no larger windows than 1x1"
    if product.wide:
        return "rows of single warps are stored in half precision"
    if product.access != ALIGNMENT:
        return Reason("stores {} columns at once, {} is no multiple", ALIGNMENT, product.n)
    if (needed := weight_bytes(product)) > _WEIGHTS_AT_MOST:
        return Reason("each multiprocessor would fetch {} bytes of weights, over {}", needed, _WEIGHTS_AT_MOST)
    return None
