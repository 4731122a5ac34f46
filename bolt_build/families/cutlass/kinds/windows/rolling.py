"""Convolutions with few output channels on Hopper: a row of the input is multiplied with all rows of taps at once, and
the sums of as many rows of the output roll through registers."""

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
from bolt_build.families.cutlass.kinds.whole import WholeTile
from bolt_build.families.cutlass.kinds.windows.resident import side_by_side, taps
from bolt_build.families.cutlass.problems.product import Product, Work, aligned
from bolt_build.families.cutlass.settings import Settings
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

PIXELS = 64
"""Of a tile's row: the rows of the instruction."""
MOST_OUTPUTS = 64
"""Output channels at most: with more, other kernels do not wait for their A operand."""
_INSTRUCTIONS = (32, 64, 96, 128, 192, 256)
"""Columns that instructions compute: `columns_of_instruction`."""
_SUMS_OF_THREE = 64
"""Registers of a thread that hold sums where three warpgroups share a multiprocessor's."""
_AHEAD = 3
"""Rows of a run of channels that there is room for, at least, while one is multiplied."""
_MOST_AHEAD = 12
_BARRIERS = 4096
"""Bytes of shared memory that tiles leave."""
_OTHER_STRIPS = 4
"""Other lengths of strips that are worth a measurement."""


@dataclass(frozen=True)
class RollingTile(WholeTile):
    """`columns` pixels of a strip's row, and runs of `k` channels; a warpgroup goes down 64 / `columns` strips at once,
    and `teams` of them do so side by side."""

    columns: int
    k: int
    teams: int

    header: ClassVar[str] = "_rolling"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = False
    loads: ClassVar[int] = 8

    @property
    def strips(self) -> int:
        """That a warpgroup computes at once."""
        return PIXELS // self.columns

    def runs(self, product: Product) -> int:
        """Of channels, in all of the depth."""
        return ceil(product.depth / self.k)

    @property
    def group(self) -> str:
        return "rolling sums"

    @property
    def parameters(self) -> Named:
        return (("columns", self.columns), ("k", self.k), ("rolling", self.teams))

    @classmethod
    def read(cls, reader: Reader) -> RollingTile:
        return cls(reader.number("columns"), reader.number("k"), reader.number("rolling"))

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::RollingTile<32, 64, 2, 3, 3, 16, 2>`"""
        values = (product.n, self.k, self.runs(product), *taps(product), self.columns, self.teams)
        return f"{SPACE}::RollingTile<{', '.join(map(str, values))}{product.element}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        if not gpu.warpgroup_mma:
            return "needs WGMMA"
        if not side_by_side(product):
            return "takes convolutions with a stride and a dilation of one"
        if product.access != 8:
            return Reason("stores 8 columns at once, {} is no multiple", product.n)
        if product.n > MOST_OUTPUTS:
            return Reason("is for {} output channels at most, here are {}", MOST_OUTPUTS, product.n)
        rows = taps(product)[0]
        if rows == 1:
            return "its windows reach over several rows"
        if rows * product.n > _INSTRUCTIONS[-1]:
            return Reason(
                "an instruction has {} columns, {} rows of taps are {}", _INSTRUCTIONS[-1], rows, rows * product.n
            )
        return self._refuse_size(product) or self._refuse_room(gpu, product)

    def _refuse_size(self, product: Product) -> str | None:
        if self.k >= 2 * product.depth:
            return Reason("half of its depth would be beyond the {} of the product", product.depth)
        if self.k < PIXELS and aligned(product.depth, self.k) == aligned(product.depth, 2 * self.k):
            return Reason(
                "runs of {} channels need no more zeros behind the {} of the product", 2 * self.k, product.depth
            )
        width = dict(product.shape)["out_w"]
        if self.columns >= 2 * max(width, 8):
            return Reason("half of its columns would be beyond the {} of an image", width)
        return None

    def _refuse_room(self, gpu: Gpu, product: Product) -> str | None:
        sums = _instruction(product) // 2
        if self.teams == 3 and sums > _SUMS_OF_THREE:
            return Reason("a thread would hold {} sums, three warpgroups leave room for {}", sums, _SUMS_OF_THREE)
        ahead = self.ahead(gpu, product)
        if ahead < _AHEAD:
            return Reason("shared memory has room for {} rows beside the weights, {} are needed", ahead, _AHEAD)
        return None

    def ahead(self, gpu: Gpu, product: Product) -> int:
        """Rows of a run of channels that each warpgroup has room for: `RollingWindows::depth`."""
        rows, columns = taps(product)
        behind = (_instruction(product) - rows * product.n) * self.k * 2
        staged = self.teams * 4 * 16 * (product.n // 8 | 1) * 16
        beside = filter_bytes(product, self.k) + behind + staged + _BARRIERS
        pitch = aligned(self.columns + columns - 1, 64 // self.k)
        row = aligned(self.strips * pitch * self.k * 2, 1024)
        return min(max(0, gpu.shared_memory - beside) // (self.teams * row), _MOST_AHEAD)

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return "its shared memory holds the weights of the whole depth"

    def tiles(self, product: Product, strip: int) -> int:
        """Of strips of so many rows, as many at once as a warpgroup computes."""
        shape = dict(product.shape)
        strips = shape["batch"] * ceil(shape["out_h"] / strip) * ceil(shape["out_w"] / self.columns)
        return ceil(strips / self.strips)

    def usual(self, product: Product, gpu: Gpu) -> Settings:
        """Strips that make the busiest multiprocessor be done soonest, the longest of these."""
        return Settings(strip=min(_lengths(product), key=lambda strip: self._order(product, strip, gpu)))

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        """The next best lengths of strips."""
        found = sorted(_lengths(product), key=lambda strip: self._order(product, strip, gpu))
        return tuple(Settings(strip=strip) for strip in found[1 : 1 + _OTHER_STRIPS])

    def allowed(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        """Strips of any length."""
        return tuple(Settings(strip=strip) for strip in range(1, dict(product.shape)["out_h"] + 1))

    def _order(self, product: Product, strip: int, gpu: Gpu) -> tuple[float, int]:
        return self._busiest(product, strip, gpu.sms, 1.0), -strip

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """With strips of the usual length."""
        gpu = gpu_of(target)
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        strip = self.usual(product, gpu).strip
        memory = work.nbytes / (_MEMORY * target.bandwidth)
        return _BEGINS + max(self._busiest(product, strip, gpu.sms, speed, work.functions), memory)

    def _busiest(self, product: Product, strip: int, sms: int, speed: float, functions: int = 0) -> float:
        """Predicted seconds of the busiest multiprocessor's tiles: what its warpgroups multiply in all, what one of
        them takes for its own rows, or their loads."""
        rows, columns = taps(product)
        tiles = self.tiles(product, strip)
        steps = strip + rows - 1
        instruction = _instruction(product)
        products = PIXELS * max(instruction, _NARROWEST) * 16 / _MULTIPLIES
        reads = (PIXELS + instruction) * 16 * 2 / _SHARED
        row = self.runs(product) * columns * (self.k // 16) * max(products, reads)
        together, own = ceil(tiles / sms), ceil(tiles / (sms * self.teams))
        loads = self.strips * (self.columns + columns - 1) * self.runs(product) * self.k * 2 / _LOADS
        read = _RESIDUAL if product.residual else 0.0
        store = _ROW + PIXELS * product.n * (_RESULT + read + _FUNCTION * functions)
        return steps * max(together * row, own * (row + store), together * loads) / speed

    def __str__(self) -> str:
        teams = "a warpgroup" if self.teams == 1 else f"each of {self.teams} warpgroups"
        return f"{self.strips}x{self.columns} pixels of {self.k} channels, sums rolling through {teams}"


ROLLING_TILES = tuple(
    RollingTile(columns, k, teams) for teams, k, columns in every((2, 1, 3), (64, 32, 16), (16, 32, 64, 8))
)

# Fitted to 61 kernels on an H200, off by 12% on average: products in a second of one multiprocessor, bytes that come
# to it from L2, and from its own shared memory, which are reckoned; seconds in which a launch begins and the weights
# come, after a row's products before the next row's, for each result of that, for one of the residual and for each
# instruction of its activations; the part of the bandwidth that is reached; the columns that the narrowest instruction
# is as slow as.
_MULTIPLIES, _LOADS, _SHARED = 2.5e12, 4.6e10, 2.2e11
_BEGINS, _ROW = 3.4e-6, 0.16e-6
_RESULT, _RESIDUAL, _FUNCTION = 1.5e-10, 0.9e-10, 1.0e-11
_MEMORY = 0.65
_NARROWEST = 48


def _instruction(product: Product) -> int:
    """Columns of the instruction that multiplies with all rows of taps."""
    stacked = taps(product)[0] * product.n
    return next(columns for columns in _INSTRUCTIONS if stacked <= columns)


def filter_bytes(product: Product, k: int) -> int:
    """Bytes of the weights in shared memory, whose depth is padded to runs of `k`."""
    return product.taps * product.n * aligned(product.depth, k) * 2


def _lengths(product: Product) -> tuple[int, ...]:
    """Rows of strips that cut an image into so many parts, as evenly as possible."""
    height = dict(product.shape)["out_h"]
    return tuple(dict.fromkeys(ceil(height / parts) for parts in range(1, height + 1)))
