"""How a GPU takes slices of any length that rows of indices name: a thread has several words of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.gather import GatherND
from bolt_build.targets import Gpu, Target

_LANES, _TURNS, _ACCESS, _DEPTH = (16, 8, 4, 2), (1, 2, 4), 16, 3
"""Elements of a word, words of a thread, bytes of a word, and indices of a row, at most."""
_HELD, _COUNTED = 48, 0x7FFFFFFF
"""Registers of a thread for indices that it has asked for; and elements that are counted in 32 bits."""


@dataclass(frozen=True)
class TupleTile(NumberTile):
    """A thread has `turns` words of `lanes` results."""

    lanes: int
    turns: int


def slice_of(problem: KernelProblem) -> int:
    """Neighbours that a row of indices names."""
    assert isinstance(problem.op, GatherND)
    return prod(problem.inputs[0].shape[problem.op.batch_dims + problem.inputs[1].shape[-1] :])


def rows_of(lanes: int, inner: int) -> int:
    """Slices that a word is of, at most."""
    return 1 if inner % lanes == 0 else (lanes - 2) // inner + 2


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    data, indices, made = *problem.inputs, problem.outputs[0]
    if (depth := indices.shape[-1]) > _DEPTH:
        return Reason("rows have {} indices, at most {} are asked for at once", depth, _DEPTH)
    if (most := max(data.type.elements, made.type.elements)) > _COUNTED:
        return Reason("{} elements are more than the {} that it counts", most, _COUNTED)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[TupleTile]:
    found = (TupleTile(lanes, turns) for lanes in _LANES for turns in _TURNS)
    yield from (tile for tile in found if _refuse_tile(problem, tile, gpu) is None)


def _refuse_tile(problem: KernelProblem, tile: TupleTile, gpu: Gpu) -> str | None:
    indices = problem.inputs[1]
    if tile.turns not in _TURNS or tile.lanes not in _LANES:
        return "a thread has 1, 2 or 4 words of 2, 4, 8 or 16 results"
    if tile.lanes * problem.outputs[0].format.dtype.nbytes > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    rows = rows_of(tile.lanes, slice_of(problem))
    held = tile.turns * rows * indices.shape[-1] * max(1, indices.format.dtype.nbytes // 4)
    if held > _HELD:
        return Reason("{} registers of a thread hold indices, at most {} do", held, _HELD)
    return None


_REACHED, _WORD, _ROW, _ELEMENT, _ISSUED, _HIDDEN = 0.75, 30, 16, 4, 0.6, 0.2
"""Guesses: the part of the bandwidth; instructions of a word, of a row of indices beside it, and of an element that is
loaded by itself; the part of the rate at which they go, and that of the shorter of both which the longer one does not
hide."""
_SECTOR, _CACHES, _WAIT = 32, 2.5, 1.2e-6
"""Bytes of a sector, of which each slice takes one at least; how many times as fast as memory they come from caches;
and seconds in which a thread waits for its indices, and then for its elements."""


def _seconds(problem: KernelProblem, tile: TupleTile, target: Target) -> float:
    data, indices, made = *problem.inputs, problem.outputs[0]
    inner, rows = slice_of(problem), rows_of(tile.lanes, slice_of(problem))
    asked = made.type.elements // inner * max(inner * data.format.dtype.nbytes, _SECTOR)
    memory = moved(indices.nbytes + made.nbytes + min(data.nbytes, asked), target) / _REACHED
    caches = asked / (target.bandwidth * _CACHES)
    words = made.type.elements / tile.lanes
    each = _WORD + rows * _ROW * indices.shape[-1] + (0 if rows == 1 else tile.lanes * (_ELEMENT + rows))
    issued = words * each / (target.rate("fp32") / 2) / _ISSUED
    waves = words / tile.turns / (2048 * (target.gpu.sms if target.gpu is not None else 1))
    memory = max(memory, caches, waves * _WAIT)
    return float(max(memory, issued) + _HIDDEN * min(memory, issued) + _WAIT + OVERLAPPED * target.launch_seconds)


def tuples_form(emit: Callable[[KernelProblem, TupleTile, StepExpressions], StepCode]) -> Form[TupleTile]:
    return Form(
        "tuples",
        lambda problem: problem.outputs[0].type.elements > 0,
        _refuse,
        _tiles,
        _refuse_tile,
        _seconds,
        TupleTile.read,
        emit,
    )
