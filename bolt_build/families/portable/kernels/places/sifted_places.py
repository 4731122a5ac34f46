"""How a GPU finds places of the first few elements of longer lines in order: threads sift out what a bound says is not
wanted, and put the rest in bins. Blocks may have parts of a line each; then a second kernel puts in order what remains
of all."""

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
from bolt_build.families.portable.kernels.places.key_bins import (
    bins_bytes,
    bins_for,
    expected_sifted,
    group_for,
    groups_of,
    holds_for,
    paired,
    refuse_bins,
    refuse_few,
    refuse_held,
    room_for,
    up,
)
from bolt_build.families.portable.kernels.places.sorted_places import count_of, extent_of, results_text, serves
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_THREADS, _HOLDS, _MERGED_HOLDS = (32, 64, 128, 256, 512, 1024), 32, 16
"""Threads of a line or a part, elements that each holds at most (pairs of them, of half precision), and keys of a
thread that puts in order what remains of parts."""
_PARTS = ((64, 32), (128, 32), (256, 32), (512, 32), (1024, 32))
"""Threads of a part, and elements of each that are tried."""
_LEFT = 8
"""Bytes of a key that a part leaves."""


@dataclass(frozen=True)
class SiftTile(NumberTile):
    """A line has `threads` threads, which hold `holds` elements each: of every `group` of them the least number counts
    for a bound. Up to `room` keys remain, which are put in `bins`; in the end a thread has `each` neighbours."""

    threads: int
    holds: int
    each: int
    room: int
    bins: int
    group: int


@dataclass(frozen=True)
class PartTile(NumberTile):
    """The same of parts of `part` elements each; keys that remain of all of a line's are put in order by
    `merged_threads`, and so on."""

    part: int
    threads: int
    holds: int
    each: int
    room: int
    bins: int
    group: int
    merged_threads: int
    merged_holds: int
    merged_each: int
    merged_room: int
    merged_bins: int
    merged_group: int

    @property
    def of_part(self) -> SiftTile:
        return SiftTile(self.threads, self.holds, self.each, self.room, self.bins, self.group)

    @property
    def merged(self) -> SiftTile:
        return SiftTile(
            self.merged_threads, self.merged_holds, self.merged_each, self.merged_room, self.merged_bins,
            self.merged_group,
        )  # fmt: skip


def _key(problem: KernelProblem, extent: int) -> int:
    """Bytes of a key of a line or a part of so many elements: half of them are the place."""
    return 4 if problem.inputs[0].format.dtype.nbytes <= 2 and extent <= 1 << 16 else 8


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_few(problem)) is not None:
        return reason
    if next(_tiles(problem, gpu), None) is not None:
        return None
    what = "no threads hold {} elements and sift out most, where {} are wanted"
    return Reason(what, extent_of(problem), count_of(problem))


def _refuse_parts(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_few(problem)) is not None:
        return reason
    if next(_part_tiles(problem, gpu), None) is not None:
        return None
    what = "no parts of {} elements leave few enough to be put in order, where {} are wanted"
    return Reason(what, extent_of(problem), count_of(problem))


def _cuts(problem: KernelProblem, extent: int, part: bool = False) -> Iterator[SiftTile]:
    """Of lines, or parts of them, with so many elements."""
    count, size = count_of(problem), _key(problem, extent)
    for threads in _THREADS:
        holds = holds_for(problem, threads, extent, _HOLDS)
        if holds is None or holds < 2:
            continue
        group = group_for(count, extent, groups_of(problem, threads, holds, extent))
        if group is None:
            continue
        # Of bf16 few numbers lie between two of them, and bins are to be narrow enough.
        coarse = problem.inputs[0].format.dtype is DType.BF16
        need = int(expected_sifted(count, extent, group) * (1.6 if coarse else 1.3)) + 40
        if (found := room_for(threads, need, size)) is None:
            continue
        each, room = found
        if part and threads > WARP:
            room = up(need, WARP)  # what a part leaves is read once more: no more of it than is needed
        if 5 * room <= 3 * extent:
            yield SiftTile(threads, holds, each, room, bins_for(threads, 1024 if coarse else 2 * need), group)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[SiftTile]:
    yield from _cuts(problem, extent_of(problem))


def _refuse_cut(problem: KernelProblem, tile: SiftTile, extent: int) -> str | None:
    size = _key(problem, extent)
    if (reason := refuse_held(problem, tile.threads, tile.holds, extent, _HOLDS)) is not None:
        return reason
    if (reason := refuse_bins(tile.threads, tile.each, tile.room, tile.bins, size, tile.room)) is not None:
        return reason
    if tile.threads * tile.holds > 1 << 4 * size:
        return Reason("places of {} elements are none of {} bits", tile.threads * tile.holds, 4 * size)
    if not 1 <= tile.group <= groups_of(problem, tile.threads, tile.holds, extent):
        return Reason("no {} elements of a thread are a group", tile.group)
    count = min(count_of(problem), extent)
    return Reason("{} keys have no room for {} elements", tile.room, count) if tile.room < count else None


def _refuse_tile(problem: KernelProblem, tile: SiftTile, gpu: Gpu) -> str | None:
    return _refuse_cut(problem, tile, extent_of(problem))


def _merges(problem: KernelProblem, left: int) -> Iterator[SiftTile]:
    """What puts so many keys of a line in order."""
    count = count_of(problem)
    share = min(0.999, 1.05 * count / left)
    for threads in _THREADS[1:]:
        holds = ceil(left / threads)
        found = room_for(threads, int(1.15 * count) + 32, _LEFT)
        if holds > _MERGED_HOLDS or found is None:
            continue
        groups = [g for g in (1, 2, 4, 8, 16) if g <= holds and (1 - (1 - share) ** g) ** (left / g) < 1e-3]
        bins = max(512, bins_for(threads, 4 * count))
        yield SiftTile(threads, holds, *found, bins, max(groups, default=1))
        return


def _part_tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PartTile]:
    extent = extent_of(problem)
    for threads, holds in _PARTS:
        part = threads * holds
        if extent % 8 and paired(problem, threads, holds, part - 8):
            part -= 8
        if 3 * part > 2 * extent:
            break
        for cut in _cuts(problem, part, True):
            if cut.threads != threads:
                continue
            for merged in _merges(problem, ceil(extent / part) * cut.room):
                yield PartTile(
                    part, cut.threads, cut.holds, cut.each, cut.room, cut.bins, cut.group, merged.threads, merged.holds,
                    merged.each, merged.room, merged.bins, merged.group,
                )  # fmt: skip


def _refuse_part(problem: KernelProblem, tile: PartTile, gpu: Gpu) -> str | None:
    extent, merged = extent_of(problem), tile.merged
    if tile.part >= extent:
        return Reason("lines of {} elements have no parts of {}", extent, tile.part)
    if (reason := _refuse_cut(problem, tile.of_part, tile.part)) is not None:
        return reason
    left = ceil(extent / tile.part) * tile.room
    if merged.threads * merged.holds < left or merged.holds > _MERGED_HOLDS:
        return Reason("{} threads do not hold {} keys each of {}", merged.threads, merged.holds, left)
    if (reason := refuse_bins(merged.threads, merged.each, merged.room, merged.bins, _LEFT)) is not None:
        return reason
    if not 1 <= merged.group <= merged.holds:
        return Reason("no {} elements of a thread are a group", merged.group)
    count = count_of(problem)
    return Reason("{} keys have no room for {} elements", merged.room, count) if merged.room < count else None


_HELD, _SIFTED, _GROUPED, _KEY, _BIN, _BEGIN = (9.0, 4.0), (5.0, 5.5), 8.0, 26.0, 9.0, 220.0
"""Instructions of an element until its number is there and until it is sifted, each of single elements and of pairs; of
a group until it is counted, of a key that remains, of a bin, and of a thread for all else."""
_WIDE = 1.6
"""What keys of 64 bits take, in those of 32."""
_WIDE_KEYS = 1.7
"""How many times as long several warps take with keys of 64 bits: as two kernels of an H200 did."""
_ISSUED, _WARPS = 128 * 1.6e9 * 0.5, 28
"""Instructions of threads that a multiprocessor begins in a second, where it has so many warps or more."""
_ASKED, _MET, _ARRANGED = 1.2e-6, 0.8e-6, 1.3e-6
"""Seconds until what remains of a line is there, of warps that meet beside that, and until it is sorted. This and the
following are fitted to 40 times of an H200."""
_MERGED, _MERGED_KEY, _MERGED_COUNT = 1.5e-6, 0.15e-6, 0.004e-6
"""The same until a second kernel has begun and ended, of each key that a thread of it holds, and of an element that it
puts in order."""
_REACHED = 0.7


def _cut_seconds(problem: KernelProblem, tile: SiftTile, lines: int, extent: int, kept: int, target: Target) -> float:
    """Of the instructions of so many lines, or of what each waits for. `kept`: those that are put in order."""
    gpu = target.gpu
    assert gpu is not None, "forms are for GPUs"
    size, pairs = _key(problem, extent), paired(problem, tile.threads, tile.holds, extent)
    wide = _WIDE if size == 8 else 1.0
    own = _BEGIN + tile.holds * (_HELD[pairs] + _SIFTED[pairs]) + tile.holds / tile.group * _GROUPED
    own += wide * kept / tile.threads * _KEY + 2 * tile.bins / tile.threads * _BIN
    issue = lines * tile.threads * own / (_ISSUED * gpu.sms * min(1.0, lines * tile.threads / (gpu.sms * 512)))
    issue *= _WIDE_KEYS if size == 8 and tile.threads > WARP else 1.0
    block = 128 if tile.threads == WARP else tile.threads
    shared = (block // tile.threads) * (bins_bytes(tile.threads, tile.room, tile.bins, size) + tile.room * size)
    registers = tile.holds // 2 + 48 if pairs else tile.holds + 80
    resident = occupancy(block, max(64, registers), shared, gpu)
    issue /= min(1.0, resident * block / (WARP * _WARPS))
    rounds = ceil(lines * tile.threads / block / (gpu.sms * resident))
    waits = _ASKED + (_MET if tile.threads > WARP else 0.0) + (_ARRANGED if kept else 0.0)
    return float(max(issue, rounds * waits))


def _seconds(problem: KernelProblem, tile: SiftTile, target: Target) -> float:
    extent = extent_of(problem)
    lines = problem.inputs[0].type.elements // extent
    remain = int(expected_sifted(count_of(problem), extent, tile.group))
    computing = _cut_seconds(problem, tile, lines, extent, remain, target)
    return max(moved(problem.nbytes, target) / _REACHED, computing) + OVERLAPPED * target.launch_seconds


def _left(problem: KernelProblem, tile: PartTile) -> int:
    """Keys that parts leave of a line."""
    return ceil(extent_of(problem) / tile.part) * tile.room


def _part_seconds(problem: KernelProblem, tile: PartTile, target: Target) -> float:
    gpu, extent, merged = target.gpu, extent_of(problem), tile.merged
    assert gpu is not None, "forms are for GPUs"
    lines, parts = problem.inputs[0].type.elements // extent, ceil(extent / tile.part)
    first = _cut_seconds(problem, tile.of_part, lines * parts, tile.part, 0, target)
    left = _left(problem, tile)
    resident = occupancy(merged.threads, 64, bins_bytes(merged.threads, merged.room, merged.bins, _LEFT), gpu)
    second = _MERGED_KEY * merged.holds + _MERGED_COUNT * count_of(problem)
    second = _MERGED + ceil(lines / (gpu.sms * resident)) * second
    memory = moved(problem.nbytes + 2 * _LEFT * lines * left, target) / _REACHED
    return max(memory, first) + second + OVERLAPPED * target.launch_seconds


def _how(problem: KernelProblem, tile: SiftTile, extent: int) -> str:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    key = "std::uint32_t" if _key(problem, extent) == 4 else "std::uint64_t"
    numbers = f"{tile.holds}, {tile.threads}, {tile.each}, {tile.room}, {tile.bins}, {tile.group}"
    pairs = boolean(paired(problem, tile.threads, tile.holds, extent))
    return f"{boolean(op.greatest)}, {numbers}, {key}, {ctype(x.format.dtype)}, {pairs}"


_HEADER = ("bolt_portable/cuda/places/sifted_places.h",)


def _emit(problem: KernelProblem, tile: SiftTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    how = _how(problem, tile, extent_of(problem))
    return StepCode(_HEADER, None, "", f"bolt::portable::sifted_places<{how}>(r, {given});")


def _emit_parts(problem: KernelProblem, tile: PartTile, at: StepExpressions) -> StepCode:
    op, x, merged = problem.op, problem.inputs[0], tile.merged
    assert isinstance(op, Places)
    given = f"{lines_text(x, op.axis)}, {tile.part}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    second = f"{merged.holds}, {merged.threads}, {merged.each}, {merged.room}, {merged.bins}, {merged.group}"
    lines = x.type.elements // extent_of(problem)
    return StepCode(
        _HEADER, "bolt::portable::SharedTotals", str(lines * _left(problem, tile) * _LEFT),
        f"bolt::portable::parted_places<{_how(problem, tile.of_part, tile.part)}, {second}>(r, {given});",
    )  # fmt: skip


FORM: Form[SiftTile] = Form("sifted", serves, _refuse, _tiles, _refuse_tile, _seconds, SiftTile.read, _emit)
PARTS: Form[PartTile] = Form(
    "parted", serves, _refuse_parts, _part_tiles, _refuse_part, _part_seconds, PartTile.read, _emit_parts
)
