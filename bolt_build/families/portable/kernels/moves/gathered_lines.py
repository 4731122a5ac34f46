"""How a GPU takes elements along lines of neighbours: a block reads whole lines to shared memory while their indices
are on their way, so that no load waits for an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.targets import Gpu, Target

_THREADS, _HOLDS, _BLOCK = (32, 64, 128, 256), 16, 128
"""Threads of a line, indices that each asks for at once, and threads of a block at least."""
_ROOM, _ACCESS = 48 << 10, 16
"""Bytes of shared memory of a block that asks for no more, and of an access."""


@dataclass(frozen=True)
class GatherTile(NumberTile):
    """A line has `threads` threads, which ask for `holds` indices each at once."""

    threads: int
    holds: int

    @property
    def block(self) -> int:
        return max(self.threads, _BLOCK)


def _line_of(problem: KernelProblem) -> tuple[int, int, int]:
    """Lines of results, elements of one in the data, and results of one."""
    op, (data, indices) = problem.op, problem.inputs
    assert isinstance(op, GatherElements)
    run = indices.shape[op.axis]
    return indices.type.elements // max(run, 1), data.shape[op.axis], run


def _shared(problem: KernelProblem, tile: GatherTile) -> int:
    """Bytes of a block (`GatheredLines::room_of`)."""
    nbytes = _line_of(problem)[1] * problem.inputs[0].format.dtype.nbytes
    return tile.block // tile.threads * ((nbytes + 2 * _ACCESS - 2) // _ACCESS * _ACCESS)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op, data = problem.op, problem.inputs[0]
    assert isinstance(op, GatherElements)
    if op.axis != len(data.shape) - 1:
        return Reason("elements along axis {} are no neighbours", op.axis)
    if (nbytes := _line_of(problem)[1] * data.format.dtype.nbytes) > _ROOM - _ACCESS:
        return Reason("a line of {} bytes has no room in the {} of a block", nbytes, _ROOM)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[GatherTile]:
    run = _line_of(problem)[2]
    for threads in _THREADS:
        if threads == _THREADS[0] or threads < 2 * run:
            yield GatherTile(threads, min(ceil(run / threads), _HOLDS))


def _refuse_tile(problem: KernelProblem, tile: GatherTile, gpu: Gpu) -> str | None:
    if tile.threads not in _THREADS or tile.holds > _HOLDS:
        return Reason("{} threads do not ask for {} indices each", tile.threads, tile.holds)
    if (nbytes := _shared(problem, tile)) > _ROOM:
        return Reason("lines of {} bytes have no room in the {} of a block", nbytes, _ROOM)
    return None


_REACHED = 0.9
"""The part of a GPU's bandwidth at which whole lines come, fitted to the two kernels that an H200 has timed. The
following are counted in the kernel's code, or guesses."""
_BEGIN, _COPY, _ELEMENT, _REGISTERS = 90, 12, 28, 32
"""Instructions of a thread for its line, for an access of it and for a result; and registers beside its indices."""
_ISSUED, _ROUND = 0.6, 1.6e-6
"""The part of the rate at which instructions go, and seconds of a block."""


def _seconds(problem: KernelProblem, tile: GatherTile, target: Target) -> float:
    """What the bytes of whole lines take, or the instructions, or rounds of blocks that wait."""
    gpu = target.gpu
    assert gpu is not None, "forms are for GPUs"
    (lines, length, run), (data, indices) = _line_of(problem), problem.inputs
    nbytes = length * data.format.dtype.nbytes
    memory = moved(lines * nbytes + indices.nbytes + problem.outputs[0].nbytes, target) / _REACHED
    turns = ceil(run / (tile.threads * tile.holds))
    own = _BEGIN + _COPY * ceil(nbytes / _ACCESS / tile.threads) + _ELEMENT * tile.holds * turns
    issued = lines * tile.threads * own / (target.rate("fp32") / 2) / _ISSUED
    blocks = ceil(lines * tile.threads / tile.block)
    registers = _REGISTERS + tile.holds * ceil(indices.format.dtype.nbytes / 4)
    rounds = ceil(blocks / (gpu.sms * occupancy(tile.block, registers, _shared(problem, tile), gpu)))
    return float(max(memory, issued, rounds * turns * _ROUND) + OVERLAPPED * target.launch_seconds)


def lines_form(emit: Callable[[KernelProblem, GatherTile, StepExpressions], StepCode]) -> Form[GatherTile]:
    return Form(
        "staged",
        lambda problem: problem.outputs[0].type.elements > 0,
        _refuse,
        _tiles,
        _refuse_tile,
        _seconds,
        GatherTile.read,
        emit,
    )
