"""How a GPU moves elements of rows that no access divides, without shared memory: rows whose width the compiler knows,
in whole accesses of a dense output. A thread finds once which columns its elements are of, for several rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, gcd

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.copies import copied_types, neighbours_kept, rows_kept
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tile_threads import RESIDENT, THREADS, WARP, numbers, seconds_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WORDS, _TURNS = (1, 2, 4, 8, 16), (1, 2, 4, 8)
"""Elements of an access, and accesses of a thread, that are tried."""
_ACCESS, _SECTOR, _HELD = 16, 32, 16
"""Bytes of an access at most, bytes that memory has at least, and elements that a thread has at once at most: more
would leave registers, with their addresses."""
_LINE = 128
"""Bytes of a line of memory, as the L1 cache has them."""
_LARGEST = 1 << 31
"""Elements that 32 bits count."""
_BEGIN, _WORD, _ELEMENT = 30, 10, 4.5
"""Instructions of a thread for where its words stand, for a word and for an element of it: counted in what nvcc makes
of them, and changed after times of an H200, as the part of the bandwidth below."""
_REACHED, _TILE = 1.0, 1.5e-6
"""The part of the bandwidth at which rows go, and seconds from a block's first load to its last store."""


@dataclass(frozen=True)
class FlatRows:
    """Rows of an output, and the C++ of a source of `flat_rows.h` that says where their elements are. Instructions of a
    thread are for each of its columns, each row, and each element. Offsets count `reach` elements of a tensor, `wasted`
    are bytes of sectors that are read for nothing, less those of the tensors that are not read; `driver` is what
    launches it, `header` has the source. Neighbours of a row are loaded from `apart` bytes apart (0: beside each other,
    or said in `element`)."""

    rows: int
    width: int
    nbytes: int
    source: str
    column: float
    row: float
    reach: int
    wasted: float = 0.0
    dense: bool = True
    driver: str = "flat_rows"
    header: str = "bolt_portable/cuda/moves/flat_rows.h"
    element: float = _ELEMENT
    apart: float = 0.0


@dataclass(frozen=True)
class RowTile(NumberTile):
    """A thread has so many accesses, `turns`, of `words` elements."""

    words: int
    turns: int


@dataclass(frozen=True)
class _Cut:
    """How threads stand in rows: as `RowWords` of `flat_rows.h`."""

    parts: int
    threads: int
    high: int

    @staticmethod
    def of(rows: FlatRows, tile: RowTile) -> _Cut:
        unit = max(tile.words, _SECTOR // rows.nbytes)
        group, whole = unit // gcd(rows.width, unit), unit // tile.words
        words = rows.width * group // tile.words
        parts = ceil(words / THREADS)
        box = ceil(ceil(words / parts) / whole) * whole
        beside = 1 if parts > 1 or box > THREADS // 2 else THREADS // box
        return _Cut(parts, ceil(box * beside / WARP) * WARP, tile.turns * beside * group)


def place_of(reach: int) -> str:
    """The last argument of a source whose elements stand farther apart than 32 bits count: rows that lie apart are
    known only where a step is emitted, when nothing may be refused any more."""
    return ", bolt::portable::Index" if reach >= _LARGEST else ""


def sliced(problem: KernelProblem, at: StepExpressions | None) -> FlatRows | None:
    """A copy along loops, whose rows may lie apart. None where it converts no such types."""
    source, output = problem.inputs[0], problem.outputs[0]
    types = copied_types(source, output)
    if types is None or source.constant or not output.type.elements or not neighbours_kept(problem):
        return None
    given, pitch = (0, 0) if at is None else (at.input_pitch(0), at.pitch(0))
    loops, offset = rows_kept(problem, given, pitch)
    width, (inner, _) = loops[-1].extent, loops[-1].steps
    own = source.format.dtype.nbytes
    # What lies between elements that are read, or beside a short run of them, is of the same sectors.
    apart = min(_SECTOR / own, max(1, abs(inner))) if inner else 0.0
    read = width * apart * own
    wasted = (read - width * own if inner else 0.0) + (_SECTOR / 4 if inner and len(loops) > 1 else 0.0)
    dense = pitch == 0
    sides = (numbers(loop.steps[side] for loop in loops) for side in (0, 1))
    extents = numbers(loop.extent for loop in loops)
    reach = max(sum(abs(loop.steps[side]) * (loop.extent - 1) for loop in loops) for side in (0, 1)) + 1
    how = f"{extents}, {', '.join(sides)}, {boolean(dense)}{place_of(reach)}"
    name = f"bolt::portable::CopiedRows<{types}, {how}>"
    first = "" if at is None else at.inputs[0]
    pointer = f"static_cast<const {types.split(', ')[0]}*>({first}){f' + {offset}' if offset else ''}"
    rows = output.type.elements // width
    return FlatRows(
        rows,
        width,
        output.format.dtype.nbytes,
        f"{name}{{{pointer}}}",
        2,
        5 * max(1, len(loops) - 2),
        reach,
        rows * wasted,
        dense,
    )


def exchanged(problem: KernelProblem, at: StepExpressions | None) -> FlatRows | None:
    """The same of rows that change places: neighbours of the output are neighbours of the input, for two sectors and
    more."""
    found = sliced(problem, at)
    if found is None:
        return None
    inner = rows_kept(problem)[0][-1]
    widest = min(operand.format.dtype.nbytes for operand in (problem.inputs[0], problem.outputs[0]))
    return found if inner.steps[0] == 1 and inner.extent * widest >= 2 * _SECTOR else None


def _refuse_tile(rows: FlatRows, tile: RowTile) -> str | None:
    if tile.words not in _WORDS or tile.words * rows.nbytes > _ACCESS:
        return Reason("accesses of {} elements are none of {} bytes at most", tile.words, _ACCESS)
    if tile.words > rows.width:
        return Reason("accesses of {} elements are longer than rows of {}", tile.words, rows.width)
    if tile.turns not in _TURNS or tile.words * tile.turns * max(1, rows.nbytes // 4) > _HELD:
        return Reason("{} accesses of {} elements are more than a thread's registers hold", tile.turns, tile.words)
    return None


def _instructions(rows: FlatRows, tile: RowTile) -> float:
    """Of all threads of a block. A load of a warp takes the place of an instruction for each line of memory."""
    broken = 2 if rows.width % tile.words else 1
    lines = max(1.0, WARP * tile.words * rows.apart / _LINE) if rows.apart else 0.0
    turn = broken * rows.row + _WORD + tile.words * (rows.element + lines)
    return _Cut.of(rows, tile).threads * (_BEGIN + tile.words * rows.column + tile.turns * turn)


def _seconds(rows: FlatRows, problem: KernelProblem, tile: RowTile, target: Target) -> float:
    """What the bytes take, or what the instructions do, if that is longer. Threads behind the last row count too."""
    cut = _Cut.of(rows, tile)
    blocks = ceil(rows.rows / cut.high) * cut.parts
    memory = moved(problem.nbytes + rows.wasted, target) / _REACHED
    assert target.gpu is not None, "forms are of GPUs"
    # Few threads have few loads on their way.
    threads = min(blocks, target.gpu.sms * RESIDENT) * cut.threads
    full = min(1.0, threads / (target.gpu.sms * RESIDENT * WARP))
    return seconds_of(memory / full, _instructions(rows, tile), blocks, _TILE, target)


def row_form(
    describe: Callable[[KernelProblem, StepExpressions | None], FlatRows | None], whole: Callable[[KernelProblem], bool]
) -> Form[RowTile]:
    """The form for problems whose rows `describe` knows (None of those that are no such), where they lie as in a step
    (None: dense), and which the plain kernel has in `whole` accesses."""

    @functools.lru_cache(maxsize=512)
    def known(problem: KernelProblem) -> FlatRows | None:
        return describe(problem, None)

    def of(problem: KernelProblem) -> FlatRows:
        found = known(problem)
        assert found is not None, "asked about problems that it serves"
        return found

    def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
        if whole(problem):
            return "threads of the plain kernel have whole accesses"
        rows = of(problem)
        if rows.width < 2:
            return "rows are single elements"
        # A block's place is counted in rows that are whole sectors together.
        most = max(rows.reach, rows.rows * rows.width, rows.width * _SECTOR)
        if most >= _LARGEST:
            return Reason("counts {} elements, which are more than 31 bits say", most)
        return None

    def tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[RowTile]:
        rows = of(problem)
        found = (RowTile(words, turns) for words in _WORDS for turns in _TURNS)
        yield from (tile for tile in found if _refuse_tile(rows, tile) is None)

    def emit(problem: KernelProblem, tile: RowTile, at: StepExpressions) -> StepCode:
        found = describe(problem, at)
        assert found is not None, "emits what it serves"
        how = f"{tile.words}, {tile.turns}, {boolean(found.dense)}"
        call = f'bolt::portable::{found.driver}<{how}>(r, {found.rows}, {found.source}, {at.outputs[0]}, "movement");'
        return StepCode((found.header,), None, "", call)

    return Form(
        "flat_rows",
        lambda problem: known(problem) is not None,
        refuse,
        tiles,
        lambda problem, tile, gpu: _refuse_tile(of(problem), tile),
        lambda problem, tile, target: _seconds(of(problem), problem, tile, target),
        RowTile.read,
        emit,
    )
