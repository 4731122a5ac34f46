"""How a GPU scatters along the last axis: threads of a block go through the updates of its rows side by side, and
elements know their last one before anything moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.scatter.scatter_lines import lines_of, refuse_apart
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import Gpu, Target

_THREADS, _CLAIM = (128, 256, 512), 4
"""Threads of a block, and bytes of an element's number."""
_RUNS = (2048, 4096, 8192)
"""Elements of a block's rows that are tried."""


@dataclass(frozen=True)
class RowsTile(NumberTile):
    """A block of so many `threads` has so many `lines`."""

    SETTINGS = ("lines",)

    threads: int
    lines: int


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = problem.op
    assert isinstance(op, ScatterElements)
    if op.reduction != "none":
        return f"updates that {op.reduction} are put in place one after the other"
    return refuse_apart(problem)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[RowsTile]:
    rows, length, _ = lines_of(problem)
    for lines in dict.fromkeys(min(rows, max(1, run // length)) for run in _RUNS):
        yield from (RowsTile(threads, lines) for threads in _THREADS)


def _refuse_tile(problem: KernelProblem, tile: RowsTile, gpu: Gpu) -> str | None:
    rows, length, _ = lines_of(problem)
    if tile.threads not in _THREADS:
        return "there are blocks of 128, 256 or 512 threads"
    if tile.lines > rows:
        return Reason("{} rows are more than the {} that there are", tile.lines, rows)
    return refuse_shared(_CLAIM * tile.lines * length, gpu)


_REACHED, _UPDATE, _ELEMENT, _REGISTERS = 0.6, 25, 9, 56
"""The part of the bandwidth that an H200 reached; guesses at instructions of an update and of an element, and at
registers of a thread."""
_ISSUED, _BLOCK, _TURN = 128 * 1.6e9 * 0.6, 3.0e-6, 0.12e-6
"""A guess at the instructions of threads that a multiprocessor begins in a second, and at the seconds in which a block
waits for its indices, for its words and at its barriers; and those of a thread's element, as one row a block took on
an H200."""


def _seconds(problem: KernelProblem, tile: RowsTile, target: Target) -> float:
    gpu, (rows, length, _) = target.gpu, lines_of(problem)
    assert gpu is not None, "rows are of a GPU's blocks"
    blocks = ceil(rows / tile.lines)
    there = occupancy(tile.threads, _REGISTERS, _CLAIM * tile.lines * length, gpu)
    instructions = problem.inputs[1].type.elements * _UPDATE + rows * length * _ELEMENT
    issued = instructions / (gpu.sms * _ISSUED * min(1.0, blocks / gpu.sms))
    waits = ceil(blocks / (gpu.sms * there)) * (_BLOCK + tile.lines * length / tile.threads * _TURN)
    return float(max(moved(problem.nbytes, target) / _REACHED, issued, waits) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: RowsTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _), (rows, length, _) = problem.op, problem.inputs, lines_of(problem)
    assert isinstance(op, ScatterElements)
    types = f"{tile.threads}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    given = f"{rows}, {length}, {indices.shape[op.axis]}, {tile.lines}"
    pointers = ", ".join((*at.inputs, *at.outputs))
    call = f"bolt::portable::scatter_rows<{types}>(r, {given}, {pointers});"
    return StepCode(("bolt_portable/cuda/scatter/scatter_rows.h",), None, "", call)


def _serves(problem: KernelProblem) -> bool:
    made, updates = problem.outputs[0].type.elements, problem.inputs[1].type.elements
    return made > 0 and updates > 0 and lines_of(problem)[2] == 1


FORM: Form[RowsTile] = Form("rows", _serves, _refuse, _tiles, _refuse_tile, _seconds, RowsTile.read, _emit)
