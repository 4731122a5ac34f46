"""How a GPU computes functions of a few tensors, element by element, in whole words of a dense output, wherever its
rows end: a thread has several words, and what repeats itself in all of them is loaded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.geometry import Loop, merged
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.tile_threads import THREADS, WARP, numbers
from bolt_build.families.portable.kernels.elementwise.tiled import Points, form_of_points
from bolt_build.families.portable.typed import is_dense
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS = 16
"""Bytes of an access at most."""
_LANES = (16, 8, 4, 2, 1)
"""Elements of a word."""
_TURNS = (1, 2, 3, 4, 6, 8)
"""Words of a thread."""
_MOST = 0x7FFFFFFF
"""What a signed number of 32 bits holds."""
_THREAD, _PLACE, _BEGIN, _AGAIN, _END, _ELEMENT = 14, 7, 5, 2, 3, 3.5
"""Instructions of a thread; for which row a word is of; for where a loop of an input begins, and of whole rows behind
that; for an element that may be of the next row; and for an element of the result: as counted in the machine code of
some."""
_LONG = 64
"""Words of a row from which on most words of a warp are of one."""
_BANKS, _BANK, _CLOCK = 32, 4, 4
"""Banks of a multiprocessor's L1 cache, bytes of each, and instructions of a warp that are issued in a clock."""
_ISSUED, _HIDDEN, _REACHED = 0.8, 0.2, 0.87
"""The parts of the rate of instructions and of the bandwidth at which these kernels go, and that of the shorter of
memory and instructions which the longer one does not hide. They follow times of an H200."""
_RESIDENT, _TAIL = 4, 0.1
"""Blocks of a multiprocessor, and the part of all of them whose time the last ones add."""
_MEMORY_CLOCKS, _LANE_CLOCKS = 1 / 15, 128
"""Clocks of an H100's multiprocessor for a byte of memory, and instructions of threads in a clock: what tiles are
compared with before their prediction."""
_FEW, _ASKED = 2.0, 2
"""What a thread has too few bytes under way for, and words that it asks for before it uses the first."""
_SECTOR, _EDGE = 32, 7.5
"""Bytes that memory gives at least, and those at the ends of a warp's words that count as moved, as of tiles."""
_WORD = 1.2e-6
"""Seconds from a block's first load to its last store."""


@dataclass(frozen=True)
class FlatTile:
    """Words of `lanes` elements, of which a thread has `turns`, `apart` words from one to the next."""

    lanes: int
    turns: int
    apart: int

    @property
    def parameters(self) -> Named:
        return ("lanes", self.lanes), ("turns", self.turns), ("apart", self.apart)

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> FlatTile:
        return FlatTile(reader.number("lanes"), reader.number("turns"), reader.number("apart"))


@dataclass(frozen=True)
class _Side:
    """An input in the loops of the output, as `FlatLoops` of `flat_points.h` sees it."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    nbytes: int
    dense: bool

    def inside(self, loop: int) -> int:
        return prod(self.extents[loop:])

    def period(self, loop: int = 0) -> int:
        """Elements of the loops from one on after which it has the same ones again."""
        first = next((i for i in range(loop, len(self.steps)) if self.steps[i]), len(self.steps))
        return self.inside(first)

    def kept(self, tile: FlatTile) -> bool:
        """Whether a thread's words have the same of its elements: whole periods apart, and in the same place of the
        loops outside of these."""
        distance = tile.apart * tile.lanes
        return not self.dense and any(
            distance % self.period(loop) == 0 and (loop == 0 or self.inside(loop) % (distance * tile.turns) == 0)
            for loop in range(len(self.steps))
        )

    def together(self, lanes: int) -> int:
        """Neighbours of a word that are read at once, wherever it is."""
        if self.dense:
            return lanes
        if self.steps[-1] != 1:
            return 1
        return gcd(lanes, self.extents[-1], *self.steps[:-1])

    def accesses(self, lanes: int) -> int:
        """Loads of a word."""
        if self.dense:
            return 1
        if self.steps[-1] == 0:
            return 1 if self.extents[-1] % lanes == 0 else 2
        return lanes // self.together(lanes)

    def issued(self, lanes: int, again: bool) -> float:
        """Instructions of a thread for a word; `again`: for one of whole rows behind another."""
        run, inner = self.extents[-1], self.steps[-1]
        if self.dense:
            return ceil(lanes * self.nbytes / _ACCESS)
        begin = (_AGAIN if again else _BEGIN) * (1 + sum(step > 0 for step in self.steps[:-1]))
        found = begin + self.accesses(lanes)
        if run < lanes:
            return found + self.accesses(lanes) * (begin + _PLACE)
        if run % lanes and run < _LONG * lanes:
            found += begin + (lanes if inner == 0 else self.accesses(lanes) * _END)
        return found

    def cached(self, lanes: int) -> float:
        """Clocks of the L1 cache for a word of each thread of a warp: neighbouring threads are a word apart."""
        apart = lanes * self.nbytes * (1 if self.dense else self.steps[-1])
        return self.accesses(lanes) * min(_BANKS, max(1.0, apart / _BANK))


def _sides(points: Points) -> tuple[_Side, ...]:
    extents = tuple(loop.extent for loop in points.loops)
    return tuple(
        _Side(extents, tuple(loop.steps[side] for loop in points.loops), own, is_dense(points.loops, side))
        for side, own in enumerate(points.nbytes)
    )


def _elements(points: Points) -> int:
    return prod(loop.extent for loop in points.loops)


def _words(points: Points, tile: FlatTile) -> int:
    return ceil(_elements(points) / tile.lanes)


def _blocks(points: Points, tile: FlatTile) -> int:
    return ceil(ceil(_words(points, tile) / (tile.apart * tile.turns)) * tile.apart / THREADS)


def _instructions(points: Points, tile: FlatTile) -> float:
    """Of all threads of a block, or what the clocks of the cache are in their place, if that is more."""
    output, *inputs = _sides(points)
    once = [side for side in inputs if side.kept(tile)]
    words = [output, *(side for side in inputs if side not in once)]
    again = tile.apart * tile.lanes % points.loops[-1].extent == 0
    issued = (_ELEMENT + points.work) * tile.lanes + sum(side.issued(tile.lanes, again) for side in words)
    issued += _PLACE * any(not side.dense for side in words) * (not again)
    first = _THREAD + sum(side.issued(tile.lanes, False) for side in once)
    cached = sum(tile.turns * side.cached(tile.lanes) for side in words) + sum(side.cached(tile.lanes) for side in once)
    return float(THREADS * max(first + tile.turns * issued, _CLOCK * cached))


def _waits(points: Points, tile: FlatTile) -> float:
    """How much longer memory takes because a thread has too few bytes under way, and because a warp's words end within
    sectors."""
    output, *inputs = _sides(points)
    dense = sum(side.nbytes for side in inputs if side.dense)
    few = _FEW / (min(tile.turns, _ASKED) * tile.lanes * dense) if dense else 0.0
    edges = _EDGE / (WARP * tile.lanes * output.nbytes) if tile.apart * tile.lanes * output.nbytes % _SECTOR else 0.0
    return 1 + few + edges


def _aparts(points: Points, lanes: int, turns: int) -> Iterator[int]:
    """Words of a block side by side; whole rows; and of inputs that repeat themselves distances at which they do."""
    yield THREADS
    run = points.loops[-1].extent // gcd(points.loops[-1].extent, lanes)
    if run * lanes < _elements(points):
        yield run * ceil(THREADS / run)
    for side in _sides(points)[1:]:
        for loop in range(0 if not side.dense else len(side.steps), len(side.steps)):
            period = side.period(loop)
            own = period // gcd(period, lanes)
            if period == 1 or own * lanes >= side.inside(0):
                continue
            several = range(1, ceil(THREADS / own) + 1)
            found = [each for each in several if not loop or side.inside(loop) % (own * each * lanes * turns) == 0]
            if found:
                yield own * found[-1]


def _tiles(points: Points, gpu: Gpu) -> Iterator[FlatTile]:
    """Of words of each width, side by side and at distances at which inputs repeat themselves, as many a thread as take
    the fewest clocks of a multiprocessor."""
    dense = sum(side.nbytes for side in _sides(points) if side.dense)
    memory = _elements(points) * dense * _MEMORY_CLOCKS / gpu.sms

    def clocks(tile: FlatTile) -> float:
        return _together(points, tile, memory * _waits(points, tile), _LANE_CLOCKS * gpu.sms, gpu)

    widest = next(each for each in _LANES if each * points.nbytes[0] <= _ACCESS)
    for lanes in (each for each in _LANES if widest >= each >= min(widest, 2)):
        found = dict.fromkeys(FlatTile(lanes, turns, own) for turns in _TURNS for own in _aparts(points, lanes, turns))
        legal = [tile for tile in found if _refuse_tile(points, tile) is None]
        for beside in (True, False):
            yield from sorted((tile for tile in legal if (tile.apart == THREADS) is beside), key=clocks)[:1]


def _refuse(points: Points) -> str | None:
    if (many := _elements(points)) > _MOST:
        return Reason("{} elements are more than the {} that it counts", many, _MOST)
    return None


def _refuse_tile(points: Points, tile: FlatTile) -> str | None:
    if tile.lanes not in _LANES or tile.lanes * points.nbytes[0] > _ACCESS:
        return Reason("words of {} elements are no accesses", tile.lanes)
    if any(tile.lanes * own > 2 * _ACCESS for own in points.nbytes):
        return Reason("words of {} elements are more than two accesses of an input", tile.lanes)
    if tile.turns > max(_TURNS):
        return Reason("a thread would have {} words, at most {} are code", tile.turns, max(_TURNS))
    if (tile.turns - 1) * tile.apart >= _words(points, tile):
        return "no thread would have a last word"
    return None


def _together(points: Points, tile: FlatTile, memory: float, rate: float, gpu: Gpu) -> float:
    """What the bytes take, or what the instructions do at such a rate, if that is longer, and a part of the other."""
    blocks = _blocks(points, tile)
    issued = blocks * _instructions(points, tile) / rate / _ISSUED
    together = max(memory, issued) + _HIDDEN * min(memory, issued)
    return together * (1 + _TAIL * gpu.sms * _RESIDENT / blocks)


def _seconds(points: Points, problem: KernelProblem, tile: FlatTile, target: Target) -> float:
    assert target.gpu is not None, "forms are of GPUs"
    memory = moved(problem.nbytes, target) / _REACHED * _waits(points, tile)
    together = _together(points, tile, memory, target.rate("fp32") / 2, target.gpu)
    return max(together, _WORD) + OVERLAPPED * target.launch_seconds


def _offset(points: Points) -> str:
    """The type that holds where any element of an input stands, and where a row behind the last one would begin."""
    reach = max(sum(loop.extent * loop.steps[side] for loop in points.loops) for side in range(len(points.nbytes)))
    return "std::int32_t" if reach <= _MOST else "bolt::portable::Index"


def _emit(points: Points, tile: FlatTile, at: StepExpressions) -> StepCode:
    loops = points.loops
    extents = numbers(loop.extent for loop in loops)
    sides = [numbers(loop.steps[side] for loop in loops) for side in range(1, len(points.nbytes))]
    how = ", ".join((extents, str(tile.lanes), str(tile.turns), str(tile.apart), _offset(points), *sides))
    pointers = ", ".join((at.outputs[0], *at.inputs))
    call = f"bolt::portable::flat<bolt::portable::FlatLoops<{how}>, {points.types}>(r, {points.function}, {pointers});"
    return StepCode(
        tuple(dict.fromkeys((points.header, "bolt_portable/cuda/elementwise/flat_points.h"))), None, "", call
    )


def _serves(points: Points) -> bool:
    """A dense output, of inputs that are read from their first element on."""
    forwards = all(step >= 0 for loop in points.loops for step in loop.steps)
    return is_dense(points.loops, 0) and points.offset == 0 and forwards


def flat_form(
    points: Callable[[KernelProblem, StepExpressions | None], Points | None], whole: Callable[[KernelProblem], bool]
) -> Form[FlatTile]:
    """The form for problems of which `points` says what is computed where rows lie as in a step (None: dense), None of
    those that are no such; and which the plain kernel has in `whole` accesses."""

    def merged_points(problem: KernelProblem, at: StepExpressions | None) -> Points | None:
        """In as few loops as rows allow: a tile states none."""
        found = points(problem, at)
        if found is None:
            return None
        loops = (Loop(loop.extent, loop.steps) for loop in found.loops)
        return replace(found, loops=merged(loops, len(found.nbytes)))

    return form_of_points(
        "flat",
        merged_points,
        _serves,
        lambda problem, of: "threads of the plain kernel have whole accesses" if whole(problem) else _refuse(of),
        _tiles,
        _refuse_tile,
        _seconds,
        FlatTile.read,
        _emit,
    )
