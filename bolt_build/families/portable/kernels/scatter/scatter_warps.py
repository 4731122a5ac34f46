"""How warps of a GPU scatter along an axis: lines lie in shared memory, and a warp puts 32 updates of one in place at
once, in their order wherever several are of one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tile_threads import THREADS
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.scatter.scatter_lines import UPDATES, lines_of, parameters, refuse_apart
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import Gpu, Target

_COLUMNS, _WORDS, _ACCESS, _EACH = (64, 32, 16, 8), (16, 8, 4, 2, 1), 16, 8
"""Lines of a block side by side, elements of an access that are tried, bytes of one, and updates of a thread in a
round."""
_RUNS = (2048, 4096, 8192)
"""Elements of a block's rows that are tried."""
_REGISTERS, _MOST = 96, 0x7FFFFFFF
"""Registers of a thread, and what a signed number of 32 bits holds."""


@dataclass(frozen=True)
class WarpColumnsTile(NumberTile):
    """A block has the lines of so many neighbours along the axes behind."""

    columns: int

    @property
    def rows(self) -> int:
        """Updates of each line in a round."""
        return _EACH * THREADS // self.columns


@dataclass(frozen=True)
class WarpRowsTile(NumberTile):
    """A block has so many neighbouring lines."""

    SETTINGS = ("lines",)

    lines: int


def _sizes(problem: KernelProblem) -> tuple[int, int]:
    """Bytes of what shared memory has of an element (`HeldUpdates`), and of an update there."""
    op, data = problem.op, problem.inputs[0].format.dtype
    assert isinstance(op, ScatterElements)
    value = 4 if data in (DType.F16, DType.BF16) else data.nbytes
    return (value if op.reduction in ("add", "mul") else data.nbytes), value


def _extent(problem: KernelProblem) -> int:
    assert isinstance(problem.op, ScatterElements)
    return problem.inputs[1].shape[problem.op.axis]


def _apart(columns: int, size: int) -> int:
    """Bytes from a row of shared memory to the next (`WarpColumns::apart`)."""
    return (columns + (1 if size >= 4 else 4 // size)) * size


def _shared_columns(problem: KernelProblem, tile: WarpColumnsTile) -> int:
    """Bytes of shared memory of a block (`WarpColumns::shared`)."""
    held, value = _sizes(problem)
    lines = lines_of(problem)[1] * _apart(tile.columns, held)
    stage = tile.rows * (_apart(tile.columns, value) + _apart(tile.columns, 4))
    return ceil(lines / 16) * 16 + ceil(stage / 16) * 16


def _shared_rows(problem: KernelProblem, tile: WarpRowsTile) -> int:
    """The same of `WarpRows`."""
    held, elements = _sizes(problem)[0], tile.lines * lines_of(problem)[1]
    lanes = _ACCESS // problem.inputs[0].format.dtype.nbytes
    return (elements + elements // lanes * (1 if held >= 4 else 4 // held)) * held


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_apart(problem)) is not None:
        return reason
    outer, length, inner = lines_of(problem)
    if (most := outer * max(length, _extent(problem)) * inner) > _MOST:
        return Reason("{} elements are more than the {} that it counts", most, _MOST)
    return None


def _columns(problem: KernelProblem, gpu: Gpu) -> Iterator[WarpColumnsTile]:
    inner = lines_of(problem)[2]
    return (WarpColumnsTile(each) for each in _COLUMNS if each < 2 * inner or each == _COLUMNS[-1])


def _refuse_columns(problem: KernelProblem, tile: WarpColumnsTile, gpu: Gpu) -> str | None:
    if tile.columns not in _COLUMNS:
        return Reason("there are blocks of 8, 16, 32 or 64 lines, not of {}", tile.columns)
    return refuse_shared(_shared_columns(problem, tile), gpu)


def _rows(problem: KernelProblem, gpu: Gpu) -> Iterator[WarpRowsTile]:
    rows, length, _ = lines_of(problem)
    warps = THREADS // WARP
    found = (max(1, run // length) for run in _RUNS)
    for lines in dict.fromkeys(each // warps * warps or each for each in found):
        yield WarpRowsTile(min(rows, lines))


def _refuse_rows(problem: KernelProblem, tile: WarpRowsTile, gpu: Gpu) -> str | None:
    rows = lines_of(problem)[0]
    if tile.lines > rows:
        return Reason("{} rows are more than the {} that there are", tile.lines, rows)
    return refuse_shared(_shared_rows(problem, tile), gpu)


_REACHED, _BEGIN = 0.8, 2.0e-6
"""A guess at the part of the bandwidth; seconds in which a kernel begins and ends."""
_UPDATE, _BYTE, _ELEMENT, _ALONE = 3.5e-12, 1.0e-12, 2.3e-12, 1.25
"""Of lines side by side: seconds of a GPU for an update of a line and for each byte of it, and for an element of a line
from memory and back to it; and how much longer one block of a multiprocessor takes than several. Fitted to twelve
kernels of an H200, off by 10%."""
_SHORT, _LINE = 1.07, 64
"""What runs take longer of fewer bytes than memory brings at once."""
_OF_ROW, _ROW_ELEMENT, _BESIDE = 8.0e-12, 1.7e-12, 3
"""The same of rows, and blocks of a multiprocessor of which some move lines while others put updates in place: fitted
to nine kernels, off by 15%."""


def _uneven(blocks: int, gpu: Gpu) -> float:
    """How much longer multiprocessors take that have a block more than others."""
    return ceil(blocks / gpu.sms) * gpu.sms / blocks if blocks < 8 * gpu.sms else 1.0


def _seconds_of_columns(problem: KernelProblem, tile: WarpColumnsTile, target: Target) -> float:
    gpu, (outer, length, inner) = target.gpu, lines_of(problem)
    assert gpu is not None, "lines are of a GPU's blocks"
    blocks, padded = outer * ceil(inner / tile.columns), ceil(inner / tile.columns) * tile.columns
    each = _UPDATE + _BYTE * problem.inputs[0].format.dtype.nbytes
    computed = outer * padded * (ceil(_extent(problem) / WARP) * WARP * each + length * _ELEMENT)
    there = occupancy(THREADS, _REGISTERS, _shared_columns(problem, tile), gpu)
    alone = _ALONE if there == 1 or blocks <= gpu.sms else 1.0
    alone *= _SHORT if tile.columns * problem.inputs[0].format.dtype.nbytes < _LINE else 1.0
    seconds = max(computed * _uneven(blocks, gpu) * alone, moved(problem.nbytes, target) / _REACHED)
    return float(_BEGIN + seconds + OVERLAPPED * target.launch_seconds)


def _seconds_of_rows(problem: KernelProblem, tile: WarpRowsTile, target: Target) -> float:
    gpu, (rows, length, _) = target.gpu, lines_of(problem)
    assert gpu is not None, "lines are of a GPU's blocks"
    blocks = ceil(rows / tile.lines)
    computed = rows * (_extent(problem) * _OF_ROW + length * _ROW_ELEMENT)
    there = min(occupancy(THREADS, _REGISTERS, _shared_rows(problem, tile), gpu), max(1.0, blocks / gpu.sms))
    alone = max(1.0, _BESIDE / there) ** 0.5
    seconds = max(computed * _uneven(blocks, gpu) * alone, moved(problem.nbytes, target) / _REACHED)
    return float(_BEGIN + seconds + OVERLAPPED * target.launch_seconds)


_HEADER = ("bolt_portable/cuda/scatter/scatter_warps.h",)


def _emit_columns(problem: KernelProblem, tile: WarpColumnsTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _), inner = problem.op, problem.inputs, lines_of(problem)[2]
    assert isinstance(op, ScatterElements)
    size = data.format.dtype.nbytes
    lanes = next(each for each in _WORDS if each * size <= _ACCESS and inner % each == 0 and tile.columns % each == 0)
    types = f"{tile.columns}, {lanes}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    given = f"{parameters(problem, 1, tile.columns)}, {', '.join((*at.inputs, *at.outputs))}"
    call = f"bolt::portable::scatter_warp_columns<{UPDATES[op.reduction]}, {types}>(r, {given});"
    return StepCode(_HEADER, None, "", call)


def _emit_rows(problem: KernelProblem, tile: WarpRowsTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _), (rows, length, _) = problem.op, problem.inputs, lines_of(problem)
    assert isinstance(op, ScatterElements)
    types = f"{UPDATES[op.reduction]}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    given = f"{rows}, {length}, {_extent(problem)}, {tile.lines}, {', '.join((*at.inputs, *at.outputs))}"
    call = f"bolt::portable::scatter_warp_rows<{types}>(r, {given});"
    return StepCode(_HEADER, None, "", call)


def _is_there(problem: KernelProblem) -> bool:
    return problem.outputs[0].type.elements > 0 and problem.inputs[1].type.elements > 0


COLUMNS: Form[WarpColumnsTile] = Form(
    "warp_columns",
    lambda problem: _is_there(problem) and lines_of(problem)[2] > 1,
    _refuse,
    _columns,
    _refuse_columns,
    _seconds_of_columns,
    WarpColumnsTile.read,
    _emit_columns,
)
ROWS: Form[WarpRowsTile] = Form(
    "warp_rows",
    lambda problem: _is_there(problem) and lines_of(problem)[2] == 1,
    _refuse,
    _rows,
    _refuse_rows,
    _seconds_of_rows,
    WarpRowsTile.read,
    _emit_rows,
)
