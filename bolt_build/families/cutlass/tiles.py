"""Tiles of the tensor-core kernels: which are legal on a GPU, and how long a product takes with each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from bolt_build.targets import Gpu, Target

WHOLE = 8
"""Half-precision elements of the widest load, 16 bytes."""


@dataclass(frozen=True)
class Tile:
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


# Measured on an H200 over convolutions of ResNet-50, VGG and RepVGG at batches 1 to 128: these come within a hundredth
# of the best of twenty.
TILES = (
    Tile(128, 128, 32, 64, 64, 4),
    Tile(128, 128, 64, 64, 64, 4),
    Tile(128, 256, 64, 64, 64, 3),
    Tile(256, 128, 64, 64, 64, 3),
    Tile(256, 64, 32, 64, 64, 4),
    Tile(64, 256, 64, 64, 64, 4),
    Tile(128, 64, 64, 64, 32, 4),
    Tile(128, 64, 32, 64, 32, 6),
    Tile(64, 128, 64, 32, 64, 4),
    Tile(128, 32, 64, 32, 32, 4),
    Tile(64, 64, 64, 32, 32, 5),
    Tile(64, 64, 32, 32, 32, 6),
    # Two stages are all that GPUs without asynchronous copies to shared memory can have.
    Tile(256, 128, 32, 64, 64, 2),
    Tile(128, 256, 32, 64, 64, 2),
    Tile(128, 128, 32, 64, 64, 2),
    Tile(128, 64, 32, 64, 32, 2),
    Tile(64, 128, 32, 32, 64, 2),
    Tile(64, 64, 32, 32, 32, 2),
    # Under 99 KB of shared memory.
    Tile(128, 128, 64, 64, 64, 3),
    Tile(64, 128, 64, 32, 64, 3),
    Tile(128, 64, 64, 64, 32, 3),
    Tile(64, 64, 64, 32, 32, 4),
    # Seldom the best, now and then by a little.
    Tile(128, 256, 32, 64, 64, 3),
    Tile(256, 128, 32, 64, 64, 3),
    Tile(64, 256, 32, 64, 64, 4),
    Tile(256, 32, 32, 64, 32, 4),
    Tile(128, 128, 32, 64, 64, 3),
    Tile(128, 128, 32, 32, 64, 4),
    Tile(128, 64, 32, 64, 32, 4),
    Tile(128, 64, 64, 32, 32, 4),
    Tile(64, 128, 32, 32, 64, 5),
    Tile(64, 128, 32, 32, 64, 4),
    Tile(64, 64, 32, 32, 32, 4),
    Tile(64, 64, 64, 32, 32, 3),
)

# For channels that are no multiple of eight and not padded to one: few, because padding is seldom slower.
NARROW_TILES = tuple(
    replace(tile, loads=loads)
    for loads in (4, 2)
    for tile in (
        Tile(128, 128, 32, 64, 64, 4),
        Tile(128, 64, 32, 64, 32, 4),
        Tile(128, 32, 64, 32, 32, 4),
        Tile(64, 64, 64, 32, 32, 4),
        Tile(64, 64, 32, 32, 32, 6),
        Tile(128, 128, 32, 64, 64, 2),
        Tile(128, 64, 32, 64, 32, 2),
        Tile(64, 64, 32, 32, 32, 2),
    )
)

REGISTERS = 128
"""Registers of a thread that sums may take: with more, addresses and fragments go to memory and back."""


_NARROW = 32


def wasted_rows(rows: int, of: int) -> str | None:
    """Why a tile of so many rows is none for a product of so many, None where it is one."""
    return f"over half of its rows would be beyond the {of} of the product" if rows > 2 * max(of, 32) else None


def refuse(tile: Tile, gpu: Gpu, columns: int) -> str | None:
    """Why the tile is none for a product of so many columns on this GPU, None where it is one."""
    if tile.n > 2 * max(columns, _NARROW):
        return f"over half of its columns would be beyond the {columns} of the product"
    if tile.n <= _NARROW < columns:
        return f"a narrow tile reads the rows again for every {tile.n} of {columns} columns"
    if tile.warps not in (4, 8):
        return f"is computed by {tile.warps} warps, 4 or 8 keep an SM busy"
    if tile.accumulators > REGISTERS:
        return f"its sums take {tile.accumulators} registers of a thread, over {REGISTERS} do not stay in them"
    if tile.shared_bytes > gpu.shared_memory:
        return f"needs {tile.shared_bytes} bytes of shared memory, a block has {gpu.shared_memory}"
    if not gpu.async_copies and tile.stages > 2:
        return "more than two stages need asynchronous copies to shared memory"
    if gpu.async_copies and tile.stages == 2:
        return "two stages leave asynchronous copies to shared memory unused"
    return None


@dataclass(frozen=True)
class Work:
    """A product y[m, n] over taps times depth: `windowed` where x is gathered by windows, `nbytes` what must move.

    `slices` of the depth are computed apart.
    """

    m: int
    n: int
    depth: int
    taps: int
    windowed: bool
    nbytes: int
    slices: int = 1


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
_LAUNCH, _STORE, _WINDOWS, _OVERLAP = 4.4e-6, 1.05e-6, 1.10, 0.3
_MEASURED_RATE = 0.62 * 989e12 / 132
"""Operations/s that an SM of the H200 reaches with the instructions of these kernels."""


_NARROW_LOADS = {WHOLE: 1.0, 4: 1.3, 2: 1.8}
"""How many times as long a step takes with loads of fewer elements. From the ratios of padded to unpadded kernels in
the paper's Table 3, not fitted to an H200."""


def seconds(tile: Tile, work: Work, target: Target, then: tuple[int, int] | None = None) -> float:
    """Predicted time: the busiest SM's blocks, or the bytes from memory or from L2, whichever takes longest.

    `then`: columns of a block and of a warp in a second product behind every tile, whose left factor is the tile, and
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
    stored = tile.n
    if then is not None:
        stored, warp_n = then
        second = tile.m * tile.n * stored / _MULTIPLIES + tile.n * (tile.warp_m + warp_n) * tile.warps / _READS
        compute += rounds * second / speed
        traffic += blocks * stored * tile.n * 2 / (_L2_RATE * gpu.sms)
    store = ceil(rounds / resident) * _STORE * tile.m * stored / (128 * 128)
    return _LAUNCH + max(compute, memory, traffic) + _OVERLAP * min(compute, memory) + store


def _resident(tile: Tile, gpu: Gpu) -> int:
    """Blocks that one SM holds at once."""
    threads = 32 * tile.warps
    by_shared = gpu.shared_memory // (tile.shared_bytes + 1024)
    by_registers = gpu.registers // (min(tile.registers, 255) * threads)
    return max(1, min(by_shared, by_registers, 2048 // threads))
