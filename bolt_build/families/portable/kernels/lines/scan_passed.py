"""How a GPU finds running sums and products of long lines in one pass, by decoupled look-back: a block leaves the total
of its part of a line, and reads those of the parts in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import BLOCK
from bolt_build.families.portable.kernels.lines.scans import (
    TOTAL,
    ScanColumnsTile,
    Scanned,
    function_of,
    refuse_columns,
    refuse_scan,
    scanned_lines,
    widest,
)
from bolt_build.families.portable.kernels.reductions.folds import WORD
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import CumProd, CumSum
from bolt_build.targets import Gpu, Target

_WORDS = (4, 8)
"""Words of 16 bytes that a thread may have under way."""
_REGISTERS = {4: 80, 8: 128}


@dataclass(frozen=True)
class ScanPassedTile(NumberTile):
    """Threads have so many words each: those of a block are a part of a line. So many blocks have one part after the
    other."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("blocks",)

    words: int
    blocks: int

    def parts(self, lines: Scanned) -> int:
        """Of a line, wherever it begins within a word."""
        lanes = WORD // lines.element
        return ceil(ceil((lines.extent + lanes - 1) / lanes) / (BLOCK * self.words))


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ScanPassedTile]:
    lines = scanned_lines(problem)
    for words in _WORDS:
        tile = ScanPassedTile(words, gpu.sms * occupancy(BLOCK, _REGISTERS[words], 0, gpu))
        if (parts := tile.parts(lines)) > 1:
            yield replace(tile, blocks=min(tile.blocks, lines.many * parts))


def _refuse_counters(lines: int, parts: int) -> str | None:
    counters = 1 + lines * (1 + ceil(parts / 32))
    if counters > MOST_COUNTERS:
        return Reason("{} counters of lines and parts are more than the {} that there are", counters, MOST_COUNTERS)
    return None


def _refuse_tile(problem: KernelProblem, tile: ScanPassedTile, gpu: Gpu) -> str | None:
    if tile.words not in _WORDS:
        return Reason("no thread has {} words", tile.words)
    lines = scanned_lines(problem)
    return _refuse_counters(lines.many, tile.parts(lines))


_REACHED, _BEGIN, _WAIT, _ASKED = 0.66, 2.5e-6, 6.0e-6, 0.8e-6
"""The part of the bandwidth; seconds until the first block has its number and words; those of a block from its words to
those of the next one; and those of a round of totals: as fourteen kernels of an H200 took, within a fourth."""
_AT_ONCE = 4
"""Totals of a round that a thread asks for at once."""


def _seconds_of(
    problem: KernelProblem, waves: float, alone: float, rounds: float, target: Target, shorter: float = 1.0
) -> float:
    """`alone`: the part of a GPU's multiprocessors that have a block; `shorter`: how much longer memory takes for short
    runs."""
    memory = moved(problem.nbytes, target) / _REACHED / alone * shorter
    return float(max(memory, waves * (_WAIT + _ASKED * rounds)) + _BEGIN + OVERLAPPED * target.launch_seconds)


def _seconds(problem: KernelProblem, tile: ScanPassedTile, target: Target) -> float:
    gpu, lines = target.gpu, scanned_lines(problem)
    assert gpu is not None, "forms are for GPUs"
    parts, there = tile.parts(lines), occupancy(BLOCK, _REGISTERS[tile.words], 0, gpu)
    blocks = lines.many * parts
    waves = max(1.0, blocks / min(tile.blocks, gpu.sms * there))
    return _seconds_of(problem, waves, min(1.0, blocks / gpu.sms), parts / (BLOCK * _AT_ONCE), target)


def _emit(problem: KernelProblem, tile: ScanPassedTile, at: StepExpressions) -> StepCode:
    op, lines, (function, first) = problem.op, scanned_lines(problem), function_of(problem)
    assert isinstance(op, CumSum | CumProd)
    how = f"{tile.words}, {boolean(op.reverse)}, {ctype(problem.inputs[0].format.dtype)}, {function}"
    extents = f"{lines.many}, {lines.extent}, {tile.blocks}"
    given = f"{extents}, {boolean(op.exclusive)}, {at.inputs[0]}, {at.outputs[0]}, {first}"
    call = f"bolt::portable::scan_passed<{how}>(r, {given});"
    return _code("scan_passed", lines.many * tile.parts(lines), call)


def _code(name: str, totals: int, call: str) -> StepCode:
    header = (f"bolt_portable/cuda/lines/{name}.h", "bolt_portable/cuda/shared_totals.h")
    return StepCode(header, "bolt::portable::SharedTotals", str(totals * TOTAL), call, counts=True)


_ACROSS, _COLUMN_REGISTERS, _COLUMNS_AT_ONCE = (8, 16, 32), 80, 8
"""Threads side by side that are tried, registers of a thread, and totals asked for at once."""


@dataclass(frozen=True)
class ScanPassedColumnsTile(ScanColumnsTile):
    """The same threads, with eight rows each, or more of narrow words: those of a block are a part of its lines."""

    def held(self, element: int) -> int:
        word = self.lanes * element
        return 8 if word >= 8 else 16 if word >= 4 else 32


def _slabs(lines: Scanned, tile: ScanPassedColumnsTile) -> int:
    return ceil(lines.many / tile.lanes / tile.across)


def _parts(lines: Scanned, tile: ScanPassedColumnsTile) -> int:
    return ceil(lines.extent / (BLOCK // tile.across * tile.held(lines.element)))


def _columns(problem: KernelProblem, gpu: Gpu) -> Iterator[ScanPassedColumnsTile]:
    lines = scanned_lines(problem)
    tiles = (ScanPassedColumnsTile(widest(lines), across) for across in _ACROSS)
    yield from (tile for tile in tiles if _parts(lines, tile) > 1)


def _refuse_column(problem: KernelProblem, tile: ScanPassedColumnsTile, gpu: Gpu) -> str | None:
    lines = scanned_lines(problem)
    if (why := refuse_columns(tile, lines)) is not None:
        return why
    return _refuse_counters(_slabs(lines, tile), _parts(lines, tile))


def _seconds_of_columns(problem: KernelProblem, tile: ScanPassedColumnsTile, target: Target) -> float:
    gpu, lines = target.gpu, scanned_lines(problem)
    assert gpu is not None, "forms are for GPUs"
    parts, slots = _parts(lines, tile), tile.across * tile.lanes
    blocks, there = _slabs(lines, tile) * parts, occupancy(BLOCK, _COLUMN_REGISTERS, 0, gpu)
    rounds = ceil(parts / max(BLOCK // slots, 1) / _COLUMNS_AT_ONCE) / 2 * max(slots / BLOCK, 1.0)
    run = min(slots, lines.inner) * lines.element
    of_words = {1: 4.0, 2: 2.0}.get(tile.lanes * lines.element, 1.0)
    waves, alone = ceil(blocks / (gpu.sms * there)), min(1.0, blocks / gpu.sms)
    longer = max(1 + _SHORT / run, of_words) * (_STAYS if problem.nbytes < gpu.l2 else 1.0)
    return _seconds_of(problem, waves, alone, rounds, target, longer)


_SHORT, _STAYS = 28, 1.1
"""Bytes that a run of neighbours takes more of memory's time than it has; and how much longer it takes where all
stays in the L2 cache, so that others read twice for nothing: an H200 took 22 us for 32 x 512 rows of 768, and 15 by
columns."""


def _emit_columns(problem: KernelProblem, tile: ScanPassedColumnsTile, at: StepExpressions) -> StepCode:
    op, x, (function, first) = problem.op, problem.inputs[0], function_of(problem)
    assert isinstance(op, CumSum | CumProd)
    lines = scanned_lines(problem)
    how = f"{tile.lanes}, {tile.across}, {ctype(x.format.dtype)}, {function}"
    flags = f"{boolean(op.exclusive)}, {boolean(op.reverse)}"
    given = f"{lines_text(x, op.axis)}, {flags}, {at.inputs[0]}, {at.outputs[0]}, {first}"
    call = f"bolt::portable::scan_passed_columns<{how}>(r, {given});"
    return _code("scan_passed_columns", _slabs(lines, tile) * _parts(lines, tile) * tile.across * tile.lanes, call)


FORM: Form[ScanPassedTile] = Form(
    "passed",
    lambda problem: scanned_lines(problem).inner == 1,
    refuse_scan,
    _tiles,
    _refuse_tile,
    _seconds,
    ScanPassedTile.read,
    _emit,
)
COLUMNS: Form[ScanPassedColumnsTile] = Form(
    "passed_columns",
    lambda problem: scanned_lines(problem).inner > 1,
    refuse_scan,
    _columns,
    _refuse_column,
    _seconds_of_columns,
    ScanPassedColumnsTile.read,
    _emit_columns,
)
