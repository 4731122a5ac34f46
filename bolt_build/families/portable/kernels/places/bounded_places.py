"""How a GPU finds places of the first elements of lines of 64-bit numbers in order: eight bits at a time tell a bound,
and what it lets through is sorted by number and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.places.sorted_places import count_of, extent_of, results_text, serves
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_THREADS, _HELD, _ROOM, _LINES = (32, 128, 512), 32, (32, 2048), 4
"""Threads of a line, elements that each holds at most, elements that are sorted at least and at most, and lines of a
block whose warps have one each."""
_OF_WARP = 256
"""Elements that a warp sorts at most: its block has as many for each of its lines."""


@dataclass(frozen=True)
class BoundTile:
    """A line has `threads` threads, which hold `holds` elements each, or none, which read it again for every eight
    bits. Up to `room` elements are sorted."""

    threads: int
    holds: int
    room: int

    @property
    def parameters(self) -> Named:
        held = (("holds", self.holds),) if self.holds else ()
        return ("threads", self.threads), *held, ("room", self.room)

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> BoundTile:
        holds = reader.number("holds") if reader.has("holds") else 0
        return BoundTile(reader.number("threads"), holds, reader.number("room"))

    @property
    def block(self) -> int:
        return _LINES * WARP if self.threads == WARP else self.threads


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op, dtype, count = problem.op, problem.inputs[0].format.dtype, count_of(problem)
    assert isinstance(op, Places)
    if dtype.nbytes < 8:
        return f"keys have room for {dtype.value} and a place"
    if op.last:
        return "takes the first of equal elements, not the last"
    return Reason("sorts up to {} elements, not {}", _ROOM[1], count) if count > _ROOM[1] else None


def _room(problem: KernelProblem) -> int:
    """With some more than are wanted, as elements share bins."""
    extent, count = extent_of(problem), count_of(problem)
    wanted = min(extent, count + ceil(extent / 64))
    return int(max(_ROOM[0], min(_ROOM[1], 1 << ceil(log2(wanted)))))


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[BoundTile]:
    extent, room = extent_of(problem), _room(problem)
    for threads in _THREADS:
        if threads == WARP and room > _OF_WARP:
            continue
        holds = ceil(extent / threads)
        if holds <= _HELD:
            yield BoundTile(threads, holds, room)
    if extent > _HELD * _THREADS[-1]:
        yield BoundTile(_THREADS[-1], 0, room)


def _refuse_tile(problem: KernelProblem, tile: BoundTile, gpu: Gpu) -> str | None:
    extent, count, least, most = extent_of(problem), count_of(problem), *_ROOM
    if tile.threads not in _THREADS:
        return Reason("no line has {} threads", tile.threads)
    if not least <= tile.room <= most or tile.room & (tile.room - 1) or tile.room < count:
        return Reason("no {} elements are sorted where {} are wanted", tile.room, count)
    if tile.threads == WARP and tile.room > _OF_WARP:
        return Reason("a warp sorts up to {} elements, not {}", _OF_WARP, tile.room)
    if tile.holds > _HELD or 0 < tile.threads * tile.holds < extent:
        return Reason("{} threads do not hold {} elements each of {}", tile.threads, tile.holds, extent)
    return None


_BEGIN, _ELEMENT, _BITS, _AGAIN, _COMPARED, _STEP, _STORED = 120.0, 22.0, 12.0, 14.0, 24.0, 16.0, 12.0
"""Guesses at instructions of a thread for a line, of an element until it is taken, for every eight bits, where it is
read again for these, of two that are compared, of a step of the network, and of a place that is stored."""
_TURNS = 2
"""Times that eight bits are counted, as small numbers and those that are drawn evenly take."""
_ISSUED, _REACHED, _WAITS, _MET = 128 * 1.6e9 * 0.4, 0.7, 2.5e-6, 0.05e-6
"""Guesses at instructions that a multiprocessor begins in a second, at the part of the bandwidth, at seconds of a line,
and of a step of its network."""


def _seconds(problem: KernelProblem, tile: BoundTile, target: Target) -> float:
    gpu, extent, count = target.gpu, extent_of(problem), count_of(problem)
    assert gpu is not None, "forms are for GPUs"
    lines = problem.inputs[0].type.elements // extent
    sorts = min(tile.room, 1 << ceil(log2(count + 1)))
    steps = log2(sorts) * (log2(sorts) + 1) / 2
    again = 0.0 if tile.holds else _AGAIN * (_TURNS + 1)
    own = _BEGIN + extent / tile.threads * (_ELEMENT + _TURNS * _BITS + again)
    own += steps * (_STEP + ceil(sorts / 2 / tile.threads) * _COMPARED) + ceil(count / tile.threads) * _STORED
    blocks = ceil(lines * tile.threads / tile.block)
    there = occupancy(tile.block, 2 * tile.holds + 48, (tile.block // tile.threads) * (12 * tile.room + 1200), gpu)
    issue = lines * tile.threads * own / (_ISSUED * gpu.sms * min(1.0, blocks / gpu.sms))
    waits = ceil(blocks / (gpu.sms * there)) * (_WAITS + steps * _MET)
    read = 0 if tile.holds else (_TURNS + 1) * problem.inputs[0].nbytes
    memory = moved(problem.nbytes + read, target) / _REACHED
    return float(max(memory, issue, waits) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: BoundTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    how = f"{boolean(op.greatest)}, {tile.threads}, {tile.holds}, {tile.room}, {ctype(x.format.dtype)}"
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    header = ("bolt_portable/cuda/places/bounded_places.h",)
    return StepCode(header, None, "", f"bolt::portable::bounded_places<{how}>(r, {given});")


FORM: Form[BoundTile] = Form("bounded", serves, _refuse, _tiles, _refuse_tile, _seconds, BoundTile.read, _emit)
