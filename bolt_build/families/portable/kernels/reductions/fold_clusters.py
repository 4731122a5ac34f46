"""Reductions over the pixels of images as in `fold_pixels`, by clusters of blocks: they read each other's totals, and
none waits for what another has left in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.reductions.fold_pixels import (
    THREAD,
    THREADS,
    PixelsTile,
    period_of,
    refuse_block,
    refuse_period,
    serves,
    words_of,
    work_of,
)
from bolt_build.families.portable.kernels.reductions.folds import Nest, emit_fold, nest_of, seconds_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_CLUSTERS, _WORD = (2, 4, 8), 4
"""Blocks of a cluster, and bytes that one reads of another's totals at least."""
_MEETS = 0.9e-6
"""A guess at the seconds in which blocks of a cluster begin together, meet twice and read each other's totals. With it
two kernels on an H200 took as much less than predicted as those did that count, of the same images."""


@dataclass(frozen=True)
class ClusterTile(NumberTile):
    """A cluster of so many blocks of `threads` has an image."""

    threads: int
    cluster: int

    @property
    def pixels(self) -> PixelsTile:
        return PixelsTile(self.threads, self.cluster)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if (total := nest_of(problem).total) % _WORD:
        return Reason("totals of {} bytes are no words that blocks read of each other", total)
    return refuse_period(problem, gpu)


def _parts(tile: ClusterTile, nest: Nest) -> int:
    """Blocks of an image that have words of their own."""
    return ceil(words_of(nest) / tile.pixels.active(nest))


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ClusterTile]:
    nest = nest_of(problem)
    found = (ClusterTile(threads, cluster) for threads in THREADS for cluster in _CLUSTERS)
    yield from (tile for tile in found if period_of(nest) <= tile.threads and tile.cluster <= _parts(tile, nest))


def _refuse_tile(problem: KernelProblem, tile: ClusterTile, gpu: Gpu) -> str | None:
    nest = nest_of(problem)
    if tile.cluster not in _CLUSTERS:
        return "there are clusters of 2, 4 or 8 blocks"
    if (reason := refuse_block(tile.pixels, nest)) is not None:
        return reason
    if tile.cluster > (parts := _parts(tile, nest)):
        return Reason("{} parts of an image are not shared by {} blocks", parts, tile.cluster)
    return None


def _seconds(problem: KernelProblem, tile: ClusterTile, target: Target) -> float:
    """As blocks that leave totals in memory, but for that."""
    work = replace(work_of(tile.pixels, nest_of(problem)), joins=0)
    return seconds_of(problem, work, target) + THREAD * tile.threads + _MEETS


def _emit(problem: KernelProblem, tile: ClusterTile, at: StepExpressions) -> StepCode:
    how = tile.threads, nest_of(problem).kept[-1].extent, tile.cluster
    return emit_fold(problem, at, "fold_clusters", how, 1, 0)


FORM: Form[ClusterTile] = Form("clusters", serves, _refuse, _tiles, _refuse_tile, _seconds, ClusterTile.read, _emit)
