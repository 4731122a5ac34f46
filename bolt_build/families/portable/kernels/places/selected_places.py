"""How a GPU finds places of many elements of longer lines in order: a bound that a sample tells, or how elements'
numbers begin, says which come first, and these alone are sorted: in bins, or four bits at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.geometry import strides
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.places.sorted_places import (
    count_of,
    extent_of,
    in_words,
    key_bytes,
    ranking_code,
    serves,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_THREADS, _HOLDS, _EACH = (32, 64, 128, 256, 512), 32, 33
"""Threads of a line, elements that each holds at most, and keys that each of one warp sorts at most."""
_WORD = 8
"""Elements of half precision in a word of 16 bytes."""
_BLOCK = 128
"""Threads of a block whose warps have lines of their own: else those of a line, which wait for each other."""
_REGISTERS, _MOST = (38, 46), 200
"""Registers of a thread for all but what it holds and sorts, of single elements and of pairs; and those that it has at
most."""


@dataclass(frozen=True)
class SelectTile(NumberTile):
    """A line has `threads` threads, which hold `holds` elements each. Threads of one warp sort `each` keys."""

    threads: int
    holds: int
    each: int

    @property
    def block(self) -> int:
        return _BLOCK if self.threads == WARP else self.threads


def _paired(problem: KernelProblem, tile: SelectTile) -> bool:
    """Whether threads hold numbers of neighbours in pairs: of half precision, in words wherever lines begin, or where
    these begin with words."""
    op, source, extent = problem.op, problem.inputs[0], extent_of(problem)
    assert isinstance(op, Places)
    if source.format.dtype not in (DType.F16, DType.BF16) or op.last or strides(source)[op.axis] != 1:
        return False
    if not in_words(problem):
        return False
    return tile.holds % _WORD == 0 and tile.threads * tile.holds >= extent + (_WORD - 1 if extent % _WORD else 0)


def _registers(problem: KernelProblem, tile: SelectTile) -> int:
    """Of a thread (`SelectedPlaces`)."""
    paired = _paired(problem, tile)
    held = tile.holds if paired else 2 * tile.holds
    return _REGISTERS[paired] + max(held, tile.each * (1 + key_bytes(problem) // 4))


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    dtype, count, extent = problem.inputs[0].format.dtype, count_of(problem), extent_of(problem)
    if dtype.nbytes > 4:
        return f"keys have no room for {dtype.value} and a place"
    if count > (most := WARP * _EACH):
        return Reason("a warp sorts up to {} elements, not {}", most, count)
    most = max(_THREADS) * _HOLDS
    return Reason("threads hold up to {} elements of a line, not {}", most, extent) if extent > most else None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[SelectTile]:
    """With room for as many keys as are wanted, and for some more: then fewer bits are looked at until they fit."""
    count, extent = count_of(problem), extent_of(problem)
    for each in dict.fromkeys(ceil(many / WARP) // 2 * 2 + 1 for many in (count, count * 9 // 8, count * 3 // 2)):
        if each <= _EACH and WARP * each >= count:
            for threads in _THREADS:
                holds = ceil(extent / threads)
                if 2 <= holds <= _HOLDS:
                    yield SelectTile(threads, _held(problem, threads, holds), each)


def _held(problem: KernelProblem, threads: int, holds: int) -> int:
    """As many as are held in pairs, where that is less than half more; else `holds`."""
    more = (ceil((extent_of(problem) + _WORD - 1) / threads) + _WORD - 1) // _WORD * _WORD
    more = ceil(holds / _WORD) * _WORD if extent_of(problem) % _WORD == 0 else more
    fits = more <= _HOLDS and 2 * more < 3 * holds
    return more if fits and _paired(problem, SelectTile(threads, more, 1)) else holds


def _refuse_tile(problem: KernelProblem, tile: SelectTile, gpu: Gpu) -> str | None:
    if tile.threads not in _THREADS or tile.holds > _HOLDS:
        return Reason("{} threads do not hold {} elements each", tile.threads, tile.holds)
    if tile.each % 2 == 0 or tile.each > _EACH:
        return Reason("threads of a warp sort an odd number of keys each, up to {}, not {}", _EACH, tile.each)
    if tile.threads * tile.holds < (extent := extent_of(problem)):
        return Reason("{} elements are more than {} threads hold", extent, tile.threads)
    if tile.threads * tile.holds > 1 << 4 * key_bytes(problem):
        return Reason("places of {} elements are none of {} bits", tile.threads * tile.holds, 4 * key_bytes(problem))
    if (needed := _registers(problem, tile)) > (there := min(gpu.registers // tile.block, _MOST)):
        return Reason("keys and elements take {} registers of a thread, {} threads have {}", needed, tile.block, there)
    count = count_of(problem)
    return Reason("{} keys have no room for {} elements", WARP * tile.each, count) if WARP * tile.each < count else None


_HELD, _TRIED, _COUNTED, _TAKEN, _BEGIN = (9.0, 6.5), (5.0, 2.3), 7.0, (9.0, 7.0), 100.0
"""Instructions of an element until its number is there; until a sample's bound is found, by the tries that it is
expected to take; until it is counted by how its number begins; until its key is taken, each of single elements and of
pairs; and of a thread for all else. They are counted in the code."""
_SORTED, _BINS, _STORED = 30.0, 60.0, 7.0
"""The same of a lane for each of its keys in bins, for all bins, and for a place that it stores."""
_DIGITS, _DIGIT_KEYS, _MANY, _FULL = 85.0, 10.0, 0.5, 2.8
"""The same for four bits, and of each of its keys for these: what sorts keys where a bin has too many, as one is
expected to where more than so large a part of a line is wanted; and what the whole takes then, in this."""
_WIDE = 1.8
"""What keys of 64 bits take, in those of 32."""
_WIDE_MEETS = 1.7
"""How many times as long several warps take with keys of 64 bits: as two kernels of an H200 did."""
_ISSUED = 128 * 1.6e9 * 0.5
"""Instructions of threads that a multiprocessor begins in a second. This and the following are fitted to 25 times of an
H200."""
_ASKED, _KEY_WAITS, _MET = 2.6e-6, 0.03e-6, 0.8e-6
"""Seconds until a line is there and its keys are sorted, of each of a lane's keys beside that, and of threads of
several warps that meet."""
_REACHED = 0.7


def _seconds(problem: KernelProblem, tile: SelectTile, target: Target) -> float:
    """What the instructions take, or what each line waits for."""
    gpu, dtype = target.gpu, problem.inputs[0].format.dtype
    assert gpu is not None, "forms are for GPUs"
    extent, count, key = extent_of(problem), count_of(problem), key_bytes(problem)
    lines, wide = problem.inputs[0].type.elements // extent, _WIDE if key == 8 else 1.0
    meets, paired = tile.threads > WARP, _paired(problem, tile)
    own = _BEGIN + tile.holds * (_HELD[paired] + (_COUNTED if meets else _TRIED[paired]) + _TAKEN[paired])
    of_warp = wide * (tile.each * _SORTED + _BINS) + ceil(count / WARP) * _STORED
    if count > _MANY * extent:
        of_warp += _FULL * 2 * dtype.nbytes * (_DIGITS + tile.each * _DIGIT_KEYS)
    issue = lines * (tile.threads * own + WARP * of_warp) / (_ISSUED * gpu.sms)
    issue *= _WIDE_MEETS if meets and key == 8 else 1.0
    blocks = ceil(lines * tile.threads / tile.block)
    shared = (tile.block // tile.threads) * (WARP * (tile.each + 1) * key + 2112)
    rounds = ceil(blocks / (gpu.sms * occupancy(tile.block, _registers(problem, tile), shared, gpu)))
    waits = rounds * (_ASKED + tile.each * _KEY_WAITS + (_MET if meets else 0.0))
    busy = min(1.0, blocks / gpu.sms)
    return float(
        max(moved(problem.nbytes, target) / _REACHED, issue / busy, waits) + OVERLAPPED * target.launch_seconds
    )


def _emit(problem: KernelProblem, tile: SelectTile, at: StepExpressions) -> StepCode:
    more = ", true" if _paired(problem, tile) else ""
    return ranking_code("selected_places", problem, (tile.holds, tile.threads, tile.each), at, more)


FORM: Form[SelectTile] = Form(
    "selected",
    serves,
    _refuse,
    _tiles,
    _refuse_tile,
    _seconds,
    SelectTile.read,
    _emit,
)
