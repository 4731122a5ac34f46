"""How a GPU takes elements along any axis, each with an index of its own: a thread has words of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.targets import Gpu, Target

_LANES, _TURNS, _ACCESS = (8, 4, 2), (1, 2, 4), 32
"""Results of a word, words of a thread, and bytes of a word's indices at most: two accesses."""


@dataclass(frozen=True)
class GatheredWordsTile(NumberTile):
    """A thread has `turns` words of `lanes` results."""

    lanes: int
    turns: int


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op, (data, indices) = problem.op, problem.inputs
    assert isinstance(op, GatherElements)
    apart = [axis for axis in range(len(data.shape)) if axis != op.axis and data.shape[axis] != indices.shape[axis]]
    return Reason("indices leave out elements along axis {}", apart[0]) if apart else None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[GatheredWordsTile]:
    found = (GatheredWordsTile(lanes, turns) for lanes in _LANES for turns in _TURNS)
    yield from (tile for tile in found if _refuse_tile(problem, tile, gpu) is None)


def _refuse_tile(problem: KernelProblem, tile: GatheredWordsTile, gpu: Gpu) -> str | None:
    size, named = problem.outputs[0].format.dtype.nbytes, problem.inputs[1].format.dtype.nbytes
    if tile.lanes not in _LANES or tile.turns not in _TURNS:
        return "a thread has 1, 2 or 4 words of 2, 4 or 8 results"
    if tile.lanes * named > _ACCESS or tile.lanes * size > _ACCESS // 2:
        return Reason("{} results with their indices are no accesses", tile.lanes)
    return None


_REACHED, _RESULT, _THREAD, _ISSUED, _HIDDEN = 0.8, 14, 40, 0.6, 0.1
"""Guesses, for no GPU has timed these kernels: the part of the bandwidth, instructions of a result and of a thread
beside its results, the part of the rate at which they go, and that of them which memory does not hide."""
_SECTOR, _SHORT, _WAIT = 32, 2.5, 1.4e-6
"""Bytes of a sector, of which a result takes one where rows are shorter; how many times as fast as memory they come
from caches; and seconds in which a thread waits for its indices, and then for its elements."""


def _seconds(problem: KernelProblem, tile: GatheredWordsTile, target: Target) -> float:
    op, (data, indices), made = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, GatherElements)
    results, row = made.type.elements, data.format.dtype.nbytes
    for extent in data.shape[op.axis + 1 :]:
        row *= extent
    asked = results * _SECTOR / max(1.0, row / _SECTOR) if row < _SECTOR else made.nbytes
    memory = moved(indices.nbytes + made.nbytes + min(data.nbytes, asked), target) / _REACHED
    caches = asked / (target.bandwidth * _SHORT)
    issued = results * (_RESULT + _THREAD / (tile.lanes * tile.turns)) / (target.rate("fp32") / 2) / _ISSUED
    waves = results / (tile.lanes * tile.turns) / (2048 * (target.gpu.sms if target.gpu is not None else 1))
    hidden = max(memory, caches, waves * _WAIT)
    return float(max(hidden, issued) + _HIDDEN * issued + _WAIT + OVERLAPPED * target.launch_seconds)


def words_form(
    emit: Callable[[KernelProblem, GatheredWordsTile, StepExpressions], StepCode],
) -> Form[GatheredWordsTile]:
    return Form(
        "words",
        lambda problem: problem.outputs[0].type.elements > 0,
        _refuse,
        _tiles,
        _refuse_tile,
        _seconds,
        GatheredWordsTile.read,
        emit,
    )
