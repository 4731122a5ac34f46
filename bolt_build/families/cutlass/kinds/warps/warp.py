"""Kernels for one product whose warps multiply each by itself (`mma.sync`), on every GPU with tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.rules import FITTED, HOPPER, NARROW, refuse_whole, too_many_sums, wasted_rows
from bolt_build.families.cutlass.kinds.whole import OneOrderTile
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.slices import counts, refuse
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

WHOLE = 8
"""Half-precision elements of the widest load, 16 bytes."""


@dataclass(frozen=True)
class WarpTile(OneOrderTile):
    """Rows, columns and depth that a block computes at a time, rows and columns of a warp, and pipeline stages.

    `loads` are the elements of both factors that a thread loads at once: what their depth is a multiple of.
    """

    m: int
    n: int
    k: int
    warp_m: int
    warp_n: int
    stages: int
    loads: int = WHOLE

    header: ClassVar[str] = ""
    memory_mb: ClassVar[int] = 900
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = True
    reads_images: ClassVar[bool] = False

    @property
    def warps(self) -> int:
        return (self.m // self.warp_m) * (self.n // self.warp_n)

    @property
    def shared_bytes(self) -> int:
        """Both factors, half precision, in every stage."""
        return (self.m + self.n) * self.k * 2 * self.stages

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums."""
        return self.warp_m * self.warp_n // 32

    def blocks(self, m: int, n: int) -> int:
        """Blocks that a product of so many rows and columns takes."""
        return ceil(m / self.m) * ceil(n / self.n)

    @property
    def registers(self) -> int:
        """About what a thread needs: accumulators, fragments of both factors, addresses."""
        return self.accumulators + (self.warp_m + self.warp_n) * self.k // 64 + 70

    def __str__(self) -> str:
        narrow = "" if self.loads == WHOLE else f", {self.loads} elements a load"
        return f"{self.m}x{self.n}x{self.k} in {self.stages} stages{narrow}"

    @property
    def group(self) -> str:
        return "warps" if self.loads == WHOLE else "warps with narrow loads"

    @property
    def parameters(self) -> Named:
        narrow = (("loads", self.loads),) if self.loads != WHOLE else ()
        size = (("m", self.m), ("n", self.n), ("k", self.k), ("warp_m", self.warp_m), ("warp_n", self.warp_n))
        return (*size, ("stages", self.stages), *narrow)

    @classmethod
    def read(cls, reader: Reader) -> WarpTile:
        m, n, k, warp_m, warp_n, stages = map(reader.number, ("m", "n", "k", "warp_m", "warp_n", "stages"))
        return cls(m, n, k, warp_m, warp_n, stages, reader.number("loads", WHOLE))

    def access(self, product: Product) -> int:
        """Elements that one access to the output takes."""
        return product.access

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::Tile<128, 128, 32, 64, 64, 4, 8, 16>`"""
        instruction = gpu.instruction("fp16")
        assert instruction is not None
        values = [self.m, self.n, self.k, self.warp_m, self.warp_n, self.stages, self.access(product), instruction[2]]
        if self.loads != WHOLE or product.element:
            values.append(self.loads)
        return f"{SPACE}::Tile<{', '.join(map(str, values))}{product.element}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        return self.refuse_columns(gpu, product.n) or wasted_rows(self.m, product.m)

    def refuse_columns(self, gpu: Gpu, columns: int) -> str | None:
        """Why the tile is none for a product of so many columns on this GPU, None where it is one."""
        if self.n > 2 * max(columns, NARROW):
            return Reason("over half of its columns would be beyond the {} of the product", columns)
        if self.n <= NARROW < columns:
            return Reason("a narrow tile reads the rows again for every {} of {} columns", self.n, columns)
        if self.warps not in (4, 8):
            return Reason("is computed by {} warps, 4 or 8 keep an SM busy", self.warps)
        if (reason := too_many_sums(self.accumulators)) is not None:
            return reason
        if self.shared_bytes > gpu.shared_memory:
            return Reason("needs {} bytes of shared memory, a block has {}", self.shared_bytes, gpu.shared_memory)
        if not gpu.async_copies and self.stages > 2:
            return "more than two stages need cp.async"
        if gpu.async_copies and self.stages == 2:
            return "two stages leave cp.async unused"
        return None

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        return refuse_whole(self.blocks(product.m, product.n), self.m * self.n, gpu, product)

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return refuse(self, gpu, product)

    def counts(self, gpu: Gpu, product: Product) -> tuple[int, ...]:
        return counts(self, gpu, product)

    def cut(self, product: Product) -> int:
        """Warps take turns at the runs of channels of a tap."""
        return ceil(product.depth / self.k)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        return seconds(self, work, target)


# Measured on an H200 over convolutions of ResNet-50, VGG and RepVGG at batches 1 to 128: these come within a hundredth
# of the best of twenty.
TILES = (
    WarpTile(128, 128, 32, 64, 64, 4),
    WarpTile(128, 128, 64, 64, 64, 4),
    WarpTile(128, 256, 64, 64, 64, 3),
    WarpTile(256, 128, 64, 64, 64, 3),
    WarpTile(256, 64, 32, 64, 64, 4),
    WarpTile(64, 256, 64, 64, 64, 4),
    WarpTile(128, 64, 64, 64, 32, 4),
    WarpTile(128, 64, 32, 64, 32, 6),
    WarpTile(64, 128, 64, 32, 64, 4),
    WarpTile(128, 32, 64, 32, 32, 4),
    WarpTile(64, 64, 64, 32, 32, 5),
    WarpTile(64, 64, 32, 32, 32, 6),
    # Two stages are all that GPUs without cp.async can have.
    WarpTile(256, 128, 32, 64, 64, 2),
    WarpTile(128, 256, 32, 64, 64, 2),
    WarpTile(128, 128, 32, 64, 64, 2),
    WarpTile(128, 64, 32, 64, 32, 2),
    WarpTile(64, 128, 32, 32, 64, 2),
    WarpTile(64, 64, 32, 32, 32, 2),
    # Under 99 KB of shared memory.
    WarpTile(128, 128, 64, 64, 64, 3),
    WarpTile(64, 128, 64, 32, 64, 3),
    WarpTile(128, 64, 64, 64, 32, 3),
    WarpTile(64, 64, 64, 32, 32, 4),
    # Seldom the best, now and then by a little.
    WarpTile(128, 256, 32, 64, 64, 3),
    WarpTile(256, 128, 32, 64, 64, 3),
    WarpTile(64, 256, 32, 64, 64, 4),
    WarpTile(256, 32, 32, 64, 32, 4),
    WarpTile(128, 128, 32, 64, 64, 3),
    WarpTile(128, 128, 32, 32, 64, 4),
    WarpTile(128, 64, 32, 64, 32, 4),
    WarpTile(128, 64, 64, 32, 32, 4),
    WarpTile(64, 128, 32, 32, 64, 5),
    WarpTile(64, 128, 32, 32, 64, 4),
    WarpTile(64, 64, 32, 32, 32, 4),
    WarpTile(64, 64, 64, 32, 32, 3),
)

# For channels that are no multiple of eight and not padded to one: few, because padding is seldom slower.
NARROW_TILES = tuple(
    replace(tile, loads=loads)
    for loads in (4, 2)
    for tile in (
        WarpTile(128, 128, 32, 64, 64, 4),
        WarpTile(128, 64, 32, 64, 32, 4),
        WarpTile(128, 32, 64, 32, 32, 4),
        WarpTile(64, 64, 64, 32, 32, 4),
        WarpTile(64, 64, 32, 32, 32, 6),
        WarpTile(128, 128, 32, 64, 64, 2),
        WarpTile(128, 64, 32, 64, 32, 2),
        WarpTile(64, 64, 32, 32, 32, 2),
    )
)

# The model's constants were fitted to 2184 times measured on an H200: it is off by 12% on average, and the tiles that
# it picks for ResNet-50 cost 3% more than the fastest ones at batch 32, 6% at batch 8. Elements that an SM multiplies,
# and reads from shared memory, in a second:
_MULTIPLIES, _READS = 7.24e12, 1.14e11
_STEP = 56e-9
"""Seconds that one block alone waits in a step, however small."""
_L2_RATE = 5.0e10
"""Bytes/s of an SM from the L2 cache."""
_MEMORY = 0.62
"""Part of the stated bandwidth that these kernels reach."""
_WINDOWS = 1.10
# What follows was fitted to 40 kernels of short products besides, off by 9%: seconds of a launch, of a store of
# 128 x 128 results and of each instruction that activations take of one, and in which a block comes and goes; the part
# that shows of what takes less time beside what takes more.
_LAUNCH, _STORE, _FUNCTION, _BLOCK, _OVERLAP = 2.0e-6, 0.88e-6, 2e-8, 0.27e-6, 0.5
_BETWEEN_FUNCTION = 0.9e-7
"""Seconds in which 128 x 128 sums of a first product take an instruction of the activations in front of a second one,
which nothing hides: lanes of an SM, at four in five of its cycles. A guess."""
_BEHIND, _BEHIND_FROM = 0.3e-6, 1e-6
"""Seconds that a kernel takes beside its launch and its work, and the seconds of work from which on it takes all of
them. Fitted to the same 404 products as WGMMA kernels."""
_MEASURED_RATE = HOPPER.warp_mma_share * FITTED.rate("fp16") / HOPPER.sms
"""Operations/s that an SM of the H200 reaches with the instructions of these kernels."""


_NARROW_LOADS = {WHOLE: 1.0, 4: 1.3, 2: 1.8}
"""How many times as long a step takes with loads of fewer elements. From the ratios of padded to unpadded kernels in
the paper's Table 3, not fitted to an H200."""


def seconds(tile: WarpTile, work: Work, target: Target, then: tuple[int, int] | None = None) -> float:
    """Predicted time: the busiest SM's blocks, or the bytes from memory or from L2, whichever takes longest.

    `then`: columns of a block and of a warp in a second product behind every tile, whose A operand is the tile, and
    which is stored instead.
    """
    gpu = target.gpu
    assert gpu is not None
    speed = gpu.warp_mma_share * target.rate("fp16") / gpu.sms / _MEASURED_RATE
    steps = ceil(work.taps * ceil(work.depth / tile.k) / work.slices)
    blocks = tile.blocks(work.m, work.n) * work.slices
    rounds = ceil(blocks / gpu.sms)
    resident = min(_resident(tile, gpu), rounds)
    products = tile.m * tile.n * tile.k / _MULTIPLIES
    reads = tile.k * (tile.warp_m + tile.warp_n) * tile.warps / _READS
    busy = (products + reads) / speed
    step = max(busy, (busy + _STEP) / resident) * (_WINDOWS if work.windowed else 1.0)
    compute = rounds * steps * step * _NARROW_LOADS[tile.loads]
    memory = work.nbytes / (_MEMORY * target.bandwidth)
    traffic = blocks * steps * (tile.m + tile.n) * tile.k * 2 / (_L2_RATE * gpu.sms)
    stored = tile.n // work.sides
    if then is not None:
        stored, warp_n = then
        second = tile.m * tile.n * stored / _MULTIPLIES + tile.n * (tile.warp_m + warp_n) * tile.warps / _READS
        between = _BETWEEN_FUNCTION * work.between * tile.m * tile.n / (128 * 128)
        compute += rounds * (second + between) / speed
        traffic += blocks * stored * tile.n * 2 / (_L2_RATE * gpu.sms)
    size = tile.m * stored / (128 * 128)
    store = ceil(rounds / resident) * _STORE * size + rounds * (_BLOCK + _FUNCTION * size * work.functions / speed)
    taken = max(compute, memory, traffic) + _OVERLAP * min(compute, memory) + store
    return _LAUNCH + taken + _BEHIND * min(1.0, taken / _BEHIND_FROM)


def _resident(tile: WarpTile, gpu: Gpu) -> int:
    """Blocks that one SM holds at once."""
    threads = 32 * tile.warps
    by_shared = gpu.shared_memory // (tile.shared_bytes + 1024)
    by_registers = gpu.registers // (min(tile.registers, 255) * threads)
    return max(1, min(by_shared, by_registers, 2048 // threads))
