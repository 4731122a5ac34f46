"""How a GPU reduces runs of neighbours that begin anywhere: threads read whole words, and leave out what is beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.kernels.reductions.folds import (
    LOADS,
    Nest,
    Work,
    emit_fold,
    neighbours_are_taken,
    nest_of,
    refuse,
    refuse_blocks,
    seconds_of,
    shares,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

ACROSS = (1, 2, 4, 8, 16, WARP)
"""Threads that read a run side by side, and that a warp may have a result of."""
MOST_SHARED = 1024
"""Results that clusters share: more are blocks enough by themselves."""


@dataclass(frozen=True)
class RunsTile(NumberTile):
    """Of each result `threads` threads take runs of neighbours, `across` of them each; `blocks` blocks share it."""

    SETTINGS = ("blocks",)

    across: int
    threads: int
    blocks: int

    def words(self, nest: Nest) -> int:
        """Of a run, wherever it begins."""
        beside = 0 if nest.aligned else nest.lanes - 1
        return ceil((nest.folded[-1].extent + beside) / nest.lanes)

    def pieces(self, nest: Nest) -> int:
        """Of a run, each of which its threads read at once."""
        return ceil(self.words(nest) / (self.across * LOADS))

    def items(self, nest: Nest) -> int:
        """Pieces of a result."""
        return self.pieces(nest) * prod(loop.extent for loop in nest.folded[:-1])

    def tiles(self, nest: Nest) -> int:
        return ceil(nest.results * self.threads / BLOCK)


def tiles(nest: Nest, gpu: Gpu) -> Iterator[RunsTile]:
    """Cuts whose threads have words of their own, or are the fewest; several blocks where threads of one have some."""
    for across in ACROSS:
        for threads in (*ACROSS, BLOCK):
            tile = RunsTile(across, threads, 1)
            items, groups = tile.items(nest), threads // across
            idle = (across > 1 and tile.words(nest) <= across // 2) or (groups > 1 and items <= groups // 2)
            if threads < across or idle:
                continue
            most = max(items // groups, 1) if threads == BLOCK else 1
            for blocks in shares(tile.tiles(nest), most, gpu):
                yield RunsTile(across, threads, blocks)


def refuse_tile(tile: RunsTile, nest: Nest) -> str | None:
    if tile.across not in ACROSS or tile.threads not in (*ACROSS, BLOCK) or tile.threads < tile.across:
        return Reason("{} threads of a result do not read runs by {}", tile.threads, tile.across)
    if tile.blocks > 1 and tile.threads < BLOCK:
        return "blocks share a result that all of their threads have"
    return refuse_blocks(tile.blocks, tile.tiles(nest), tile.items(nest))


_WORD, _APART, _STEP, _PIECE, _RESULT, _JOIN = 11, 58, 2.1, 28, 43, 7
"""Instructions of a word, what it takes if no neighbour of its thread reads the next one, instructions of
each of its elements, of a piece, of a thread's result, and of each joining of two totals."""


def work_of(tile: RunsTile, nest: Nest) -> Work:
    items, groups = tile.items(nest), tile.threads // tile.across
    rounds = ceil(ceil(items / tile.blocks) / groups)
    words = tile.words(nest) * prod(loop.extent for loop in nest.folded[:-1])
    threads = nest.results * tile.blocks * tile.threads
    asked = threads * rounds * LOADS
    piece = LOADS * (_WORD + _APART / tile.across + nest.lanes * (_STEP + nest.further)) + _PIECE
    each = rounds * piece + _RESULT + _JOIN * log2(tile.threads)
    blocks = tile.tiles(nest) * tile.blocks
    joins = ceil(tile.blocks / BLOCK) if tile.blocks > 1 else 0
    return Work(blocks, rounds, words * nest.results / asked, threads * each, joins)


def _seconds(problem: KernelProblem, tile: RunsTile, target: Target) -> float:
    return seconds_of(problem, work_of(tile, nest_of(problem)), target)


CLUSTERS, MEETS = (2, 4, 8), 1.7e-6
"""Blocks of a cluster; and seconds in which these begin together, meet twice and read each other's totals: an H200 took
as long for them as for blocks that count."""


@dataclass(frozen=True)
class RunClusterTile(NumberTile):
    """A cluster of so many blocks has a result, of whose runs `across` threads take one side by side."""

    across: int
    cluster: int

    @property
    def runs(self) -> RunsTile:
        return RunsTile(self.across, BLOCK, self.cluster)


def _refuse_clusters(problem: KernelProblem, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if (total := nest_of(problem).total) % 4:
        return Reason("totals of {} bytes are no words that blocks read of each other", total)
    return refuse(problem, gpu)


def _results_are_few(problem: KernelProblem) -> bool:
    """Whether blocks that have one each would not be many."""
    return neighbours_are_taken(problem) and 0 < nest_of(problem).results <= MOST_SHARED and nest_of(problem).count > 0


def _cluster_tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[RunClusterTile]:
    nest = nest_of(problem)
    for across in ACROSS[2:]:
        for cluster in CLUSTERS:
            tile = RunClusterTile(across, cluster)
            if refuse_cluster(tile, nest) is None:
                yield tile


def refuse_cluster(tile: RunClusterTile, nest: Nest) -> str | None:
    if tile.across not in ACROSS or tile.cluster not in CLUSTERS:
        return "up to 32 threads read a run, of clusters of 2, 4 or 8 blocks"
    if tile.cluster * (BLOCK // tile.across) > (items := tile.runs.items(nest)):
        return Reason("{} parts of a result are not shared by {} blocks", items, tile.cluster)
    return None


def _seconds_of_clusters(problem: KernelProblem, tile: RunClusterTile, target: Target) -> float:
    """As of blocks that leave totals in memory, but for that."""
    work = replace(work_of(tile.runs, nest_of(problem)), joins=0)
    return seconds_of(problem, work, target) + MEETS


def _emit_clusters(problem: KernelProblem, tile: RunClusterTile, at: StepExpressions) -> StepCode:
    code = emit_fold(problem, at, "fold_run_clusters", (tile.across, tile.cluster), 1, 0)
    return replace(code, includes=("bolt_portable/cuda/reductions/fold_runs.h",))


def _emit(problem: KernelProblem, tile: RunsTile, at: StepExpressions) -> StepCode:
    how, totals = (tile.across, tile.threads), nest_of(problem).results * tile.blocks
    return emit_fold(problem, at, "fold_runs", how, tile.blocks, totals)


FORM: Form[RunsTile] = Form(
    "runs",
    neighbours_are_taken,
    refuse,
    lambda problem, gpu: tiles(nest_of(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, nest_of(problem)),
    _seconds,
    RunsTile.read,
    _emit,
)
SHARED: Form[RunClusterTile] = Form(
    "run_clusters",
    _results_are_few,
    _refuse_clusters,
    _cluster_tiles,
    lambda problem, tile, gpu: refuse_cluster(tile, nest_of(problem)),
    _seconds_of_clusters,
    RunClusterTile.read,
    _emit_clusters,
)
