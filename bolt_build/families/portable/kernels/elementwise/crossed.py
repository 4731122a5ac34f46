"""How a GPU compares rows with columns: one input has an element a row of the output, the other one a column. A block
keeps both as fp32, which holds whole numbers below 2^24, and a thread compares its columns with row after row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, gcd, prod
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.geometry import Loop, merged
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tiled import Points
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.elementwise.logic import Compare
from bolt_build.targets import Gpu, Target

_TYPES = (DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.F32, DType.F16, DType.BF16)
_LANES, _SECTOR, _DOWNS, _KINDS = 8, 32, (8, 16, 32, 64, 128), (1, 2, 4)
"""Columns of a thread's word, bytes that memory has at least, and rows of a block and kinds of beginnings that are
tried."""
_LEAST, _MOST = 32, 8192
"""Columns that a row has at least, and at most: a block keeps all of them."""
_COUNTED = 1 << 31
_WORD, _EXACT, _OTHER, _COLUMN, _HELD = 7, 1.75, 2.75, 5, 12
"""Instructions of a thread for a word of a row, for each element of one, which takes a sign or the question, for each
of its columns, and for a number that it keeps for the block: counted in the machine code."""
_ISSUED, _REACHED, _BLOCK = 0.7, 0.9, 2.0e-6
"""The parts of the rate of instructions and of the bandwidth at which it goes, and seconds from a block's first load to
its last store."""
_RESIDENT, _KIND = 4, 0.3e-6
_SURE = 1.1
"""How much longer a kernel is taken to be than that. An H200 took longer still, and so it did for the other forms: with
this the fastest of eight comparisons was predicted to be so."""


@dataclass(frozen=True)
class CrossedTile(NumberTile):
    """A block has `down` rows, of those that begin alike within sectors of memory, and so for `kinds` of beginnings one
    after the other."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("down", "kinds")

    down: int
    kinds: int


@dataclass(frozen=True)
class _Crossing:
    """Images of rows by columns; from one image to the next, of the input with an element a column and of that with one
    a row; from a row to the next; and whether the first input is the one with columns."""

    images: int
    rows: int
    columns: int
    of_image: tuple[int, int]
    of_row: int
    first_across: bool

    @property
    def alike(self) -> int:
        """From a row to the next one that begins alike within a sector of memory."""
        return _SECTOR // gcd(_SECTOR, self.columns)

    @property
    def lines(self) -> int:
        """Rows that begin alike, with one behind the last, which stores its end."""
        return self.rows // self.alike + 1

    def blocks(self, tile: CrossedTile) -> int:
        return self.images * ceil(self.alike / tile.kinds) * ceil(self.lines / tile.down)

    @property
    def words(self) -> int:
        """Threads of a row."""
        return (self.columns + 2 * _SECTOR - 2) // _SECTOR * (_SECTOR // _LANES)


def _crossing(points: Points) -> _Crossing | None:
    """How its inputs cross; None where they do not."""
    if len(points.nbytes) != 3:
        return None
    loops = merged((Loop(loop.extent, loop.steps) for loop in points.loops), 3)
    if not 2 <= len(loops) <= 3:
        return None
    *outer, rows, columns = loops
    across = next((side for side in (1, 2) if columns.steps[side] == 1 and rows.steps[side] == 0), 0)
    down = 3 - across
    if not across or columns.steps[down] != 0 or rows.steps[down] < 1:
        return None
    steps = outer[0].steps if outer else (0, 0, 0)
    if min(steps) < 0 or loops[0].steps[0] * loops[0].extent != prod(loop.extent for loop in loops):
        return None
    images = outer[0].extent if outer else 1
    return _Crossing(images, rows.extent, columns.extent, (steps[across], steps[down]), rows.steps[down], across == 1)


def _refuse(crossing: _Crossing) -> str | None:
    if not _LEAST <= crossing.columns <= _MOST:
        return Reason("compares rows of {} to {} columns, not of {}", _LEAST, _MOST, crossing.columns)
    if (many := crossing.images * crossing.rows * crossing.columns) >= _COUNTED:
        return Reason("{} elements are more than it counts", many)
    return None


def _seconds(crossing: _Crossing, problem: KernelProblem, tile: CrossedTile, target: Target) -> float:
    """What the bytes take or the instructions, if that is longer, and a part of the other."""
    gpu = target.gpu
    assert gpu is not None, "forms are of GPUs"
    blocks, down = crossing.blocks(tile), min(tile.down, crossing.lines)
    op = problem.op
    assert isinstance(op, Compare)
    element = _EXACT if problem.inputs[0].format.dtype.is_integer or op.question != "equal" else _OTHER
    words = crossing.words * (down * (_WORD + _LANES * element) + _LANES * _COLUMN)
    each = tile.kinds * (words + 2 * down * _HELD) + crossing.columns * _HELD
    issued = blocks * each / (target.rate("fp32") / 2) / _ISSUED
    memory = moved(problem.nbytes, target) / _REACHED
    waves = max(1.0, ceil(blocks / (gpu.sms * _RESIDENT)) * gpu.sms * _RESIDENT / blocks)
    together = (max(memory, issued) + 0.2 * min(memory, issued)) * min(waves, 1.5)
    return _SURE * (together + _BLOCK + (tile.kinds - 1) * _KIND) + OVERLAPPED * target.launch_seconds


def crossed_form(
    points: Callable[[KernelProblem, StepExpressions | None], Points], function: Callable[[Compare], str]
) -> Form[CrossedTile]:
    """The form of comparisons, of which `points` says where they read, and `function` which question they ask."""

    def known(problem: KernelProblem) -> _Crossing | None:
        one = {operand.format.dtype for operand in problem.inputs}
        if len(one) > 1 or not one <= set(_TYPES) or not problem.outputs[0].type.elements or problem.epilogue:
            return None
        return _crossing(points(problem, None))

    def of(problem: KernelProblem) -> _Crossing:
        found = known(problem)
        assert found is not None, "asked about problems that it serves"
        return found

    def emit(problem: KernelProblem, tile: CrossedTile, at: StepExpressions) -> StepCode:
        found = of(problem)
        assert isinstance(problem.op, Compare)
        across, down = at.inputs if found.first_across else at.inputs[::-1]
        dtype = ctype(problem.inputs[0].format.dtype)
        shape = struct(
            "bolt::portable::CrossedShape",
            rows=found.rows,
            columns=found.columns,
            down=tile.down,
            kinds=tile.kinds,
            of_image=f"{{{found.of_image[0]}, {found.of_image[1]}}}",
            of_row=found.of_row,
        )
        how = f"bolt::portable::typed::{function(problem.op)}, {boolean(found.first_across)}, {dtype}, {dtype}"
        call = f"bolt::portable::crossed<{how}>(r, {shape}, {found.images}, {across}, {down}, {at.outputs[0]});"
        return StepCode(("bolt_portable/cuda/elementwise/crossed.h",), None, "", call)

    def tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[CrossedTile]:
        kinds = {min(kind, of(problem).alike) for kind in _KINDS}
        yield from (CrossedTile(down, kind) for down in _DOWNS for kind in sorted(kinds))

    def refuse_tile(problem: KernelProblem, tile: CrossedTile, gpu: Gpu) -> str | None:
        if tile.down > max(_DOWNS):
            return Reason("a block has at most {} rows", max(_DOWNS))
        if tile.kinds > (alike := of(problem).alike):
            return Reason("rows begin in {} ways, not in {}", alike, tile.kinds)
        return None

    return Form(
        "crossed",
        lambda problem: known(problem) is not None,
        lambda problem, gpu: _refuse(of(problem)),
        tiles,
        refuse_tile,
        lambda problem, tile, target: _seconds(of(problem), problem, tile, target),
        CrossedTile.read,
        emit,
    )
