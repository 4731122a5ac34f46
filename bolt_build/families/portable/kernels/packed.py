"""How a GPU brings axes into another order in accesses of several elements on both sides, wherever runs begin: tiles as
`permuted` has them, whose runs are cut where memory cuts them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.copies import copied_types, rows_kept, strided_text
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.permuted import (
    PermutedTile,
    TiledCopy,
    copy_of,
    is_copied,
    refuse_tile,
    refuse_turned,
    tile_text,
)
from bolt_build.families.portable.kernels.permuted_tiles import (
    BANK_BYTES,
    accesses,
    cuts,
    dense,
    is_even,
    joined_loops,
    placed,
    run_of,
)
from bolt_build.families.portable.kernels.tile_threads import THREADS, WARP, clocks_of, seconds_of
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ROOM = 20 << 10
"""Bytes of shared memory that a block has at most: five of them have room on most GPUs."""
_TRIED = 8
"""Tiles whose words and order in shared memory are looked for."""
_SECTOR = 32
"""Bytes that memory has at least: where a run is stored words are counted from the beginning of one."""
_WORDS = (4, 8, 16)
"""Bytes of an access that are tried."""
_READ_END, _STORE_END = 4, 80
"""Bytes that a run's ends waste beside it, in the mean: where it is read, and where it is stored, for a sector that is
stored in part takes as long as a whole one, twice. Guesses, as all constants here: an H200 measured single elements
alone."""
_BLOCK, _WORD, _LEAD, _READ, _STORE, _DIVISION, _ROW = 24, 14, 6, 2.5, 3.5, 4, 2
"""Instructions of a thread for where its tile stands, for a word, for each loop that leads to its run or to a row of
it, for an element that is read or stored, for each loop within a run but one of an element that finds its place by
itself, and for one of two rows."""
_REACHED, _TILE = 0.85, 2.0e-6
"""The part of the bandwidth at which tiles go, and seconds from a block's first load to its last store."""


@dataclass(frozen=True)
class PackedTile:
    """A tile of `permuted` whose threads have so many elements at once, of the input and of the output."""

    tile: PermutedTile
    words: tuple[int, ...]

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("words", "x".join(map(str, self.words))))

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> PackedTile:
        return PackedTile(PermutedTile.read(reader), reader.numbers("words"))


@dataclass(frozen=True)
class _Side:
    """Runs of a tile on one side as `PackedSide` of `packed.h` has them: extents and steps in shared memory of the
    loops within a run and of those outside, the innermost first; and words of `lanes` elements for each run."""

    within: tuple[tuple[int, int], ...]
    outside: tuple[tuple[int, int], ...]
    slots: int
    lanes: int
    unit: int

    @property
    def turns(self) -> float:
        """Of all threads: warps that have none in the last one go on at once."""
        return ceil(prod(extent for extent, _ in self.outside) * self.slots / WARP) * WARP / THREADS

    @property
    def instructions(self) -> float:
        """For where a word and its elements lie."""
        loops = len(self.within) - 1
        if loops < 1:
            return _WORD + _LEAD * len(self.outside)
        if self.within[0][0] >= self.unit:  # elements of two rows
            return _WORD + _LEAD * (len(self.outside) + loops + 1) + self.lanes * _ROW
        return _WORD + _LEAD * len(self.outside) + self.lanes * _DIVISION * loops

    def place(self, item: int) -> int:
        """Where the first element of an item's word lies in shared memory."""
        run, word = divmod(item, self.slots)
        found = 0
        for index, loops in ((word * self.lanes, self.within), (run, self.outside)):
            for extent, near in loops:
                index, own = divmod(index, extent)
                found += own * near
        return found

    def met(self, nbytes: int) -> float:
        """Accesses to shared memory that one of a warp takes, in the mean of the warps of a turn or less."""
        threads = WARP * BANK_BYTES // max(BANK_BYTES, nbytes)
        found = [accesses([self.place(first + i) for i in range(threads)], nbytes) for first in range(0, THREADS, 96)]
        return sum(found) / len(found)


def _side(copy: TiledCopy, tile: PackedTile, side: int) -> _Side:
    cut, near, lanes = tile.tile.cut, tile.tile.near, tile.words[side]
    loops, length, inside = joined_loops(copy.loops, cut, near, side), 1, 0
    for extent, far, _ in loops:
        if far != length:
            break
        length, inside = length * extent, inside + 1
    unit = _unit(copy.nbytes[1], lanes) if side else lanes
    if is_even(copy.loops, cut, side, unit, 0 if side else copy.offset):
        slots, unit = ceil(length / lanes), lanes
    else:
        slots = (unit - 1 + length + unit - 1) // unit * (unit // lanes)
    steps = tuple((extent, step) for extent, _, step in loops)
    return _Side(steps[:inside], steps[inside:], slots, lanes, unit)


def _unit(nbytes: int, lanes: int) -> int:
    """Elements from which on words of a run that is stored are counted."""
    return max(lanes, _SECTOR // nbytes)


def _edges(copy: TiledCopy, cut: tuple[int, ...]) -> float:
    """How many times the bytes of both sides are moved with those at the ends of runs."""
    lengths = [run_of(copy.loops, cut, side).length for side in (0, 1)]
    return 1 + (_READ_END / lengths[0] + _STORE_END / lengths[1]) / sum(copy.nbytes)


def _instructions(copy: TiledCopy, tile: PackedTile, met: bool) -> float:
    """Of all threads for a tile; an access to shared memory takes as long as four of them, and more where threads meet
    in a bank, if that is looked at."""
    issued, shared = float(_BLOCK), 0.0
    for number, element in enumerate((_READ, _STORE)):
        side = _side(copy, tile, number)
        issued += side.turns * (side.instructions + side.lanes * element)
        shared += side.turns * side.lanes * (side.met(copy.nbytes[0]) if met else 1.0) + side.turns
    return THREADS * max(issued, 4 * shared)


def _near(copy: TiledCopy, cut: tuple[int, ...], words: tuple[int, ...]) -> tuple[int, ...]:
    """Steps in shared memory: gaps stand between runs of the input, so that these need no division."""

    def met(near: tuple[int, ...]) -> float:
        return _side(copy, PackedTile(PermutedTile(cut, near), words), 1).met(copy.nbytes[0])

    return placed(copy.loops, cut, met, max(1, len(run_of(copy.loops, cut, 0).loops)))


def _words(copy: TiledCopy, side: int) -> list[int]:
    return sorted({max(1, nbytes // copy.nbytes[side]) for nbytes in _WORDS})


@functools.lru_cache(maxsize=512)
def _tiles(copy: TiledCopy, gpu: Gpu) -> tuple[PackedTile, ...]:
    """Those that take the fewest clocks if no threads meet in a bank, in the words of the fewest instructions: so tiles
    that are offered differ in their runs."""
    elements = prod(loop.extent for loop in copy.loops)
    middle = (_words(copy, 0)[1 % len(_words(copy, 0))], _words(copy, 1)[1 % len(_words(copy, 1))])

    def clocks(cut: tuple[int, ...]) -> float:
        tile = PackedTile(PermutedTile(cut, dense(copy.loops, cut)), middle)
        nbytes = elements * sum(copy.nbytes) * _edges(copy, cut)
        return clocks_of(nbytes, _instructions(copy, tile, False), copy.tiles(cut), gpu)

    def in_words(cut: tuple[int, ...]) -> PackedTile:
        stated = product(_words(copy, 0), _words(copy, 1))
        found = (PackedTile(PermutedTile(cut, _near(copy, cut, words)), words) for words in stated)
        return min(found, key=lambda tile: (_instructions(copy, tile, True), tile.words))

    best = sorted(cuts(copy.loops, _ROOM // copy.nbytes[0]), key=lambda cut: (clocks(cut), cut))[:_TRIED]
    return tuple(map(in_words, best))


def _each_tile(problem: KernelProblem, gpu: Gpu) -> Iterator[PackedTile]:
    yield from _tiles(copy_of(problem), gpu)


def _refuse_tile(problem: KernelProblem, tile: PackedTile, gpu: Gpu) -> str | None:
    if (reason := refuse_tile(problem, tile.tile, gpu)) is not None:
        return reason
    copy = copy_of(problem)
    if len(tile.words) != 2:
        return Reason("states accesses of {} sides, which are 2", len(tile.words))
    for side, own in enumerate(tile.words):
        if own not in _words(copy, side):
            return Reason("an access of {} elements is none of {} to {} bytes", own, _WORDS[0], _WORDS[-1])
    return None


@functools.lru_cache(maxsize=1024)
def _counted(copy: TiledCopy, tile: PackedTile) -> float:
    return _instructions(copy, tile, True)


def _seconds(problem: KernelProblem, tile: PackedTile, target: Target) -> float:
    """What the bytes and the ends of runs take, or what the instructions do, if that is longer."""
    copy = copy_of(problem)
    memory = moved(problem.nbytes, target) * _edges(copy, tile.tile.cut) / _REACHED
    return seconds_of(memory, _counted(copy, tile), copy.tiles(tile.tile.cut), _TILE, target)


def _emit(problem: KernelProblem, tile: PackedTile, at: StepExpressions) -> StepCode:
    loops, offset = rows_kept(problem, at.input_pitch(0), at.pitch(0))
    sides, cut = (problem.inputs[0], problem.outputs[0]), tile.tile.cut
    units = (tile.words[0], _unit(sides[1].format.dtype.nbytes, tile.words[1]))
    even = (boolean(is_even(loops, cut, side, unit, 0 if side else offset)) for side, unit in enumerate(units))
    how = f"{tile_text(loops, tile.tile)}, {', '.join(map(str, tile.words))}, {', '.join(even)}"
    types = copied_types(*sides)
    copy = strided_text(loops, offset)
    call = f"bolt::portable::packed_copy<{types}, {how}>(r, {copy}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/cuda/packed.h",), None, "", call)


FORM: Form[PackedTile] = Form(
    "packed", is_copied, refuse_turned, _each_tile, _refuse_tile, _seconds, PackedTile.read, _emit
)
