"""How a GPU scatters along an axis: lines lie in shared memory, each of one thread, and updates come many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.geometry import around
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tile_threads import THREADS
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.targets import Gpu, Target

UPDATES = {
    "none": "bolt::portable::Replace", "add": "bolt::portable::typed::Add", "mul": "bolt::portable::typed::Mul",
    "max": "bolt::portable::typed::Max", "min": "bolt::portable::typed::Min",
}  # fmt: skip
"""C++ of what an update makes of an element."""
_ROOM, _AHEAD, _AHEAD_WIDE, _RESIDENT = 24 << 10, 16, 10, 4
"""Bytes of shared memory that a block has, updates of a line that a thread has asked for at once, the same of indices
in 64 bits, and blocks of a multiprocessor."""
_COLUMNS = (8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Neighbouring lines that are tried where there are more than a block has."""
_WORDS = (16, 8, 4, 2, 1)
"""Elements of an access that are tried, of 16 bytes at most."""
_SECTOR = 16
"""Bytes of a sector that the ends of a row waste, in the mean."""
_REACHED, _ROUND, _LINES, _FIRST = 0.8, 0.64e-6, 1.7e-6, 1.4
"""The part of the bandwidth at which lines and updates come, a guess; seconds of a round of updates; of a block's lines
from memory and back to it; and how much longer the first wave of blocks takes, beside itself. Fitted to four kernels of
one problem on an H200, which take 10% more or less than that."""
_ROWS = 1.3
"""What lines take longer whose updates are no neighbours of those of other lines: as four kernels of an H200 did."""
_UPDATE = 1.0e-6
"""Seconds in which the plain kernel puts an update in place, of a line whose updates wait for each other: as on an
H100."""


@dataclass(frozen=True)
class LineTile(NumberTile):
    """The lines of `columns` neighbours along the axes behind, of `outers` along those in front."""

    SETTINGS = ("outers", "columns")

    outers: int
    columns: int


def updates_wait(problem: KernelProblem) -> float:
    """Seconds of the plain kernel in which updates of a line wait for each other."""
    op, shape = problem.op, problem.inputs[1].shape
    assert isinstance(op, (ScatterElements, ScatterND))
    return _UPDATE * (shape[op.axis] if isinstance(op, ScatterElements) else prod(shape[op.batch_dims : -1]))


def lines_of(problem: KernelProblem) -> tuple[int, int, int]:
    assert isinstance(problem.op, ScatterElements)
    return around(problem.inputs[0], problem.op.axis)


def refuse_apart(problem: KernelProblem) -> str | None:
    """Why no block has whole lines, None where one may."""
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterElements)
    apart = [axis for axis in range(len(data.shape)) if axis != op.axis and data.shape[axis] != indices.shape[axis]]
    if apart:
        return Reason("indices leave out elements along axis {}, whose lines are copied alone", apart[0])
    return None


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_apart(problem)) is not None:
        return reason
    data = problem.inputs[0]
    if (line := lines_of(problem)[1] * data.format.dtype.nbytes) > _ROOM:
        return Reason("a line takes {} bytes, a block has {}", line, _ROOM)
    return None


def tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[LineTile]:
    outer, length, inner = lines_of(problem)
    most = min(THREADS, _ROOM // (length * problem.inputs[0].format.dtype.nbytes))
    if inner <= most:
        whole = most // inner
        for outers in dict.fromkeys((whole, max(1, whole // 2), max(1, whole // 4))):
            yield LineTile(min(outers, outer), inner)
    fit = [columns for columns in _COLUMNS if columns < inner and columns <= most]
    for columns in fit or ([most] if inner > most else []):
        yield LineTile(1, columns)


def refuse_tile(problem: KernelProblem, tile: LineTile, gpu: Gpu) -> str | None:
    """Why no block has such lines, None where one does."""
    outer, length, inner = lines_of(problem)
    if tile.outers > outer or tile.columns > inner:
        return Reason("{} times {} lines are more than {} times {}", tile.outers, tile.columns, outer, inner)
    if tile.outers * tile.columns > THREADS:
        return Reason("{} lines are more than the {} threads of a block", tile.outers * tile.columns, THREADS)
    if (room := tile.outers * tile.columns * length * problem.inputs[0].format.dtype.nbytes) > _ROOM:
        return Reason("takes {} bytes of shared memory, a block has {}", room, _ROOM)
    return None


def _seconds(problem: KernelProblem, tile: LineTile, target: Target) -> float:
    """What the bytes take with the ends of rows, or what the rounds of a block's lines do."""
    gpu, (outer, length, inner) = target.gpu, lines_of(problem)
    assert gpu is not None, "lines are of a GPU's blocks"
    assert isinstance(problem.op, ScatterElements)
    run = (tile.columns if tile.columns < inner else inner * length) * problem.inputs[0].format.dtype.nbytes
    memory = moved(problem.nbytes, target) * (1 + _SECTOR / run) / _REACHED
    blocks = ceil(outer / tile.outers) * ceil(inner / tile.columns)
    indices = problem.inputs[1]
    rounds = ceil(indices.shape[problem.op.axis] / (_AHEAD if indices.format.dtype.nbytes <= 4 else _AHEAD_WIDE))
    waits = (_FIRST + ceil(blocks / (gpu.sms * _RESIDENT))) * (_LINES + rounds * _ROUND)
    return float(max(memory, waits) * (_ROWS if inner == 1 else 1.0) + OVERLAPPED * target.launch_seconds)


def parameters(problem: KernelProblem, outers: int, columns: int) -> str:
    """What is scattered, by blocks of so many lines."""
    (outer, length, inner), op = lines_of(problem), problem.op
    assert isinstance(op, ScatterElements)
    return struct(
        "bolt::portable::ScatterLines",
        outer=outer,
        length=length,
        extent=problem.inputs[1].shape[op.axis],
        inner=inner,
        outers=outers,
        columns=columns,
    )


def _emit(problem: KernelProblem, tile: LineTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _), inner = problem.op, problem.inputs, lines_of(problem)[2]
    assert isinstance(op, ScatterElements)
    size = data.format.dtype.nbytes
    lanes = next(each for each in _WORDS if each * size <= 16 and inner % each == 0 and tile.columns % each == 0)
    types = f"{UPDATES[op.reduction]}, {lanes}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    pointers = ", ".join((*at.inputs, *at.outputs))
    headers = ("bolt_portable/lines.h", "bolt_portable/cuda/scatter/scatter.h")
    call = f"bolt::portable::scatter_lines<{types}>(r, {parameters(problem, tile.outers, tile.columns)}, {pointers});"
    return StepCode(headers, None, "", call)


FORM: Form[LineTile] = Form(
    "lines",
    lambda problem: problem.outputs[0].type.elements > 0 and problem.inputs[1].type.elements > 0,
    _refuse,
    tiles,
    refuse_tile,
    _seconds,
    LineTile.read,
    _emit,
)
