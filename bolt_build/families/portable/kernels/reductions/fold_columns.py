"""How a GPU reduces across neighbours whose rows begin anywhere: a thread has a word of results, and shifts words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import BLOCK
from bolt_build.families.portable.kernels.reductions.folds import (
    LOADS,
    WORD,
    Nest,
    Work,
    emit_fold,
    neighbours_are_kept,
    nest_of,
    refuse,
    refuse_blocks,
    seconds_of,
    shares,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

ACROSS = (4, 8, 16, 32, 64, 128, 256)
"""Threads of a block that lie side by side."""


@dataclass(frozen=True)
class ColumnsTile(NumberTile):
    """Of a block's threads `across` have words of results side by side, the others share these; `blocks` blocks too."""

    SETTINGS = ("blocks",)

    across: int
    blocks: int

    @property
    def parts(self) -> int:
        """Threads of a block that share a word of results."""
        return BLOCK // self.across

    def tiles(self, nest: Nest) -> int:
        return ceil(words_of(nest) / self.across)


def words_of(nest: Nest) -> int:
    """Words of results: the last one of a row may be only a part."""
    return ceil(nest.kept[-1].extent / nest.lanes) * prod(loop.extent for loop in nest.kept[:-1])


def tiles(nest: Nest, gpu: Gpu) -> Iterator[ColumnsTile]:
    """Cuts whose threads have an element each at least; several blocks where threads have some."""
    for across in ACROSS:
        tile = ColumnsTile(across, 1)
        if tile.parts > 1 and nest.count <= tile.parts // 2:
            continue
        for blocks in shares(tile.tiles(nest), max(nest.count // tile.parts, 1), gpu):
            yield ColumnsTile(across, blocks)


def refuse_tile(tile: ColumnsTile, nest: Nest) -> str | None:
    if tile.across not in ACROSS:
        return Reason("no {} threads of a block lie side by side", tile.across)
    return refuse_blocks(tile.blocks, tile.tiles(nest), nest.count)


_WORD, _STEP, _RESULT, _SHIFT, _JOIN = 5, 1.45, 64, 16, 6
"""Instructions of a word, of each of its elements, of a thread's results, of a shift, and of each total
that is joined with another one."""


_LINE, _SHORT = 128, 0.85
"""Bytes that memory brings at once, and how many fewer are under way where a block has less of a row: as six kernels of
an H200 had."""
_JOINED_AT_ONCE = 8
"""Totals of other blocks that a thread asked for at once in the kernels that an H200 measured: as many bytes of
floats as a quarter of `joined_blocks`."""


def _seconds(problem: KernelProblem, tile: ColumnsTile, target: Target) -> float:
    nest = nest_of(problem)
    columns = nest.kept[-1].extent
    filled = columns / (ceil(columns / nest.lanes) * nest.lanes)
    rounds = ceil(ceil(nest.count / tile.blocks) / (tile.parts * LOADS))
    blocks = tile.tiles(nest) * tile.blocks
    asked = blocks * BLOCK * rounds * LOADS
    # Of rows that a block has less than a few sectors of, the first and last are read by others too.
    run = min(tile.across * WORD, columns * nest.element)
    used = words_of(nest) * nest.count / asked * filled * run / (run + WORD)
    used *= _SHORT if run < _LINE else 1.0
    word = _WORD + _SHIFT + nest.lanes * (_STEP + nest.further)
    each = rounds * LOADS * word + _RESULT + nest.lanes * _JOIN * log2(2 * tile.parts)
    groups = max(tile.parts // nest.lanes, 1)
    joins = ceil(tile.blocks / (groups * _JOINED_AT_ONCE)) if tile.blocks > 1 else 0
    return seconds_of(problem, Work(blocks, rounds, used, blocks * BLOCK * each, joins), target)


def _emit(problem: KernelProblem, tile: ColumnsTile, at: StepExpressions) -> StepCode:
    nest = nest_of(problem)
    totals = tile.tiles(nest) * tile.blocks * tile.across * nest.lanes
    return emit_fold(problem, at, "fold_columns", (tile.across,), tile.blocks, totals)


FORM: Form[ColumnsTile] = Form(
    "columns",
    neighbours_are_kept,
    refuse,
    lambda problem, gpu: tiles(nest_of(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, nest_of(problem)),
    _seconds,
    ColumnsTile.read,
    _emit,
)
