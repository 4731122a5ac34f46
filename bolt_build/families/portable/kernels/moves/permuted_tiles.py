"""Tiles of a copy that changes the order of axes: what one is of each loop, and where it lies in shared memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.kernels.elementwise.tile_threads import WARP, threads_along

BANKS, BANK_BYTES, SECTOR = 32, 4, 32
"""Of shared memory: an access of a warp is as many as it has words of one bank. And bytes that memory has at least."""
_RUNS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Elements of a run that are tried on each side."""
_STEP = 8
"""What parts of an axis may be multiples of, so that runs begin where words do."""
_PADS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 18, 20, 24, 32)
"""Elements between neighbours of an axis that are left free for the sake of banks."""
_ENOUGH = 1.15
"""Accesses that one takes from which on another padding is not looked for."""


@dataclass(frozen=True)
class Run:
    """Elements that follow each other on one side: of which `loops`, the innermost first, and how many."""

    loops: tuple[int, ...]
    length: int


def ordered(loops: Sequence[Loop], side: int) -> list[int]:
    """Loops of a side from the innermost in its memory on."""
    steps = [loop.steps[side] for loop in loops]
    return sorted(range(len(steps)), key=steps.__getitem__)


def run_of(loops: Sequence[Loop], cut: Sequence[int], side: int) -> Run:
    """The run of a tile of `cut` elements along each loop."""
    found, length = list[int](), 1
    for i in ordered(loops, side):
        if cut[i] == 1:
            continue
        if loops[i].steps[side] != length:
            break
        found.append(i)
        length *= cut[i]
    return Run(tuple(found), length)


@dataclass(frozen=True)
class Side:
    """How the threads of a block go through a tile along one side, as the kernel does: loops of (extent,
    step in shared memory), the innermost first; threads along each; turns; elements of a word; and accesses to shared
    memory of a word: one where it is a word there too."""

    loops: tuple[tuple[int, int], ...]
    box: tuple[int, ...]
    turns: int
    lanes: int
    accesses: int

    @property
    def row(self) -> int:
        """Elements of the innermost loop."""
        return self.loops[0][0]


def side_of(
    loops: Sequence[Loop],
    cut: Sequence[int],
    near: Sequence[int],
    side: int,
    nbytes: int,
    even: bool,
    anywhere: bool = False,
) -> Side:
    """Loops that follow each other on the side and in shared memory are one. `anywhere`: rows are stored in words
    wherever they begin."""
    kept = list[list[int]]()
    for i in reversed(ordered(loops, side)):
        far, own = loops[i].steps[side], cut[i]
        if own == 1:
            continue
        if kept and (kept[-1][1], kept[-1][2]) == (own * far, own * near[i]) and loops[i].extent % own == 0:
            kept[-1] = [kept[-1][0] * own, far, near[i]]
        else:
            kept.append([own, far, near[i]])
    few = max(1, BANK_BYTES // nbytes)
    lanes = few if anywhere or (even and kept[-1][1] == 1 and kept[-1][0] % few == 0) else 1
    extents = [extent for extent, _, _ in reversed(kept)]
    if anywhere:
        extents[0] += 2 * (lanes - 1)
    box, parts = threads_along(tuple(extents), lanes)
    # Rows begin at the same element of a word on the side and in shared memory.
    matched = kept[-1][2] == 1 and all((step - far) % lanes == 0 for _, far, step in kept)
    accesses = 1 if matched else lanes
    return Side(tuple((extent, step) for extent, _, step in reversed(kept)), box, prod(parts), lanes, accesses)


def is_even(
    loops: Sequence[Loop], cut: Sequence[int], side: int, nbytes: int, offset: int, unit: int = BANK_BYTES
) -> bool:
    """Whether runs of all tiles begin and end where units of so many bytes do, if the side's first element does."""
    run, few = run_of(loops, cut, side).loops, max(1, unit // nbytes)
    steps = [offset]
    for i, (loop, own) in enumerate(zip(loops, cut, strict=True)):
        steps += [own * loop.steps[side]] if own < loop.extent else []
        steps += [loop.steps[side]] if own > 1 and i not in run else []
        steps += [loop.extent * loop.steps[side]] if i in run and loop.extent % own else []
    return all(step % few == 0 for step in steps)


def _along(loops: Sequence[Loop], side: int, wanted: int, step: int) -> list[int]:
    """What a run of about `wanted` elements takes of each loop; parts of one are even, or multiples of `step`."""
    cut, length = [1] * len(loops), 1
    for i in ordered(loops, side):
        loop = loops[i]
        if loop.steps[side] != length or length >= wanted:
            break
        parts = ceil(loop.extent * length / wanted)
        cut[i] = min(loop.extent, ceil(ceil(loop.extent / parts) / step) * step)
        length *= cut[i]
        if cut[i] < loop.extent:
            break
    return cut


def cuts(loops: Sequence[Loop], most: int) -> Iterator[tuple[int, ...]]:
    """Tiles of at most so many elements that are runs of some length on both sides."""
    seen = set[tuple[int, ...]]()
    for given, made in product(_RUNS, _RUNS):
        for step in (1, _STEP):
            sides = (_along(loops, 0, given, step), _along(loops, 1, made, step))
            cut = tuple(map(max, *sides))
            if cut not in seen and 1 < prod(cut) <= most:
                seen.add(cut)
                yield cut


def size_of(cut: Sequence[int], near: Sequence[int]) -> int:
    """Elements of shared memory."""
    return sum((own - 1) * step for own, step in zip(cut, near, strict=True)) + 1


def are_apart(cut: Sequence[int], near: Sequence[int]) -> bool:
    """Whether no two elements share a place in shared memory: every step leads over all that smaller ones reach."""
    reach = 0
    for step, own in sorted((step, own) for step, own in zip(near, cut, strict=True) if own > 1):
        if step <= reach:
            return False
        reach += (own - 1) * step
    return True


def conflicts(side: Side, nbytes: int) -> float:
    """Accesses to shared memory that one of a warp takes, in the mean of some warps."""
    (_, first), *others = side.loops
    return _met((first * side.lanes, *(step for _, step in others)), side.box, nbytes)


@functools.lru_cache(maxsize=4096)
def _met(steps: tuple[int, ...], box: tuple[int, ...], nbytes: int) -> float:
    """The same of threads that lie so far apart: copies of other extents ask again."""
    wide = max(BANK_BYTES, nbytes)
    threads, banks = WARP * BANK_BYTES // wide, BANKS * BANK_BYTES // wide
    places = [0]
    for step, many in zip(steps, box, strict=True):
        places = [place + index * step for index in range(many) for place in places]
    found = list[int]()
    for first in range(0, max(1, len(places) - threads + 1), 2 * threads):
        met = [0] * banks
        for word in {place * nbytes // wide for place in places[first : first + threads]}:
            met[word % banks] += 1
        found.append(max(met))
    return sum(found) / len(found)


def dense(loops: Sequence[Loop], cut: Sequence[int], gaps: Sequence[int] = ()) -> tuple[int, ...]:
    """Steps in shared memory as in the input, with gaps behind the elements of each loop's neighbours."""
    found, step = [0] * len(cut), 1
    for place, i in enumerate(i for i in ordered(loops, 0) if cut[i] > 1):
        found[i] = step = step + (gaps[place] if gaps else 0)
        step *= cut[i]
    return tuple(found)


def spread(met: Callable[[Sequence[int]], float], many: int, unit: int = 1) -> list[int]:
    """Gaps of whole units behind an axis or two with which threads of a warp seldom meet in one bank, as `met` says;
    none behind the innermost one."""
    gaps = [0] * many
    best = met(gaps)
    for place in range(1, many):
        if best <= _ENOUGH:
            break
        kept = 0
        for gap in _PADS:
            gaps[place] = gap * unit
            if (taken := met(gaps)) < 0.9 * best:
                best, kept = taken, gap * unit
            if best <= _ENOUGH:
                break
        gaps[place] = kept
    return gaps


def placed(
    loops: Sequence[Loop], cut: Sequence[int], nbytes: int, even: bool, anywhere: bool = False
) -> tuple[int, ...]:
    """Steps in shared memory: as in the input, with gaps where the output's order would have threads of a warp meet in
    one bank. `even` and `anywhere`: of the output's runs, as `side_of` has them."""

    def met(gaps: Sequence[int]) -> float:
        return conflicts(side_of(loops, cut, dense(loops, cut, gaps), 1, nbytes, even, anywhere), nbytes)

    return dense(loops, cut, spread(met, sum(own > 1 for own in cut)))


def matched(loops: Sequence[Loop], cut: Sequence[int], nbytes: int, even: bool) -> tuple[int, ...]:
    """Steps in shared memory as in the output, so that rows begin at the same element of a word on both, with gaps
    where the input's order would have threads of a warp meet in one bank. `even`: of the input's runs."""
    few = max(1, BANK_BYTES // nbytes)

    def steps(gaps: Sequence[int]) -> tuple[int, ...]:
        found, step = [0] * len(cut), 1
        for place, i in enumerate(i for i in ordered(loops, 1) if cut[i] > 1):
            step += (loops[i].steps[1] - step) % few + gaps[place]
            found[i] = step
            step *= cut[i]
        return tuple(found)

    def met(gaps: Sequence[int]) -> float:
        return conflicts(side_of(loops, cut, steps(gaps), 0, nbytes, even), nbytes)

    return steps(spread(met, sum(own > 1 for own in cut), few))
