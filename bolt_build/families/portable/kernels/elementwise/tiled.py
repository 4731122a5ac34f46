"""How a GPU computes functions of a few tensors, element by element, where no whole access divides them or one stands
still along an axis: through tiles of the output whose loops the compiler knows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import TypeVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.geometry import MOST_AXES, Loop
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.copies import copied_types, copy_loops, neighbours_kept, rows_kept
from bolt_build.families.portable.form import Form, Tile
from bolt_build.families.portable.kernels.elementwise.tile_threads import (
    THREADS,
    WARP,
    clocks_of,
    numbers,
    seconds_of,
    threads_along,
)
from bolt_build.families.portable.typed import ctype, pointwise_loops
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

LANES = (16, 8, 4, 2, 1)
"""Elements of a word."""
_ACCESS = 16
"""Bytes of an access at most."""
_SIZES = (256, 512, 1024, 2048, 4096, 8192)
"""Elements of a tile that are tried."""
_MOST_TURNS = 64
"""Turns of a thread at most: each is code of its own."""
_STILL = 32
"""Elements of a loop along which an input stands still up to which a tile may have all of it."""
_BLOCK, _SIDE, _TURN, _LOAD, _ELEMENT, _RAGGED = 8, 3, 0.35, 0.2, 11, 0.35
"""Instructions of a thread for its tile, for where its words of a tensor stand, for a turn, for a load of one, for an
element of the result, and for each axis that may end within a tile: as kernels on an H200 behave, in which what an
element takes outweighs all else."""
_REACHED = 0.85
"""The part of the bandwidth at which tiles go: a guess."""
_EDGE = 7.5
"""Bytes at the ends of a warp's store, or of a run, that count as moved: as on an H200."""
_SECTOR = 32
"""Bytes that memory gives at least."""
_TILE = 1.2e-6
"""Seconds from a block's first load to its last store: a guess."""


@dataclass(frozen=True)
class Points:
    """Loops over the output with the steps of all tensors, the output's first; bytes of an element of each, and C++: of
    their types, of the function and of where it is. The first element of the first input that is read is `offset`,
    and an element takes `work` instructions beside those of a simple function."""

    loops: tuple[Loop, ...]
    nbytes: tuple[int, ...]
    types: str
    function: str
    header: str
    offset: int = 0
    work: float = 0

    def inner(self, side: int) -> int:
        return self.loops[-1].steps[side]

    def has_words(self, lanes: int) -> bool:
        """Whether words of so many elements are of all tensors: neighbours, or one that stands still."""
        for side, own in enumerate(self.nbytes):
            if self.inner(side) not in (0, 1) or (side == 0 and lanes * own > _ACCESS) or lanes * own > 4 * _ACCESS:
                return lanes == 1
            if self.inner(side) == 1 and any(loop.steps[side] % lanes for loop in self.loops[:-1]):
                return lanes == 1
        return self.loops[-1].extent % lanes == 0

    def tiles(self, cut: tuple[int, ...]) -> int:
        return prod(ceil(loop.extent / own) for loop, own in zip(self.loops, cut, strict=True))

    def parts(self, cut: tuple[int, ...], lanes: int) -> list[tuple[Loop, int]]:
        """Turns of a thread along each loop of a tile, the innermost first."""
        inside = [(loop, own) for loop, own in zip(self.loops, cut, strict=True) if own > 1][::-1]
        _, turns = threads_along(tuple(own for _, own in inside), lanes)
        return [(loop, parts) for (loop, _), parts in zip(inside, turns, strict=True)]

    def instructions(self, cut: tuple[int, ...], lanes: int) -> float:
        """Of all threads for a tile."""
        parts = self.parts(cut, lanes)
        turns = prod(each for _, each in parts)
        ragged = sum(loop.extent % own > 0 for loop, own in zip(self.loops, cut, strict=True))
        issued = _BLOCK + turns * (_TURN + lanes * (_ELEMENT + self.work) + _RAGGED * ragged)
        for side, own in enumerate(self.nbytes):
            words = turns if side == 0 else prod(each for loop, each in parts if loop.steps[side])
            accesses = ceil(lanes * own / _ACCESS) if self.inner(side) == 1 else lanes if self.inner(side) else 1
            issued += _SIDE + words * accesses * _LOAD
        return float(THREADS * issued)

    def edges(self, cut: tuple[int, ...], lanes: int) -> float:
        """Bytes an element of the output that are moved at the ends of a warp's words and of runs, of all tensors."""
        found = 0.0
        for side in range(len(self.nbytes)):
            run = 1
            for loop, own in zip(reversed(self.loops), reversed(cut), strict=True):
                if loop.steps[side] != run:
                    break
                run *= own
            found += _EDGE / min(WARP * lanes, run) if self.inner(side) == 1 else 0.0
        return found


@dataclass(frozen=True)
class PointTile:
    """So many elements of each loop, in words of `lanes`."""

    cut: tuple[int, ...]
    lanes: int

    @property
    def parameters(self) -> Named:
        return ("tile", "x".join(map(str, self.cut))), ("lanes", self.lanes)

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> PointTile:
        return PointTile(reader.numbers("tile"), reader.number("lanes"))


def _sides(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Loops over a dense output, whose steps they state first."""
    inside = [prod(loop.extent for loop in loops[place + 1 :]) for place in range(len(loops))]
    return tuple(Loop(loop.extent, (step, *loop.steps)) for loop, step in zip(loops, inside, strict=True))


def points_of(
    problem: KernelProblem,
    function: str,
    header: str = "bolt_portable/pointwise.h",
    loops: tuple[Loop, ...] | None = None,
    work: float = 0,
) -> Points:
    """`function`, a C++ object of `header`, of the elements of all inputs, dense ones unless `loops` say where they
    lie."""
    operands = (*problem.outputs, *problem.inputs)
    types = ", ".join(ctype(operand.format.dtype) for operand in operands)
    nbytes = tuple(operand.format.dtype.nbytes for operand in operands)
    sides = _sides(pointwise_loops(problem) if loops is None else loops)
    return Points(sides, nbytes, types, function, header, work=work)


def _copied(problem: KernelProblem, loops: tuple[Loop, ...], offset: int) -> Points | None:
    """A copy whose elements are neighbours in the output; None where they are not converted so."""
    source, output = problem.inputs[0], problem.outputs[0]
    types = copied_types(source, output)
    if types is None or source.constant or loops[-1].steps[1] != 1:
        return None
    read, made = types.split(", ")
    nbytes = (output.format.dtype.nbytes, source.format.dtype.nbytes)
    turned = tuple(Loop(loop.extent, loop.steps[::-1]) for loop in loops)
    return Points(turned, nbytes, f"{made}, {read}", "bolt::portable::SameElement{}", "bolt_portable/move.h", offset)


def _apart(at: StepExpressions | None) -> tuple[int, int]:
    """How far apart rows of the first input and of the output lie; 0: dense."""
    return (0, 0) if at is None else (at.input_pitch(0), at.pitch(0))


def copied_points(problem: KernelProblem, at: StepExpressions | None) -> Points | None:
    """A copy of dense rows."""
    return _copied(problem, *copy_loops(problem, *_apart(at)))


def copied_rows(problem: KernelProblem, at: StepExpressions | None) -> Points | None:
    """A copy in loops that are as many wherever rows lie."""
    return _copied(problem, *rows_kept(problem, *_apart(at))) if neighbours_kept(problem) else None


def moved_rows(problem: KernelProblem, at: StepExpressions | None) -> Points | None:
    """The same of rows that change places: neighbours of the output are neighbours of the input, for two sectors and
    more."""
    found = copied_rows(problem, at)
    if found is None or found.inner(1) != 1 or found.loops[-1].extent * min(found.nbytes) < 2 * _SECTOR:
        return None
    return found


def _grown(points: Points, size: int, lanes: int, whole: int | None) -> tuple[int, ...]:
    """About so many elements of the innermost loops, and all of one further outside."""
    cut, left = [1] * len(points.loops), size
    if whole is not None:
        cut[whole] = points.loops[whole].extent
        left = ceil(left / cut[whole])
    for i in reversed(range(len(cut))):
        if i == whole:
            continue
        extent, unit = points.loops[i].extent, lanes if i == len(cut) - 1 else 1
        parts = ceil(extent / max(left, unit))
        cut[i] = min(extent, ceil(ceil(extent / parts) / unit) * unit)
        if cut[i] < extent:
            break
        left = ceil(left / extent)
        if left <= 1:
            break
    return tuple(cut)


@functools.lru_cache(maxsize=512)
def _tiles(points: Points, gpu: Gpu) -> tuple[PointTile, ...]:
    """The fastest first, by the clocks that they take of a multiprocessor."""
    widest = max(points.nbytes)
    lanes = next(each for each in LANES if points.has_words(each) and (each == 1 or each * widest <= 2 * _ACCESS))
    moving = [side for side in range(1, len(points.nbytes)) if any(loop.steps[side] for loop in points.loops)]
    stands = [
        i
        for i, loop in enumerate(points.loops[:-1])
        if loop.extent <= _STILL and any(not loop.steps[side] for side in moving)
    ]
    elements = prod(loop.extent for loop in points.loops)

    def clocks(tile: PointTile) -> float:
        nbytes = elements * (points.nbytes[0] + points.edges(tile.cut, tile.lanes))
        return clocks_of(nbytes, points.instructions(tile.cut, tile.lanes), points.tiles(tile.cut), gpu)

    found = {
        PointTile(_grown(points, size * own, own, whole), own)
        for own in {lanes, min(lanes, 2), min(lanes, 4)}
        if points.has_words(own)
        for size in _SIZES
        for whole in (None, *stands)
    }
    return tuple(
        sorted(
            (each for each in found if _refuse_tile(points, each) is None), key=lambda e: (clocks(e), e.cut, e.lanes)
        )
    )


def _refuse_tile(points: Points, tile: PointTile) -> str | None:
    if len(points.loops) != len(tile.cut):
        return Reason("a tile states {} loops of {}", len(tile.cut), len(points.loops))
    if any(not 1 <= own <= loop.extent for own, loop in zip(tile.cut, points.loops, strict=True)):
        return "a tile has at least one element of each loop, and at most all"
    if prod(tile.cut) < 2:
        return "a tile of one element is none"
    if tile.lanes not in LANES or not points.has_words(tile.lanes) or tile.cut[-1] % tile.lanes:
        return Reason("words of {} elements are not of all tensors", tile.lanes)
    if (turns := prod(each for _, each in points.parts(tile.cut, tile.lanes))) > _MOST_TURNS:
        return Reason("a thread would have {} turns, at most {} are code", turns, _MOST_TURNS)
    return None


def _seconds(points: Points, problem: KernelProblem, tile: PointTile, target: Target) -> float:
    """What the bytes take, or what the instructions do, if that is longer."""
    elements = prod(loop.extent for loop in points.loops)
    more = 1 + elements * points.edges(tile.cut, tile.lanes) / problem.nbytes
    # What lies between elements that are read is of the same sectors.
    apart = [min(_SECTOR / own, abs(points.inner(side))) for side, own in enumerate(points.nbytes)]
    wasted = (own * (each - 1) for own, each in zip(points.nbytes, apart, strict=True) if each > 1)
    more += elements * sum(wasted) / problem.nbytes
    memory = moved(problem.nbytes, target) * more / _REACHED
    return seconds_of(memory, points.instructions(tile.cut, tile.lanes), points.tiles(tile.cut), _TILE, target)


def _emit(points: Points, tile: PointTile, at: StepExpressions) -> StepCode:
    loops, count = points.loops, len(points.nbytes) - 1
    steps = [
        [loop.steps[side] if own > 1 else 0 for loop, own in zip(loops, tile.cut, strict=True)]
        for side in range(count + 1)
    ]
    ragged = sum(1 << i for i, (loop, own) in enumerate(zip(loops, tile.cut, strict=True)) if loop.extent % own)
    cut, *sides = map(numbers, (tile.cut, *steps))
    parameters = struct(
        f"bolt::portable::Pointwise<{count}>",
        rank=len(loops),
        extent=braces(loop.extent for loop in loops),
        step=braces(braces(loop.steps[side] for loop in loops) for side in range(1, count + 1)),
    )
    how = f"bolt::portable::PointTile<{cut}, {tile.lanes}, {ragged}u, {', '.join(sides)}>"
    first, *others = at.inputs
    if points.offset:
        first = f"static_cast<const {points.types.split(', ')[1]}*>({first}) + {points.offset}"
    call = (
        f"bolt::portable::tiled<{how}, {points.types}>(r, {parameters}, {braces(loop.steps[0] for loop in loops)}, "
        f"{points.function}, {at.outputs[0]}, {', '.join((first, *others))});"
    )
    return StepCode(tuple(dict.fromkeys((points.header, "bolt_portable/cuda/elementwise/tiled.h"))), None, "", call)


T = TypeVar("T", bound=Tile)


def form_of_points(
    algorithm: str,
    points: Callable[[KernelProblem, StepExpressions | None], Points | None],
    serves: Callable[[Points], bool],
    refuse: Callable[[KernelProblem, Points], str | None],
    tiles: Callable[[Points, Gpu], Iterable[T]],
    refuse_tile: Callable[[Points, T], str | None],
    seconds: Callable[[Points, KernelProblem, T, Target], float],
    read: Callable[[Reader], T],
    emit: Callable[[Points, T, StepExpressions], StepCode],
) -> Form[T]:
    """A form for problems of which `points` says what is computed where rows lie as in a step (None: dense), None of
    those that are no such. All else is asked of that."""

    @functools.lru_cache(maxsize=512)
    def known(problem: KernelProblem) -> Points | None:
        found = points(problem, None)
        return None if found is None or not serves(found) else found

    def of(problem: KernelProblem) -> Points:
        found = known(problem)
        assert found is not None, "asked about problems that it serves"
        return found

    def emit_where_rows_lie(problem: KernelProblem, tile: T, at: StepExpressions) -> StepCode:
        found = points(problem, at)
        assert found is not None, "emits what it serves"
        return emit(found, tile, at)

    return Form(
        algorithm,
        lambda problem: problem.outputs[0].type.elements > 1 and known(problem) is not None,
        lambda problem, gpu: refuse(problem, of(problem)),
        lambda problem, gpu: tiles(of(problem), gpu),
        lambda problem, tile, gpu: refuse_tile(of(problem), tile),
        lambda problem, tile, target: seconds(of(problem), problem, tile, target),
        read,
        emit_where_rows_lie,
    )


def tiled_form(
    points: Callable[[KernelProblem, StepExpressions | None], Points | None], whole: Callable[[KernelProblem], bool]
) -> Form[PointTile]:
    """The form for problems of which `points` says what is computed, and which the plain kernel has in `whole`
    accesses."""

    def refuse(problem: KernelProblem, found: Points) -> str | None:
        if whole(problem):
            return "threads of the plain kernel have whole accesses"
        if (count := len(found.loops)) > MOST_AXES:
            return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES)
        return None

    return form_of_points(
        "tiled", points, lambda found: True, refuse, _tiles, _refuse_tile, _seconds, PointTile.read, _emit
    )
