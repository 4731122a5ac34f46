"""How a GPU reduces over the pixels of images of odd channels: an image is a run of whole words, none of which is
shifted or read twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.kernels.reductions.folds import (
    LOADS,
    Nest,
    Work,
    emit_fold,
    neighbours_are_kept,
    nest_of,
    refuse,
    refuse_blocks,
    seconds_of,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

THREADS = (256, 512)
_BATCH = 8
"""Words that a thread asks for at once."""
_WAVES = (1, 2, 4, 8)
"""Blocks of a multiprocessor that are tried where they share images."""
_MOST_SHARED = 48 << 10
"""Bytes of totals of a block's threads."""


@dataclass(frozen=True)
class PixelsTile(NumberTile):
    """Blocks of so many `threads`, `blocks` of which share an image."""

    SETTINGS = ("blocks",)

    threads: int
    blocks: int

    def active(self, nest: Nest) -> int:
        """Threads that have words: those of whole periods."""
        return self.threads // period_of(nest) * period_of(nest)

    def turns(self, nest: Nest) -> int:
        """Words of a thread."""
        return ceil(ceil(words_of(nest) / self.blocks) / self.active(nest))

    def shared(self, nest: Nest) -> int:
        """Bytes of shared memory of a block."""
        return self.active(nest) * nest.lanes * nest.total


def period_of(nest: Nest) -> int:
    """Words after which channels repeat."""
    columns = nest.kept[-1].extent
    return columns // gcd(columns, nest.lanes)


def words_of(nest: Nest) -> int:
    """Words of an image, which may begin inside of one."""
    return nest.count * nest.kept[-1].extent // nest.lanes + 2


def images_of(nest: Nest) -> int:
    return nest.results // nest.kept[-1].extent


def serves(problem: KernelProblem) -> bool:
    """Pixels that follow each other without a gap, of channels that no word divides."""
    if not neighbours_are_kept(problem):
        return False
    nest = nest_of(problem)
    *outer, columns = nest.kept
    pixels = len(nest.folded) == 1 and nest.folded[0].steps[0] == columns.extent
    images = len(outer) <= 1 and all(loop.steps[0] == nest.count * columns.extent for loop in outer)
    return pixels and images and columns.extent % nest.lanes != 0


def refuse_period(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why no block has whole periods of words, None where one does."""
    if (reason := refuse(problem, gpu)) is not None:
        return reason
    if (period := period_of(nest_of(problem))) > THREADS[-1]:
        return Reason("channels repeat after {} words, a block has {} threads at most", period, THREADS[-1])
    return None


def tiles(nest: Nest, gpu: Gpu) -> Iterator[PixelsTile]:
    """One block an image, and where images are few as many as keep a GPU busy, without a round of a few more."""
    images = images_of(nest)
    for threads in THREADS:
        if period_of(nest) > threads:
            continue
        most = ceil(words_of(nest) / PixelsTile(threads, 1).active(nest))
        several = (min(waves * gpu.sms // images, most) for waves in _WAVES) if images <= MOST_COUNTERS else ()
        yield from (PixelsTile(threads, blocks) for blocks in dict.fromkeys((1, *several)) if blocks)


def refuse_block(tile: PixelsTile, nest: Nest) -> str | None:
    """Why there are no such blocks for the nest, None where there are."""
    if tile.threads not in THREADS:
        return "there are blocks of 256 or 512 threads"
    if (period := period_of(nest)) > tile.threads:
        return Reason("channels repeat after {} words, a block has {} threads", period, tile.threads)
    if (nbytes := tile.shared(nest)) > _MOST_SHARED:
        return Reason("totals of {} bytes are more than the {} of a block", nbytes, _MOST_SHARED)
    return None


def refuse_tile(tile: PixelsTile, nest: Nest) -> str | None:
    if (reason := refuse_block(tile, nest)) is not None:
        return reason
    return refuse_blocks(tile.blocks, images_of(nest), ceil(words_of(nest) / tile.active(nest)))


_WORD, _STEP, _RESULT, _JOIN = 9, 2.1, 90, 14
"""Instructions of a word, of each of its elements, of a thread's results, and of each total that it joins:
counted in the kernels' code."""
_JOINED_AT_ONCE = 128
"""Of `joined_blocks`: bytes of other blocks' totals that a thread asks for at once."""
THREAD = 0.5e-9
"""A guess at the seconds in which each thread of a block waits for the others."""


def work_of(tile: PixelsTile, nest: Nest) -> Work:
    """Of blocks that leave their totals in memory."""
    blocks, turns = images_of(nest) * tile.blocks, tile.turns(nest)
    rounds = ceil(turns / _BATCH)
    used = words_of(nest) / (tile.blocks * tile.threads * rounds * _BATCH)
    under_way = used * _BATCH / LOADS * tile.threads / BLOCK
    joining = min(WARP, 1 << max(0, int(log2(tile.threads / nest.kept[-1].extent))))
    join = _JOIN * tile.active(nest) * nest.lanes / tile.threads
    each = turns * (_WORD + nest.lanes * (_STEP + 2 * nest.further)) + _RESULT + join
    joins = ceil(tile.blocks * nest.total / (joining * _JOINED_AT_ONCE)) if tile.blocks > 1 else 0
    return Work(blocks, rounds, under_way, blocks * tile.threads * each, joins)


def _seconds(problem: KernelProblem, tile: PixelsTile, target: Target) -> float:
    """As other folds behave, whose constants follow times of an H200. It timed this one later, and none is fitted to
    that."""
    return seconds_of(problem, work_of(tile, nest_of(problem)), target) + THREAD * tile.threads


def _emit(problem: KernelProblem, tile: PixelsTile, at: StepExpressions) -> StepCode:
    nest = nest_of(problem)
    how = tile.threads, nest.kept[-1].extent
    return emit_fold(problem, at, "fold_pixels", how, tile.blocks, nest.results * tile.blocks)


FORM: Form[PixelsTile] = Form(
    "pixels",
    serves,
    refuse_period,
    lambda problem, gpu: tiles(nest_of(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, nest_of(problem)),
    _seconds,
    PixelsTile.read,
    _emit,
)
