"""How a GPU takes slices of any length that rows of indices name: a thread has several words of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.moves.row_sources import unit_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.targets import Gpu, Target

_LANES, _TURNS, _ACCESS, DEPTH = (16, 8, 4, 2), (1, 2, 4), 16, 3
"""Elements of a word, words of a thread, bytes of a word, and indices of a row, at most."""
_HELD, COUNTED = 48, 0x7FFFFFFF
"""Registers of a thread for indices that it has asked for; and elements that are counted in 32 bits."""


@dataclass(frozen=True)
class TupleTile(NumberTile):
    """A thread has `turns` words of `lanes` results."""

    lanes: int
    turns: int


def slice_of(problem: KernelProblem) -> int:
    """Neighbours that a row of indices names, those of an index along one axis (Gather) in units of what is moved."""
    if isinstance(problem.op, Gather):
        return unit_of(problem)[1]
    assert isinstance(problem.op, GatherND)
    return prod(problem.inputs[0].shape[problem.op.batch_dims + problem.inputs[1].shape[-1] :])


def size_of(problem: KernelProblem) -> int:
    """Bytes of what is moved at once at least."""
    return unit_of(problem)[0] if isinstance(problem.op, Gather) else problem.outputs[0].format.dtype.nbytes


def depth_of(problem: KernelProblem) -> int:
    """Indices of a row."""
    return 1 if isinstance(problem.op, Gather) else problem.inputs[1].shape[-1]


def rows_of(lanes: int, inner: int) -> int:
    """Slices that a word is of, at most."""
    return 1 if inner % lanes == 0 else (lanes - 2) // inner + 2


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    data, made = problem.inputs[0], problem.outputs[0]
    if (depth := depth_of(problem)) > DEPTH:
        return Reason("rows have {} indices, at most {} are asked for at once", depth, DEPTH)
    if (most := max(data.type.elements, made.type.elements)) > COUNTED:
        return Reason("{} elements are more than the {} that it counts", most, COUNTED)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[TupleTile]:
    found = (TupleTile(lanes, turns) for lanes in _LANES for turns in _TURNS)
    yield from (tile for tile in found if _refuse_tile(problem, tile, gpu) is None)


def _refuse_tile(problem: KernelProblem, tile: TupleTile, gpu: Gpu) -> str | None:
    indices = problem.inputs[1]
    if tile.turns not in _TURNS or tile.lanes not in _LANES:
        return "a thread has 1, 2 or 4 words of 2, 4, 8 or 16 results"
    if tile.lanes * size_of(problem) > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    rows = rows_of(tile.lanes, slice_of(problem))
    held = tile.turns * rows * depth_of(problem) * max(1, indices.format.dtype.nbytes // 4)
    if held > _HELD:
        return Reason("{} registers of a thread hold indices, at most {} do", held, _HELD)
    return None


_REACHED, _WORD, _ROW, _ISSUED, _HIDDEN = 0.75, 30, 16, 0.6, 0.2
"""The part of the bandwidth; guesses at instructions of a word and of a row of indices beside it; the part of the rate
at which they go, and that of the shorter of both which the longer one does not hide."""
_ALONE = 3.1e-12
"""Seconds of a GPU for an element that is loaded by itself, wherever it lies: the L1 cache looks for one line after the
other. Three shapes of an H200 follow it."""
_SECTOR, _CACHES, _WAIT = 32, 2.5, 1.2e-6
"""Bytes of a sector, of which each slice takes one at least; how many times as fast as memory they come from caches;
and seconds in which a thread waits for its indices, and then for its elements."""


def _seconds(problem: KernelProblem, tile: TupleTile, target: Target) -> float:
    data, indices, made = *problem.inputs, problem.outputs[0]
    inner, size, rows = slice_of(problem), size_of(problem), rows_of(tile.lanes, slice_of(problem))
    elements = made.nbytes // size
    asked = elements // inner * max(inner * size, _SECTOR)
    memory = moved(indices.nbytes + made.nbytes + min(data.nbytes, asked), target) / _REACHED
    caches = asked / (target.bandwidth * _CACHES) if rows == 1 else elements * _ALONE
    words = elements / tile.lanes
    issued = words * (_WORD + rows * _ROW * depth_of(problem)) / (target.rate("fp32") / 2) / _ISSUED
    waves = words / tile.turns / (2048 * (target.gpu.sms if target.gpu is not None else 1))
    memory = max(memory, caches, waves * _WAIT)
    return float(max(memory, issued) + _HIDDEN * min(memory, issued) + _WAIT + OVERLAPPED * target.launch_seconds)


def _serves(problem: KernelProblem) -> bool:
    """Slices along one axis that are whole accesses have the plain kernel, single elements have others."""
    if problem.outputs[0].type.elements == 0:
        return False
    return not isinstance(problem.op, Gather) or (slice_of(problem) > 1 and size_of(problem) < _ACCESS)


def tuples_form(emit: Callable[[KernelProblem, TupleTile, StepExpressions], StepCode]) -> Form[TupleTile]:
    return Form(
        "tuples",
        _serves,
        _refuse,
        _tiles,
        _refuse_tile,
        _seconds,
        TupleTile.read,
        emit,
    )
