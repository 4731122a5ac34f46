"""How a GPU reduces short runs of neighbours that follow each other: many of them are one run of memory, which comes to
shared memory in whole words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.kernels.reductions.folds import Nest, emit_fold, neighbours_are_taken, nest_of, refuse
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Target

THREADS = (1, 2, 4, 8, 16, WARP)
"""Threads that may have a run."""
_MOST = 128
"""Elements of a run: threads of a warp have words of longer ones side by side."""
_SHARED = 48 << 10
"""Bytes of a block's slab."""
_TURNS = (1, 2, 4, 8)
"""Runs of each thread that are tried."""
_LEAST, _MOST_LOADS = 256, 8
"""Words of a slab that are worth a block, and those that a thread asks for at once."""


@dataclass(frozen=True)
class SlabTile(NumberTile):
    """`threads` threads have a run, and a block has so many `lines`, one behind the other."""

    threads: int
    lines: int

    def words(self, nest: Nest) -> int:
        return self.lines * nest.count // nest.lanes + 1

    def loads(self, nest: Nest) -> int:
        """Words of a thread."""
        return ceil(self.words(nest) / BLOCK)

    def shared(self, nest: Nest) -> int:
        return self.loads(nest) * BLOCK * 16


def serves(problem: KernelProblem) -> bool:
    """Short runs that are all of the tensor, one behind the other."""
    if not neighbours_are_taken(problem):
        return False
    nest = nest_of(problem)
    if len(nest.folded) != 1 or not nest.kept or not 0 < nest.count <= _MOST:
        return False
    step = nest.count
    for loop in reversed(nest.kept):
        if loop.steps[0] != step:
            return False
        step *= loop.extent
    return True


def tiles(nest: Nest) -> Iterator[SlabTile]:
    """Slabs that give most threads a word, and no thread more than it asks for at once."""
    for threads in THREADS:
        for turns in _TURNS:
            tile = SlabTile(threads, BLOCK // threads * turns)
            busy = tile.words(nest) > _LEAST // 2 and tile.loads(nest) <= _MOST_LOADS
            if busy and threads <= max(nest.count // 2, 1) and tile.lines % nest.lanes == 0:
                yield tile


def refuse_tile(tile: SlabTile, nest: Nest) -> str | None:
    if tile.threads not in THREADS or tile.lines % (BLOCK // tile.threads) != 0:
        return Reason("{} runs of {} threads each are no turns of a block of {}", tile.lines, tile.threads, BLOCK)
    if tile.lines % nest.lanes != 0:
        return Reason("{} runs are no multiple of the {} elements of a word", tile.lines, nest.lanes)
    if (nbytes := tile.shared(nest)) > _SHARED:
        return Reason("slabs of {} bytes are more than the {} of a block", nbytes, _SHARED)
    return None


_WAIT = 1.3e-6
"""Seconds between an ask for words and their end in memory, on a busy GPU."""
_WORD, _ELEMENT, _GROUP, _LINE, _JOIN = 9, 2.1, 1.6, 24, 3
"""Instructions of a word, of an element, of what a thread reads at once, of a run and of each joining of two totals."""
_ISSUED = 128 * 1.6e9
"""Instructions of threads that a multiprocessor begins in a second."""
_BANKS = 1.6e9 * 0.85
"""Accesses of warps to shared memory that a multiprocessor ends in a second, where no two lanes meet in a bank."""
_APART, _TAIL = 0.1, 0.4
"""The part of what is not the longest that does not go on beside it, and that of a wave of blocks in which the last
ones are alone. All follow 24 times of an H200, which were memory's but for few blocks and lanes that meet."""
_MET = 0.3e-6
"""Seconds in which the threads of a block meet behind their loads."""
_REGISTERS = 48


def together(nest: Nest) -> int:
    """Elements that a thread reads at once."""
    return 2 if nest.element == 2 and nest.count % 2 == 0 else 1


@lru_cache(maxsize=4096)
def conflicts(count: int, threads: int, size: int) -> int:
    """Lanes of a warp that meet in one bank of shared memory, each with a word of its own, where `count` groups of
    `size` bytes are a run and `threads` lanes have one."""
    words = {(lane // threads * count + lane % threads) * size // 4 for lane in range(WARP)}
    return max(Counter(word % WARP for word in words).values())


def _seconds(problem: KernelProblem, tile: SlabTile, target: Target) -> float:
    nest, gpu = nest_of(problem), target.gpu
    assert gpu is not None, "folds are for GPUs"
    blocks = ceil(nest.results / tile.lines)
    resident = min(occupancy(BLOCK, _REGISTERS, tile.shared(nest), gpu), blocks / gpu.sms)
    reached = min(1.0, resident * tile.words(nest) * 16 * gpu.sms / (_WAIT * target.bandwidth))
    groups = ceil(nest.count / together(nest) / tile.threads)
    each = groups * (_GROUP + together(nest) * (_ELEMENT + 2 * nest.further)) + _LINE + _JOIN * log2(tile.threads)
    instructions = blocks * (tile.lines * tile.threads * each + tile.loads(nest) * BLOCK * _WORD)
    busy = min(1.0, blocks / gpu.sms)
    size = together(nest) * nest.element
    meets = conflicts(nest.count // together(nest), tile.threads, size) * max(1, size // 4)
    accesses = blocks * (tile.lines * tile.threads / WARP * groups * meets + 4 * tile.words(nest) / WARP)
    times = (
        moved(problem.nbytes, target) / reached,
        instructions / (_ISSUED * gpu.sms * busy),
        accesses / (_BANKS * gpu.sms * busy),
    )
    waves = max(1.0, blocks / (max(resident, 1.0) * gpu.sms))
    whole = (max(times) + _APART * (sum(times) - max(times))) * (1 + _TAIL / waves)
    return whole + OVERLAPPED * target.launch_seconds + _MET


def _emit(problem: KernelProblem, tile: SlabTile, at: StepExpressions) -> StepCode:
    return emit_fold(problem, at, "fold_slabs", (tile.threads, nest_of(problem).count, tile.lines), 1, 0)


FORM: Form[SlabTile] = Form(
    "slabs",
    serves,
    refuse,
    lambda problem, gpu: tiles(nest_of(problem)),
    lambda problem, tile, gpu: refuse_tile(tile, nest_of(problem)),
    _seconds,
    SlabTile.read,
    _emit,
)
