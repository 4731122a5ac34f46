"""How a GPU brings axes into another order where no whole access divides them: tiles that are runs of memory on both
sides go through shared memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.geometry import MOST_AXES, Loop
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.copies import copied_types, in_whole_accesses, rows_kept, strided_text
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tile_threads import THREADS, clocks_of, numbers, seconds_of
from bolt_build.families.portable.kernels.moves.permuted_tiles import (
    BANK_BYTES,
    SECTOR,
    Side,
    are_apart,
    conflicts,
    cuts,
    dense,
    is_even,
    matched,
    placed,
    run_of,
    side_of,
    size_of,
)
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ROOM = 20 << 10
"""Bytes of shared memory that a block has at most: five of them have room on most GPUs."""
_MOST = 48 << 10
"""The same that a candidate may state: what a block has without asking."""
_TRIED = 6
"""Tiles whose order in shared memory is looked for."""
_READ_END, _STORE_END, _STORE_PART = 5.5, 54.0, 0.85
"""Bytes of sectors that a run's ends waste beside it, in the mean: where it is read, and where it is stored, for memory
completes sectors that are stored in part; and bytes that an element costs of which a thread stores one at once, for
its warp's accesses end within sectors too."""
_WHOLE_READ_END, _WHOLE_STORE_END = 2.0, 8.0
"""The same where runs begin and end with sectors: a guess, for none of less than two sectors was measured."""
_BLOCK, _ACCESS, _RAGGED = 37.0, 2.3, 1.4
"""Instructions of a thread for where its tile and its words stand; of an access to memory, or to shared memory where no
threads meet in a bank; and of a word for each axis that may end within a tile."""
_PARTS, _WORDS = 0.5, 0.89
"""Accesses that parts of words take beside each word, of a kernel that stores words wherever rows begin, a guess; and
the part of other kernels' bandwidth that it reaches, fitted as the next two are."""
_REACHED, _SMALL, _TILE = 0.96, 300, 0.45e-6
"""The part of the bandwidth at which tiles go, elements of one beside which memory waits for blocks to begin and end,
and seconds from a block's first load to its last store. The first two are fitted to 276 kernels of 59 copies that
tuning measured on an H200: the one that is predicted to be fastest took 3% longer than the fastest.

All but the guesses are fitted to 202 times that an H200 took for 56 copies of which elements are loaded one by one, or
have four bytes: the tile that is predicted to be fastest took 0.7% longer than the fastest in the mean, 4% at most.
When words of two elements were measured, threads waited for each before they asked for the next: those times are of no
use."""
_SHORTEST_ROW = 16
"""Elements of a row that is stored in words wherever it begins: of shorter ones parts of words are too many."""


@dataclass(frozen=True)
class PermutedTile:
    """So many elements of each loop, which lie `near` apart in shared memory."""

    cut: tuple[int, ...]
    near: tuple[int, ...]

    @property
    def parameters(self) -> Named:
        return ("tile", "x".join(map(str, self.cut))), ("near", "x".join(map(str, self.near)))

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> PermutedTile:
        return PermutedTile(reader.numbers("tile"), reader.numbers("near"))


@dataclass(frozen=True)
class _Copy:
    """What is copied: its loops, bytes of an element on both sides, and where the input begins. `anywhere`: rows are
    stored in words wherever they begin."""

    loops: tuple[Loop, ...]
    nbytes: tuple[int, int]
    offset: int
    anywhere: bool

    def tiles(self, cut: tuple[int, ...]) -> int:
        return prod(ceil(loop.extent / own) for loop, own in zip(self.loops, cut, strict=True))

    def even(self, cut: tuple[int, ...], side: int, unit: int = BANK_BYTES) -> bool:
        return is_even(self.loops, cut, side, self.nbytes[side], 0 if side else self.offset, unit)

    def side(self, cut: tuple[int, ...], near: tuple[int, ...], side: int) -> Side:
        anywhere = self.anywhere and side == 1
        return side_of(self.loops, cut, near, side, self.nbytes[side], self.even(cut, side), anywhere)

    def placed(self, cut: tuple[int, ...]) -> tuple[int, ...]:
        """The order in shared memory that takes the fewest instructions: in that of the output, rows are words there
        too, and may be one."""
        own = self.nbytes[0]
        found = [placed(self.loops, cut, own, self.even(cut, 1), self.anywhere)]
        if own == self.nbytes[1]:
            found.append(matched(self.loops, cut, own, self.even(cut, 0)))

        def order(near: tuple[int, ...]) -> tuple[bool, float]:
            sides = (self.side(cut, near, 0), self.side(cut, near, 1))
            return self.anywhere and self.refuse(cut, near) is not None, self.instructions(cut, sides, True)

        return min(found, key=order)

    def refuse(self, cut: tuple[int, ...], near: tuple[int, ...]) -> str | None:
        """Why such tiles are not stored in words wherever their rows begin."""
        row = side_of(self.loops, cut, near, 1, self.nbytes[1], self.even(cut, 1))
        if row.lanes > 1:
            return "all rows of the output begin and end with words"
        if row.row < _SHORTEST_ROW:
            return Reason(
                "rows of {} elements are mostly parts of words, at least {} are supported", row.row, _SHORTEST_ROW
            )
        return None

    def edges(self, cut: tuple[int, ...], lanes: int) -> float:
        """How many times the bytes of both sides are moved with those at the ends of runs, of so many elements that an
        access stores; small tiles take longer for theirs."""
        given, made = (run_of(self.loops, cut, side).length for side in (0, 1))
        read = (_WHOLE_READ_END if self.even(cut, 0, SECTOR) else _READ_END) / given
        stored = _WHOLE_STORE_END / made if self.even(cut, 1, SECTOR) else _STORE_END / made + _STORE_PART / lanes
        return (1 + (read + stored) / sum(self.nbytes)) * (1 + _SMALL / prod(cut))

    def instructions(self, cut: tuple[int, ...], sides: tuple[Side, Side], met: bool) -> float:
        """Of all threads for a tile. Accesses to shared memory are as many as words of one bank that a warp meets, if
        that is looked at."""
        ragged = sum(loop.extent % own > 0 for loop, own in zip(self.loops, cut, strict=True))
        taken = float(_BLOCK)
        for parts, side in zip((0.0, _PARTS if self.anywhere else 0.0), sides, strict=True):
            shared = side.accesses * (conflicts(side, self.nbytes[0]) if met else 1.0)
            taken += side.turns * (_ACCESS * (1 + shared + parts) + _RAGGED * ragged)
        return THREADS * taken


@functools.lru_cache(maxsize=512)
def _copy(problem: KernelProblem, anywhere: bool) -> _Copy:
    loops, offset = rows_kept(problem)
    sides = (problem.inputs[0], problem.outputs[0])
    return _Copy(loops, (sides[0].format.dtype.nbytes, sides[1].format.dtype.nbytes), offset, anywhere)


def _refuse(problem: KernelProblem, anywhere: bool) -> str | None:
    if problem.inputs[0].constant:
        return "a constant is copied once"
    if in_whole_accesses(problem):
        return "threads of the plain kernel have whole accesses"
    copy = _copy(problem, anywhere)
    if len(copy.loops) > MOST_AXES:
        return Reason("rows that may lie apart make {} loops, at most {} are supported", len(copy.loops), MOST_AXES)
    if any(step <= 0 for loop in copy.loops for step in loop.steps):
        return "elements are read backwards, or more than once"
    if any(all(loop.steps[side] != 1 for loop in copy.loops) for side in (0, 1)):
        return "no elements are neighbours on both sides"
    if anywhere and copy.nbytes[1] >= BANK_BYTES:
        return "elements of the output are whole words"
    return None


@functools.lru_cache(maxsize=512)
def _tiles(copy: _Copy, gpu: Gpu) -> tuple[PermutedTile, ...]:
    """Those that take the fewest clocks if no threads meet in a bank; legal ones first."""
    elements = prod(loop.extent for loop in copy.loops)

    def clocks(cut: tuple[int, ...]) -> float:
        near = dense(copy.loops, cut)
        sides = (copy.side(cut, near, 0), copy.side(cut, near, 1))
        nbytes = elements * sum(copy.nbytes) * copy.edges(cut, sides[1].lanes)
        return clocks_of(nbytes, copy.instructions(cut, sides, False), copy.tiles(cut), gpu)

    def order(cut: tuple[int, ...]) -> tuple[bool, float, tuple[int, ...]]:
        return copy.anywhere and copy.refuse(cut, dense(copy.loops, cut)) is not None, clocks(cut), cut

    best = sorted(cuts(copy.loops, _ROOM // copy.nbytes[0]), key=order)[:_TRIED]
    return tuple(PermutedTile(cut, copy.placed(cut)) for cut in best)


def _refuse_tile(problem: KernelProblem, tile: PermutedTile, anywhere: bool) -> str | None:
    """Why no kernel copies in such tiles, None where one does."""
    copy = _copy(problem, anywhere)
    if not len(copy.loops) == len(tile.cut) == len(tile.near):
        return Reason("a tile states {} loops and {} steps of {}", len(tile.cut), len(tile.near), len(copy.loops))
    if any(not 1 <= own <= loop.extent for own, loop in zip(tile.cut, copy.loops, strict=True)):
        return "a tile has at least one element of each loop, and at most all"
    if not are_apart(tile.cut, tile.near):
        return "elements of a tile would share a place in shared memory"
    if min(run_of(copy.loops, tile.cut, side).length for side in (0, 1)) < 2:
        return "elements of a tile are neighbours on one side alone"
    if (room := size_of(tile.cut, tile.near) * copy.nbytes[0]) > _MOST:
        return Reason("takes {} bytes of shared memory, a block has {}", room, _MOST)
    return copy.refuse(tile.cut, tile.near) if anywhere else None


@functools.lru_cache(maxsize=1024)
def _taken(copy: _Copy, tile: PermutedTile) -> tuple[float, float]:
    """How many times the bytes are moved, and instructions of a tile."""
    sides = (copy.side(tile.cut, tile.near, 0), copy.side(tile.cut, tile.near, 1))
    return copy.edges(tile.cut, sides[1].lanes), copy.instructions(tile.cut, sides, True)


def _seconds(problem: KernelProblem, tile: PermutedTile, target: Target, anywhere: bool) -> float:
    """What the bytes and the ends of runs take, or what the instructions do, if that is longer."""
    copy = _copy(problem, anywhere)
    edges, instructions = _taken(copy, tile)
    memory = moved(problem.nbytes, target) * edges / (_REACHED * (_WORDS if anywhere else 1.0))
    return seconds_of(memory, instructions, copy.tiles(tile.cut), _TILE, target)


def _emit(problem: KernelProblem, tile: PermutedTile, at: StepExpressions, anywhere: bool) -> StepCode:
    loops, offset = rows_kept(problem, at.input_pitch(0), at.pitch(0))
    sides = (problem.inputs[0], problem.outputs[0])
    of_a_tile = [
        tuple(loop.steps[side] if own > 1 else 0 for loop, own in zip(loops, tile.cut, strict=True)) for side in (0, 1)
    ]
    # Rows of one element that lie apart leave no neighbours to make words of.
    words = anywhere and 1 in of_a_tile[1]
    ragged = sum(1 << i for i, (loop, own) in enumerate(zip(loops, tile.cut, strict=True)) if loop.extent % own)
    even = [
        boolean(is_even(loops, tile.cut, side, operand.format.dtype.nbytes, 0 if side else offset))
        for side, operand in enumerate(sides)
    ]
    loops_of = ", ".join(map(numbers, (tile.cut, *of_a_tile, tile.near)))
    how = f"bolt::portable::PermutedTile<{loops_of}, {ragged}u>, {', '.join(even[:1] if words else even)}"
    name = "permuted_words" if words else "permuted"
    copy = f"r, {strided_text(loops, offset)}, {at.inputs[0]}, {at.outputs[0]}"
    call = f"bolt::portable::{name}_copy<{copied_types(*sides)}, {how}>({copy});"
    return StepCode((f"bolt_portable/cuda/moves/{name}.h",), None, "", call)


def _form(algorithm: str, anywhere: bool) -> Form[PermutedTile]:
    return Form(
        algorithm,
        lambda problem: (
            prod(problem.outputs[0].shape) > 0 and copied_types(problem.inputs[0], problem.outputs[0]) is not None
        ),
        lambda problem, gpu: _refuse(problem, anywhere),
        lambda problem, gpu: iter(_tiles(_copy(problem, anywhere), gpu)),
        lambda problem, tile, gpu: _refuse_tile(problem, tile, anywhere),
        lambda problem, tile, target: _seconds(problem, tile, target, anywhere),
        PermutedTile.read,
        lambda problem, tile, at: _emit(problem, tile, at, anywhere),
    )


FORM = _form("permuted", False)
"""Stored element by element, or in words where all rows begin and end with them."""
WORDS = _form("permuted_words", True)
"""Stored in words wherever rows begin: parts of words at their ends alone."""
