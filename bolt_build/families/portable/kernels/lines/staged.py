"""How a GPU computes functions of lines that begin anywhere: a block's lines go through shared memory, where whole
accesses fill and empty it, whatever extents are multiples of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS = 16
"""Bytes of an access."""
_OF_A_WARP, _BLOCKS, _MOST_LOADS = (1, 2, 4, 8, 16, WARP), (128, 256, 512), 36
"""Threads of a warp that share a line, threads of a block, and elements that one of them holds at most."""
_RUNS = (8 << 10, 16 << 10, 32 << 10)
"""Bytes of a block's lines that are tried where lines are neighbours' runs."""
_COLUMNS = (32, 64, 128, 256)
"""Lines side by side that are tried of others."""
_COUNTED = 1 << 30
"""Elements from the first of lines side by side on that kernels count in 32 bits."""
_LEAST_SIDE_BY_SIDE = 16
"""Of fewer lines side by side, accesses have mostly elements of other blocks."""


@dataclass(frozen=True)
class Lines:
    """`groups` of `inner` lines that lie side by side, whose `count` elements lie as far apart; lines of neighbours
    have `inner` 1. Elements are `read` and `stored` in so many bytes. A block has `floats` for each element of a
    line beside it, and a thread `around` elements beside its own."""

    groups: int
    count: int
    inner: int
    read: int
    stored: int
    floats: int = 0
    around: int = 0

    @property
    def are_columns(self) -> bool:
        return self.inner > 1

    @property
    def elements(self) -> int:
        return self.groups * self.count * self.inner


@dataclass(frozen=True)
class StagedTile(NumberTile):
    """Of a block's so many `threads` a line has so many, and the block so many `lines`."""

    threads: int
    lines: int
    block: int

    @property
    def across(self) -> int:
        """Lines at once."""
        return self.block // self.threads

    def loads(self, of: Lines) -> int:
        """Elements of a thread."""
        return ceil(of.count / self.threads)

    def shared(self, of: Lines) -> int:
        """Bytes of shared memory of a block (`Stage`)."""
        chunk = _ACCESS // of.read
        runs, run = (of.count, self.lines) if of.are_columns else (1, self.lines * of.count)
        even = run % chunk == 0 and (of.inner % chunk == 0 or not of.are_columns)
        of_warps = 4 * self.block // WARP if self.threads > WARP else 0
        partial = 8 * self.block if of.are_columns and self.threads > 1 else of_warps
        return runs * ceil((run + (0 if even else chunk - 1)) / chunk) * _ACCESS + 4 * of.floats * of.count + partial

    def blocks(self, of: Lines) -> int:
        if of.are_columns:
            return of.groups * ceil(of.inner / self.lines)
        return ceil(of.groups / self.lines)

    def text(self, of: Lines) -> str:
        """A `StagedShape`."""
        sizes = ", ".join(map(str, (of.count, of.inner, self.lines, self.threads, self.block)))
        return f"bolt::portable::StagedShape<{sizes}>"


def tiles(of: Lines) -> Iterator[StagedTile]:
    """Of as few threads a line as hold it, and twice and four times as many; in blocks of several sizes."""
    found = dict[StagedTile, None]()
    for block in _BLOCKS:
        threads = [each for each in (*_OF_A_WARP, block) if of.count <= each * _MOST_LOADS and each <= 2 * of.count]
        for each in threads[:3]:
            found |= dict.fromkeys(_of_columns(of, each, block) if of.are_columns else _of_rows(of, each, block))
    yield from found


def _of_rows(of: Lines, threads: int, block: int) -> Iterator[StagedTile]:
    across = block // threads
    for wanted in _RUNS:
        turns = max(1, round(wanted / (across * of.count * of.read)))
        yield StagedTile(threads, turns * across, block)


def _of_columns(of: Lines, threads: int, block: int) -> Iterator[StagedTile]:
    across = block // threads
    if threads > WARP:
        return
    for wanted in _COLUMNS:
        if wanted % across == 0 and (wanted < 2 * of.inner or wanted == max(across, _COLUMNS[0])):
            yield StagedTile(threads, wanted, block)


def refuse_lines(of: Lines) -> str | None:
    """Why no kernel has such lines, None where some may."""
    if of.are_columns and of.inner < _LEAST_SIDE_BY_SIDE:
        return Reason("{} lines side by side are fewer than {}", of.inner, _LEAST_SIDE_BY_SIDE)
    most = _MOST_LOADS * (WARP if of.are_columns else _BLOCKS[-1])
    if of.count > most:
        return Reason("lines of {} elements are longer than the {} that the threads of one hold", of.count, most)
    return None


def refuse_tile(tile: StagedTile, of: Lines, gpu: Gpu) -> str | None:
    """Why no kernel has the lines so on this GPU, None where one does."""
    whole = () if of.are_columns else (tile.block,)
    if tile.block not in _BLOCKS or tile.threads not in (*_OF_A_WARP, *whole):
        return "there are blocks of 128, 256 or 512 threads, of which a line has up to 32 or, of neighbours, all"
    if of.are_columns and of.count * of.inner > _COUNTED:
        what = "{} elements of lines side by side are more than the {} that it counts"
        return Reason(what, of.count * of.inner, _COUNTED)
    if tile.lines % tile.across:
        return Reason("{} lines are not taken {} at a time", tile.lines, tile.across)
    if (loads := tile.loads(of)) > _MOST_LOADS:
        what = "{} elements are {} of each of {} threads, which hold {} at most"
        return Reason(what, of.count, loads, tile.threads, _MOST_LOADS)
    return refuse_shared(tile.shared(of), gpu)


_REACHED, _UNDER_WAY, _EDGE = 0.8, 48 << 10, 140
"""As kernels on an H200 behave: the part of a GPU's bandwidth that whole accesses reach; bytes of shared memory
of a multiprocessor below which memory waits; and bytes that the edges of runs cost."""
_ALONE, _TAIL, _THREADS = 0.065, 1.2, 1024
"""The same: the part of a block's time in which it asks for nothing, which others of a multiprocessor fill; the part
of a round of blocks that the last ones take alone; and threads of a multiprocessor below which they wait for each
other."""
_RATE, _OF_SHARED = 0.9 * 128 * 1.7e9, 4
"""Instructions that a multiprocessor's threads begin a second, of which an access to shared memory takes the place of
so many."""
_ELEMENT, _AROUND, _EDGES, _LINE, _STEP = 16, 1, 6, 60, 3
"""Instructions of an element, of one around it, of one beside a thread's own, of a thread of a line, and of a step
of its two sums: counted in the kernels' code."""
_WAITS, _TURN = 0.5e-6, 0.15e-6
"""Seconds from a block's first load to its last store, which the last blocks take after all others; and a guess, with
the order of kernels in which an H200 took them, at those that threads wait for each other in each turn of a block."""
_FROM_L2 = 1.28
"""How many times as fast as memory L2 gives blocks what they have beside their lines: as three kernels of an H200."""
_LONG_BLOCKS = 1.15
"""What memory takes more where all of the largest blocks' threads have a line."""
_OTHERS = 42
"""Registers of a thread beside what it holds."""


def _ways(tile: StagedTile, of: Lines) -> int:
    """How many accesses of a warp to one element of each thread fall on the same bank of shared memory."""
    if of.are_columns:
        return 1
    banks: dict[int, set[int]] = {}
    for thread in range(WARP):
        line, part = divmod(thread, tile.threads)
        first = part * tile.loads(of) if of.around else part
        word = (line * of.count + first) * of.read // 4
        banks.setdefault(word % WARP, set()).add(word)
    return max(map(len, banks.values()))


def _issued(tile: StagedTile, of: Lines) -> float:
    """Instructions of a thread of a line, or the places of as many that its accesses to shared memory take."""
    loads, halo = tile.loads(of), of.around
    if of.are_columns:
        steps, shared = tile.threads, 1 + tile.threads
    elif tile.threads <= WARP:
        steps = shared = ceil(log2(tile.threads))
    else:
        steps = shared = 6 + tile.block // WARP
    sums = 0 if halo else 2
    accesses = (2 * loads + halo) * _ways(tile, of) + loads * of.floats + sums * shared
    own = (_ELEMENT + _AROUND * halo) * loads + _EDGES * halo
    return max(own + _LINE + _STEP * sums * steps, _OF_SHARED * accesses)


def _resident(tile: StagedTile, of: Lines, gpu: Gpu) -> int:
    """Blocks of a multiprocessor."""
    return occupancy(tile.block, _OTHERS + tile.loads(of) + of.around, tile.shared(of), gpu)


def _rounds(tile: StagedTile, of: Lines, gpu: Gpu) -> float:
    """How often all multiprocessors are filled with blocks."""
    return tile.blocks(of) / (_resident(tile, of, gpu) * gpu.sms)


def _reached(tile: StagedTile, of: Lines, gpu: Gpu) -> float:
    """The part of the bandwidth."""
    shared, rounds = tile.shared(of), _rounds(tile, of, gpu)
    there = min(float(_resident(tile, of, gpu)), tile.blocks(of) / gpu.sms)
    reached = _REACHED * min(1.0, shared * there / _UNDER_WAY) ** 0.5 * there / (there + _ALONE)
    # Few blocks are no part of a round: that they leave multiprocessors idle is counted above.
    reached *= max(rounds, 1.0) / (max(rounds, 1.0) + _TAIL) * min(1.0, there * tile.block / _THREADS) ** 0.25
    if of.are_columns and of.inner * of.read % _ACCESS:
        run = min(tile.lines, of.inner) * of.read
        reached *= run / (run + _EDGE)
    return float(reached)


def seconds(problem: KernelProblem, tile: StagedTile, target: Target, of: Lines) -> float:
    gpu = target.gpu
    assert gpu is not None, "lines are staged on GPUs"
    memory = moved(problem.nbytes, target) / _reached(tile, of, gpu)
    memory *= _LONG_BLOCKS if tile.threads > _BLOCKS[1] else 1.0
    memory += 4 * of.floats * of.count * tile.blocks(of) / (_FROM_L2 * target.bandwidth)
    # The last lines side by side leave threads without any.
    lines = tile.blocks(of) * tile.lines if of.are_columns else of.groups
    issued = lines * tile.threads * _issued(tile, of) / (gpu.sms * _RATE)
    turns = _rounds(tile, of, gpu) * tile.lines / tile.across
    return float(max(memory, issued) + OVERLAPPED * target.launch_seconds + _WAITS + _TURN * turns)


def staged(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    refuse: Callable[[KernelProblem], str | None],
    emit: Callable[[KernelProblem, StagedTile, StepExpressions], StepCode],
) -> Form[StagedTile]:
    """The form of an operator that is a function of lines."""
    return Form(
        "staged",
        serves,
        lambda problem, gpu: refuse(problem) or refuse_lines(lines(problem)),
        lambda problem, gpu: tiles(lines(problem)),
        lambda problem, tile, gpu: refuse_tile(tile, lines(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, lines(problem)),
        StagedTile.read,
        emit,
    )
