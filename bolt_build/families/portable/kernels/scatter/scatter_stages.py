"""How a GPU scatters along an axis where rows of neighbouring lines are whole accesses: lines and updates lie in shared
memory, and stages of updates are on their way while those that have come are put in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tile_threads import THREADS
from bolt_build.families.portable.kernels.scatter.scatter_lines import UPDATES, lines_of, parameters, refuse_apart
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import Gpu, Target

_ACCESS, _LINE = 16, 128
"""Bytes of an access, and of a line of memory."""
_COLUMNS, _ROWS, _STAGES = (16, 32, 48, 64, 96, 128, 192, 256), (8, 16, 32), (2, 3, 4)
"""Lines of a block, updates of each in a stage, and stages that are tried."""
_REGISTERS = 64
_REACHED, _FLYING, _BETWEEN, _ENDS, _UNEVEN = 0.74, 25 << 10, 0.2, 8, 0.4
"""The part of the bandwidth at which lines and updates come where any number of bytes is on its way; bytes of a
multiprocessor on their way at which it is half of that; the part of its time in which a block moves nothing between two
waves of them, and half of it at both ends; bytes that a run of memory wastes that ends within a line; and the power of
how much more work some multiprocessors have than others. Fitted to 16 kernels of one problem on an H200, which take 8%
more or less."""
_LINES, _STAGE, _UPDATE = 3.0e-6, 0.25e-6, 0.012e-6
"""Seconds of a block's lines from memory and back to it, of a stage for which it waits together, and of an update:
guesses, for bytes took longer wherever the kernel was timed."""
_JOINED, _REPLACED = 0.033e-6, 0.004e-6
"""Seconds beside all that, in which memory waits while an update is joined with its element, or replaces it: as five
kernels of an H200 took."""


@dataclass(frozen=True)
class StagedLineTile(NumberTile):
    """The lines of `columns` neighbours along the axes behind. `stages` are on their way at once, of `rows` updates of
    each line."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("columns",)

    rows: int
    stages: int
    columns: int


def _sizes(problem: KernelProblem) -> tuple[int, int]:
    """Bytes of an element and of an index."""
    data, indices, _ = problem.inputs
    return data.format.dtype.nbytes, indices.format.dtype.nbytes


def _extent(problem: KernelProblem) -> int:
    assert isinstance(problem.op, ScatterElements)
    return problem.inputs[1].shape[problem.op.axis]


def _stage(problem: KernelProblem, tile: StagedLineTile) -> int:
    """Bytes of a stage."""
    return tile.rows * tile.columns * sum(_sizes(problem))


def _shared(problem: KernelProblem, tile: StagedLineTile) -> int:
    """Bytes of shared memory of a block (`StagedScatter`)."""
    length, size = lines_of(problem)[1], _sizes(problem)[0]
    return length * tile.columns * size + tile.stages * _stage(problem, tile)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_apart(problem)) is not None:
        return reason
    inner = lines_of(problem)[2]
    if any(inner * size % _ACCESS for size in _sizes(problem)):
        return Reason("rows of {} elements, or of as many indices, are no whole accesses", inner)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[StagedLineTile]:
    inner, extent = lines_of(problem)[2], _extent(problem)
    for columns in dict.fromkeys(min(each, inner) for each in _COLUMNS):
        for rows in _ROWS:
            for stages in (each for each in _STAGES if each == 2 or (each - 1) * rows < extent):
                yield StagedLineTile(rows, stages, columns)


def _refuse_tile(problem: KernelProblem, tile: StagedLineTile, gpu: Gpu) -> str | None:
    inner = lines_of(problem)[2]
    if tile.rows not in _ROWS or tile.stages not in _STAGES:
        return Reason("{} stages of {} updates: there are kernels of 2 to 4, of 8, 16 or 32", tile.stages, tile.rows)
    if tile.columns > inner:
        return Reason("{} lines are more than {}", tile.columns, inner)
    if tile.columns > THREADS:
        return Reason("{} lines are more than the {} threads of a block", tile.columns, THREADS)
    if any(tile.columns * size % _ACCESS for size in _sizes(problem)):
        return Reason("rows of {} elements, or of as many indices, are no whole accesses", tile.columns)
    return refuse_shared(_shared(problem, tile), gpu)


def _seconds(problem: KernelProblem, tile: StagedLineTile, target: Target) -> float:
    """What the bytes take with so many of them on their way, or a block's stages one after the other."""
    gpu, (outer, _, inner) = target.gpu, lines_of(problem)
    assert gpu is not None, "lines are of a GPU's blocks"
    blocks, extent = outer * ceil(inner / tile.columns), _extent(problem)
    there = min(occupancy(THREADS, _REGISTERS, _shared(problem, tile), gpu), ceil(blocks / gpu.sms))
    flying, run = there * tile.stages * _stage(problem, tile), tile.columns * _sizes(problem)[0]
    ends = _ENDS / run if run % _LINE else 0.0
    uneven = ceil(blocks / gpu.sms) * gpu.sms / blocks
    memory = moved(problem.nbytes, target) / _REACHED * uneven**_UNEVEN
    waves = ceil(blocks / (gpu.sms * there))
    memory *= (1 + _FLYING / flying) * (1 + _BETWEEN * (waves - 0.5) / there) * (1 + ends)
    waits = waves * (_LINES + ceil(extent / tile.rows) * _STAGE + extent * _UPDATE)
    assert isinstance(problem.op, ScatterElements)
    own = waves * extent * (_REPLACED if problem.op.reduction == "none" else _JOINED)
    return float(max(memory, waits) + own + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: StagedLineTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterElements)
    types = ", ".join(ctype(each.format.dtype) for each in (data, indices))
    pointers = ", ".join((*at.inputs, *at.outputs))
    call = (
        f"bolt::portable::staged_scatter<{UPDATES[op.reduction]}, {tile.rows}, {tile.stages}, {types}>(r, "
        f"{parameters(problem, 1, tile.columns)}, {pointers});"
    )
    return StepCode(("bolt_portable/lines.h", "bolt_portable/cuda/scatter/scatter_stages.h"), None, "", call)


FORM: Form[StagedLineTile] = Form(
    "staged_lines",
    lambda problem: problem.outputs[0].type.elements > 0 and problem.inputs[1].type.elements > 0,
    _refuse,
    _tiles,
    _refuse_tile,
    _seconds,
    StagedLineTile.read,
    _emit,
)
