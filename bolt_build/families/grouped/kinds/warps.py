"""Predicted time of blocks whose warps multiply on tensor cores: what they keep busy together, and what each waits for
by itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.families.grouped.kind import Load, gpu_of, norm, occupancy
from bolt_build.families.grouped.shape import Shape, aligned, wide
from bolt_build.targets import Target

# Fitted to 45 times of an H200, of kernels that took 50 instructions a copy and 90 a store.
_ISSUED = 0.51
"""Part of a multiprocessor's instructions that several warps reach."""
_REACHED = 0.57
"""Part of what tensor cores and shared memory give that they reach."""
_BEGIN = 1.2e-6
"""Seconds until the first halo of blocks in turn is there."""
_MEMORY, _L2 = 1.2, 2.0
"""What the bytes of all tensors take, in the time that the bandwidth says; and the L2 cache's bandwidth in memory's."""
_STORE = 880
"""Clocks that a warp waits until 16 positions are stored, beside its instructions."""
_SECTOR = 32
"""Bytes that memory and caches give at once."""
# Counted in what nvcc made for an H200.
_COPY, _COLUMN, _STORED = 10, 45, 40
"""Instructions of a copy to a halo, of a column of them, and of a store, beside those of each number."""


@dataclass(frozen=True)
class Work:
    """What a block's tile asks of a multiprocessor: clocks of its tensor cores (`products`) and of its shared memory
    (`shared`), `instructions` of all its warps, and those of the warp that has most of them (`longest`); and the clocks
    that this one `waits` beside them."""

    products: float
    shared: float
    instructions: float
    longest: float
    waits: float


def clocks_a_second(target: Target) -> float:
    """Of a multiprocessor, which has 128 multiplications of fp32 in each."""
    return target.rate("fp32") / 2 / gpu_of(target).sms / 128


def product_clocks(operations: float, target: Target) -> float:
    """Clocks of a multiprocessor's tensor cores for so many operations by instructions of one warp."""
    gpu = gpu_of(target)
    return operations * gpu.sms * clocks_a_second(target) / (target.rate("fp16") * gpu.warp_mma_share)


def copied(shape: Shape, units: int, rows: int, columns: int, channels: int) -> float:
    """Instructions of warps that copy a halo of so many rows and columns, each of `units` times `channels`."""
    lines = columns * units * ceil(channels / wide(channels, shape.channels)) / 32
    return lines * (_COPY * rows + _COLUMN)


def read_bytes(pixels: int, channels: int) -> int:
    """Bytes that come from memory for so many pixels of so many channels, in whole sectors."""
    return pixels * aligned(2 * channels, _SECTOR)


def stored(shape: Shape, positions: int, results: int, made: int) -> float:
    """Instructions of warps that store `results` of each of so many positions; `made` follow each other."""
    access = wide(made, shape.filters)
    return positions * results / access / 32 * (_STORED + access * max(0, shape.epilogue - 2))


def store_waits(fragments: int) -> float:
    """Clocks that a warp waits for stores of so many times 16 positions."""
    return _STORE * fragments


def seconds_of(shape: Shape, load: Load, work: Work, blocks: int, run: int, target: Target) -> float:
    """Predicted time of `blocks` blocks of `run` tiles, each of which reads `load.read` bytes; and a launch."""
    gpu = gpu_of(target)
    busiest = ceil(blocks / gpu.sms)
    together = min(busiest, occupancy(load, gpu))
    full, left = divmod(busiest, together)
    shared = max(work.instructions / 4 / _ISSUED, work.products / _REACHED, work.shared / _REACHED)
    alone = work.longest + work.waits
    turns = (*[together] * full, *([left] if left else []))
    clocks = run * sum(norm((count * shared, alone)) for count in turns)
    computed = clocks / clocks_a_second(target) + _BEGIN * len(turns)
    memory = _MEMORY * shape.nbytes / target.bandwidth
    halos = (load.read * blocks + shape.nbytes - shape.input_bytes) / (_L2 * target.bandwidth)
    return norm((memory, halos, computed)) + target.launch_seconds
