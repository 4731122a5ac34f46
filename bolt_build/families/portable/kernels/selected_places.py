"""How a GPU finds places of many elements of longer lines in order: a bound that a sample tells, or how elements'
numbers begin, says which come first, and these alone are sorted: in bins, or four bits at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import beside
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.geometry import strides
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.rows import WARP
from bolt_build.families.portable.kernels.sorted_places import count_of, extent_of, key_bytes, ranking_code, serves
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines import Places
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


_HELD, _COUNTED, _PASSES, _TAKEN, _BEGIN = (24.0, 6.0), (5.0, 3.5), 1.4, (14.0, 12.0), 250.0
"""Instructions of an element until its number is there, until that is counted, how often that is expected, until its
key is taken, each of single elements and of pairs; and of a thread for all else. They and the following are counted
in the code, or guesses: an H200 has timed one problem since, and they are not fitted to it."""
_DIGITS, _SORTED, _STORED = 85.0, 10.0, 10.0
"""The same of a lane for four bits, of each of its keys for these, and of a place that it stores."""
_WIDE = 1.5
"""What keys of 64 bits take, in those of 32."""
_ISSUED = 128 * 1.6e9 * 0.5
"""Instructions of threads that a multiprocessor begins in a second."""
_ASKED, _DIGIT_WAITS, _KEY_WAITS, _MET = 1.5e-6, 0.25e-6, 0.022e-6, 0.8e-6
"""Seconds until a line is there, of four bits of its keys and of each of them that follow one another, and of threads
of several warps that meet."""
_REACHED = 0.7


def _seconds(problem: KernelProblem, tile: SelectTile, target: Target) -> float:
    """What the instructions take, or what each line waits for."""
    gpu, dtype = target.gpu, problem.inputs[0].format.dtype
    assert gpu is not None, "forms are for GPUs"
    lines, key, digits = problem.inputs[0].type.elements // extent_of(problem), key_bytes(problem), 2 * dtype.nbytes
    wide = _WIDE if key == 8 else 1.0
    meets = tile.threads > WARP
    paired = _paired(problem, tile)
    taken = _TAKEN[paired] * (1.7 if meets and not paired else 1.0)
    own = _BEGIN + tile.holds * (_HELD[paired] + _COUNTED[paired] * _PASSES + taken)
    of_warp = digits * (_DIGITS + tile.each * _SORTED) * wide + ceil(count_of(problem) / WARP) * _STORED
    issue = lines * (tile.threads * own + WARP * of_warp) / (_ISSUED * gpu.sms)
    blocks = ceil(lines * tile.threads / tile.block)
    shared = (tile.block // tile.threads) * (WARP * tile.each * key + 2112)
    rounds = ceil(blocks / (gpu.sms * beside(tile.block, _registers(problem, tile), shared, gpu)))
    waits = rounds * (_ASKED + digits * (_DIGIT_WAITS + tile.each * _KEY_WAITS) + (_MET if meets else 0.0))
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
