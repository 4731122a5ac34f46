"""How a warp of a GPU finds places of very few elements of a line in order: what each thread has first tells a bound,
and the few elements up to it are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.places.key_bins import WORD, expected_sifted, neighbours, refuse_few, up
from bolt_build.families.portable.kernels.places.sorted_places import (
    count_of,
    extent_of,
    in_words,
    results_text,
    serves,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_MOST, _HOLDS, _BLOCK = 32, (40, 64), 128
"""Elements that are wanted at most, those that a thread holds, one by one and in pairs, and threads of a block."""


_FROM = {DType.F16: 80, DType.BF16: 90}
"""From which architecture on instructions compare two neighbours and find the greater ones."""


@dataclass(frozen=True)
class DrawTile(NumberTile):
    """A thread of a line's warp holds so many elements."""

    holds: int


def _paired(problem: KernelProblem) -> bool:
    """Whether elements are neighbours of half precision, of which instructions compare two at once."""
    return problem.inputs[0].format.dtype in _FROM and neighbours(problem) and in_words(problem)


def _needed(problem: KernelProblem) -> int:
    """Elements of a thread: in pairs, as many as a line takes wherever in a word it begins."""
    extent = extent_of(problem)
    if not _paired(problem):
        return ceil(extent / WARP)
    return up((extent if extent % WORD == 0 else extent + WORD - 1) / WARP, WORD)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    count = count_of(problem)
    if (reason := refuse_few(problem)) is not None:
        return reason
    dtype = problem.inputs[0].format.dtype
    if _paired(problem) and not (gpu.async_copies if dtype is DType.F16 else gpu.warpgroup_mma):
        return f"instructions compare pairs of {dtype.value} from sm_{_FROM[dtype]} on"
    if count > _MOST:
        return Reason("a warp draws up to {} elements, not {}", _MOST, count)
    needed, most = _needed(problem), _HOLDS[_paired(problem)]
    return Reason("threads of a warp hold {} elements at most, not {}", most, needed) if needed > most else None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[DrawTile]:
    yield DrawTile(_needed(problem))


def _refuse_tile(problem: KernelProblem, tile: DrawTile, gpu: Gpu) -> str | None:
    pairs, needed = _paired(problem), _needed(problem)
    if tile.holds > (most := _HOLDS[pairs]) or (pairs and tile.holds % WORD):
        return Reason("threads hold up to {} elements, pairs in whole words, not {}", most, tile.holds)
    return Reason("threads have {} elements, not {}", needed, tile.holds) if tile.holds < needed else None


_BEGIN, _HELD, _BOUND, _FOUND = 48.0, (16.0, 7.8), 80.0, 2.5
"""Instructions of a thread for a line, for an element that it holds by itself and in a pair, for its bound, and for an
element that is found: as five kernels of pairs took on an H200, which are off by 20%. Of single ones it is a guess."""
_ISSUED, _WAITS, _REACHED, _REGISTERS = 128 * 1.6e9 * 0.5, 2.4e-6, 0.8, 56
"""Guesses at instructions of threads that a multiprocessor begins in a second, at the seconds of a warp for its line,
at the part of the bandwidth, and at registers of a thread."""


def _seconds(problem: KernelProblem, tile: DrawTile, target: Target) -> float:
    gpu, extent, count = target.gpu, extent_of(problem), count_of(problem)
    assert gpu is not None, "forms are for GPUs"
    lines = problem.inputs[0].type.elements // extent
    there = expected_sifted(count, extent, min(max(tile.holds // 2, 1), max(1, int(0.8 * extent / count))))
    own = _BEGIN + tile.holds * _HELD[_paired(problem)] + _BOUND + there * _FOUND
    blocks = ceil(lines * WARP / _BLOCK)
    issue = lines * WARP * own / (_ISSUED * gpu.sms * min(1.0, lines * WARP / (gpu.sms * 512)))
    rounds = ceil(blocks / (gpu.sms * occupancy(_BLOCK, _REGISTERS, 0, gpu)))
    waits = rounds * _WAITS
    return float(max(moved(problem.nbytes, target) / _REACHED, issue, waits) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: DrawTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    how = f"{boolean(op.greatest)}, {tile.holds}, {boolean(_paired(problem))}, {ctype(x.format.dtype)}"
    header = ("bolt_portable/cuda/places/drawn_places.h",)
    return StepCode(header, None, "", f"bolt::portable::drawn_places<{how}>(r, {given});")


FORM: Form[DrawTile] = Form("drawn", serves, _refuse, _tiles, _refuse_tile, _seconds, DrawTile.read, _emit)
