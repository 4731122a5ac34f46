"""How a GPU brings axes into another order where no whole access divides them: tiles that are runs of memory on both
sides go through shared memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.geometry import MOST_AXES, Loop
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.copies import copied_types, in_whole_accesses, rows_kept, strided_text
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.permuted_tiles import (
    Side,
    are_apart,
    conflicts,
    cuts,
    dense,
    is_even,
    placed,
    run_of,
    side_of,
    size_of,
)
from bolt_build.families.portable.kernels.tile_threads import THREADS, clocks_of, numbers, seconds_of
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ROOM = 20 << 10
"""Bytes of shared memory that a block has at most: five of them have room on most GPUs."""
_MOST = 48 << 10
"""The same that a candidate may state: what a block has without asking."""
_TRIED = 6
"""Tiles whose order in shared memory is looked for."""
_READ_END, _STORE_END = 4, 65
"""Bytes of sectors that a run's ends waste beside it, in the mean: where it is read, and where it is stored, for memory
completes sectors that are stored in part."""
_BLOCK, _READ_WORD, _STORE_WORD, _ELEMENT, _RAGGED = 24, 1, 4, 4, 1.5
"""Instructions of a thread for where its tile and its words stand, for a word that it reads, for one that it stores,
for an element of either, and for each axis that may end within a tile. These and the part of the bandwidth follow what
tuning measured on an H200."""
_REACHED, _TILE = 0.85, 2.0e-6
"""The part of the bandwidth at which tiles go, and seconds from a block's first load to its last store."""


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
    """What is copied: its loops, bytes of an element on both sides, and where the input begins."""

    loops: tuple[Loop, ...]
    nbytes: tuple[int, int]
    offset: int

    def tiles(self, cut: tuple[int, ...]) -> int:
        return prod(ceil(loop.extent / own) for loop, own in zip(self.loops, cut, strict=True))

    def even(self, cut: tuple[int, ...], side: int) -> bool:
        return is_even(self.loops, cut, side, self.nbytes[side], 0 if side else self.offset)

    def side(self, cut: tuple[int, ...], near: tuple[int, ...], side: int) -> Side:
        return side_of(self.loops, cut, near, side, self.nbytes[side], self.even(cut, side))

    def edges(self, cut: tuple[int, ...]) -> float:
        """How many times the bytes of both sides are moved with those at the ends of runs."""
        lengths = [run_of(self.loops, cut, side).length for side in (0, 1)]
        return 1 + (_READ_END / lengths[0] + _STORE_END / lengths[1]) / sum(self.nbytes)

    def instructions(self, cut: tuple[int, ...], near: tuple[int, ...], met: bool) -> float:
        """Of all threads for a tile; an access to shared memory takes as long as four of them, and more where threads
        meet in a bank, if that is looked at."""
        ragged = sum(loop.extent % own > 0 for loop, own in zip(self.loops, cut, strict=True))
        issued, shared = float(_BLOCK), 0.0
        for number, word in enumerate((_READ_WORD, _STORE_WORD)):
            side = self.side(cut, near, number)
            issued += side.turns * (word + side.lanes * _ELEMENT + ragged * _RAGGED)
            shared += side.turns * side.lanes * (conflicts(side, self.nbytes[0]) if met else 1.0) + side.turns
        return THREADS * max(issued, 4 * shared)


@functools.lru_cache(maxsize=512)
def _copy(problem: KernelProblem) -> _Copy:
    loops, offset = rows_kept(problem)
    sides = (problem.inputs[0], problem.outputs[0])
    return _Copy(loops, (sides[0].format.dtype.nbytes, sides[1].format.dtype.nbytes), offset)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if problem.inputs[0].constant:
        return "a constant is copied once"
    if in_whole_accesses(problem):
        return "threads of the plain kernel have whole accesses"
    loops = _copy(problem).loops
    if len(loops) > MOST_AXES:
        return Reason("rows that may lie apart make {} loops, at most {} are supported", len(loops), MOST_AXES)
    if any(step <= 0 for loop in loops for step in loop.steps):
        return "elements are read backwards, or more than once"
    if any(all(loop.steps[side] != 1 for loop in loops) for side in (0, 1)):
        return "no elements are neighbours on both sides"
    return None


@functools.lru_cache(maxsize=512)
def _tiles(copy: _Copy, gpu: Gpu) -> tuple[PermutedTile, ...]:
    """Those that take the fewest clocks if no threads meet in a bank."""
    own, elements = copy.nbytes[0], prod(loop.extent for loop in copy.loops)

    def clocks(cut: tuple[int, ...]) -> float:
        nbytes = elements * sum(copy.nbytes) * copy.edges(cut)
        return clocks_of(nbytes, copy.instructions(cut, dense(copy.loops, cut), False), copy.tiles(cut), gpu)

    best = sorted(cuts(copy.loops, _ROOM // own), key=lambda cut: (clocks(cut), cut))[:_TRIED]
    return tuple(PermutedTile(cut, placed(copy.loops, cut, own, copy.even(cut, 1))) for cut in best)


def tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PermutedTile]:
    yield from _tiles(_copy(problem), gpu)


def refuse_tile(problem: KernelProblem, tile: PermutedTile, gpu: Gpu) -> str | None:
    """Why no kernel copies in such tiles, None where one does."""
    copy = _copy(problem)
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
    return None


@functools.lru_cache(maxsize=1024)
def _instructions(copy: _Copy, tile: PermutedTile) -> float:
    return copy.instructions(tile.cut, tile.near, True)


def _seconds(problem: KernelProblem, tile: PermutedTile, target: Target) -> float:
    """What the bytes and the ends of runs take, or what the instructions do, if that is longer."""
    copy = _copy(problem)
    memory = moved(problem.nbytes, target) * copy.edges(tile.cut) / _REACHED
    return seconds_of(memory, _instructions(copy, tile), copy.tiles(tile.cut), _TILE, target)


def _emit(problem: KernelProblem, tile: PermutedTile, at: StepExpressions) -> StepCode:
    loops, offset = rows_kept(problem, at.input_pitch(0), at.pitch(0))
    sides = (problem.inputs[0], problem.outputs[0])
    of_a_tile = [
        tuple(loop.steps[side] if own > 1 else 0 for loop, own in zip(loops, tile.cut, strict=True)) for side in (0, 1)
    ]
    ragged = sum(1 << i for i, (loop, own) in enumerate(zip(loops, tile.cut, strict=True)) if loop.extent % own)
    even = (
        boolean(is_even(loops, tile.cut, side, operand.format.dtype.nbytes, 0 if side else offset))
        for side, operand in enumerate(sides)
    )
    loops_of = ", ".join(map(numbers, (tile.cut, *of_a_tile, tile.near)))
    how = f"bolt::portable::PermutedTile<{loops_of}, {ragged}u>, {', '.join(even)}"
    types = copied_types(*sides)
    copy = strided_text(loops, offset)
    call = f"bolt::portable::permuted_copy<{types}, {how}>(r, {copy}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/cuda/permuted.h",), None, "", call)


FORM: Form[PermutedTile] = Form(
    "permuted",
    lambda problem: (
        prod(problem.outputs[0].shape) > 0 and copied_types(problem.inputs[0], problem.outputs[0]) is not None
    ),
    _refuse,
    tiles,
    refuse_tile,
    _seconds,
    PermutedTile.read,
    _emit,
)
