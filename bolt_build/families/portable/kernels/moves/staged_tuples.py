"""How a GPU takes short slices that rows of indices name where the data of a batch have room in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.geometry import around
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.moves.gathered_tuples import (
    COUNTED,
    DEPTH,
    depth_of,
    rows_of,
    size_of,
    slice_of,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.targets import Gpu, Target

_THREADS, _REGISTERS, _LANES, _ACCESS, _SPARE, _MOST = 512, 64, (8, 4, 2), 16, 32, 64
"""Threads of a block and registers of one, results of a word, bytes of one at most, those of shared memory that
accesses begin and end in, and blocks of a batch at most."""


@dataclass(frozen=True)
class StagedTuplesTile(NumberTile):
    """A thread has words of `lanes` results; `cuts` blocks share a batch, each with all of its data."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("cuts",)

    lanes: int
    cuts: int


def _batches(problem: KernelProblem) -> int:
    op, data = problem.op, problem.inputs[0]
    if isinstance(op, Gather):
        return around(data, op.axis)[0]
    assert isinstance(op, GatherND)
    return prod(data.shape[: op.batch_dims])


def _shared(problem: KernelProblem) -> int:
    """Bytes of shared memory of a block (`StagedTuples::bytes`)."""
    table = problem.inputs[0].nbytes // max(_batches(problem), 1)
    return ceil(table / _ACCESS) * _ACCESS + _SPARE


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    data, made = problem.inputs[0], problem.outputs[0]
    if (depth := depth_of(problem)) > DEPTH:
        return Reason("rows have {} indices, at most {} are asked for at once", depth, DEPTH)
    if (most := max(data.type.elements, made.type.elements)) > COUNTED:
        return Reason("{} elements are more than the {} that it counts", most, COUNTED)
    return refuse_shared(_shared(problem), gpu)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[StagedTuplesTile]:
    """As many blocks as a GPU holds, and a few times as many, of which each makes more than it has read."""
    batches, there = _batches(problem), occupancy(_THREADS, _REGISTERS, _shared(problem), gpu)
    worth = max(1, problem.outputs[0].nbytes // max(problem.inputs[0].nbytes, 1))
    for waves in (1, 2):
        cuts = min(_MOST, worth, max(1, waves * gpu.sms * there // batches))
        for lanes in _LANES:
            tile = StagedTuplesTile(lanes, cuts)
            if _refuse_tile(problem, tile, gpu) is None:
                yield tile


def _refuse_tile(problem: KernelProblem, tile: StagedTuplesTile, gpu: Gpu) -> str | None:
    if tile.lanes not in _LANES or tile.lanes * size_of(problem) > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    if tile.cuts > _MOST:
        return Reason("{} blocks of a batch are more than {}", tile.cuts, _MOST)
    return refuse_shared(_shared(problem), gpu)


_REACHED, _ELEMENT, _BLOCK, _ROUND, _TURNS = 0.75, 1.0e-12, 5.0e-6, 2.4e-6, 2
"""A guess at the part of the bandwidth and at seconds of a GPU for an element; those of a block beside its results, and
of a round of so many words a thread, as three shapes took on an H200."""


def _seconds(problem: KernelProblem, tile: StagedTuplesTile, target: Target) -> float:
    gpu, data, indices, made = target.gpu, *problem.inputs, problem.outputs[0]
    assert gpu is not None, "forms are for GPUs"
    blocks, there = _batches(problem) * tile.cuts, occupancy(_THREADS, _REGISTERS, _shared(problem), gpu)
    memory = moved(indices.nbytes + made.nbytes + data.nbytes, target) / _REACHED
    rows = rows_of(tile.lanes, slice_of(problem))
    elements = made.nbytes / size_of(problem) * _ELEMENT * (1 + rows * depth_of(problem) / tile.lanes)
    rounds = ceil(blocks / (gpu.sms * there))
    idle = max(1.0, gpu.sms / blocks)
    words = made.nbytes / size_of(problem) / tile.lanes / blocks / _THREADS
    waits = rounds * (_BLOCK + ceil(words / _TURNS) * _ROUND)
    seconds = max(max(memory, elements) * idle + 0.3 * min(memory, elements), waits)
    return float(seconds + OVERLAPPED * target.launch_seconds)


def _serves(problem: KernelProblem) -> bool:
    """Slices that are no whole accesses, more of them than the data have."""
    if problem.outputs[0].type.elements == 0 or slice_of(problem) * size_of(problem) % _ACCESS == 0:
        return False
    if isinstance(problem.op, Gather) and slice_of(problem) == 1:
        return False
    return problem.outputs[0].nbytes >= problem.inputs[0].nbytes


def staged_form(emit: Callable[[KernelProblem, StagedTuplesTile, StepExpressions], StepCode]) -> Form[StagedTuplesTile]:
    return Form(
        "staged_tuples",
        _serves,
        _refuse,
        _tiles,
        _refuse_tile,
        _seconds,
        StagedTuplesTile.read,
        emit,
    )
