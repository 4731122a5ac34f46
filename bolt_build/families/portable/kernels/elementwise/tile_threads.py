"""How the threads of a block go through the loops of a tile, and what tiles take."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from math import ceil

from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.targets import Gpu, Target

THREADS, WARP, RESIDENT = 256, 32, 5
"""Threads of a block, and of a warp; and blocks of a multiprocessor that kernels of tiles are compiled for."""
_ISSUED, _HIDDEN = 0.7, 0.28
"""The part of the rate of instructions at which tiles go; and that of the shorter of memory and instructions which the
longer one does not hide: as on an H200."""
_TAIL, _FEWEST = 0.64, 0.1
"""The part of a wave for which the last blocks leave others without work, and the waves below which that grows no more:
as on an H200."""
_MEMORY_CLOCKS = 1 / 15
"""Clocks of a multiprocessor for a byte of memory, of an H100: what tiles are compared with before their prediction."""


def numbers(values: Iterable[int]) -> str:
    """`Numbers` of `boxes.h`, which the compiler knows."""
    return f"bolt::portable::Numbers<{', '.join(map(str, values))}>"


@functools.lru_cache(maxsize=4096)
def threads_along(extents: tuple[int, ...], lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Threads along loops, the innermost first and counted in words of so many elements, and their turns along each: as
    `with_threads` of `boxes.h`. Tiles that lie otherwise in shared memory ask again."""
    room, box, parts = THREADS, list[int](), list[int]()
    for extent in extents:
        many = extent if box else extent // lanes
        parts.append(ceil(many / min(many, room)))
        box.append(ceil(many / parts[-1]))
        room = 1 if parts[-1] > 1 else room // box[-1]
    return tuple(box), tuple(parts)


def _together(memory: float, issued: float, blocks: int, gpu: Gpu) -> float:
    """What both take beside each other, of so many blocks."""
    waves = blocks / (gpu.sms * RESIDENT)
    return (max(memory, issued) + _HIDDEN * min(memory, issued)) * (1 + _TAIL / max(waves, _FEWEST))


def clocks_of(nbytes: float, instructions: float, blocks: int, gpu: Gpu) -> float:
    """Clocks of multiprocessors for so many bytes in all, and instructions of the threads of each block: what tiles of
    one problem are ordered by."""
    return _together(nbytes * _MEMORY_CLOCKS, blocks * instructions / (4 * WARP), blocks, gpu)


def seconds_of(memory: float, instructions: float, blocks: int, least: float, target: Target) -> float:
    """Seconds where bytes take `memory`, threads of each block so many instructions, and a block `least`."""
    assert target.gpu is not None, "tiles are of GPUs"
    issued = blocks * instructions / (target.rate("fp32") / 2) / _ISSUED
    return max(_together(memory, issued, blocks, target.gpu), least) + OVERLAPPED * target.launch_seconds
