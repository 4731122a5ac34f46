"""How a GPU finds places of several elements in order: threads sort keys in registers that hold element and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places, TopElements
from bolt_build.targets import Gpu, Target

MOST = {WARP: 32, BLOCK: 16, 1024: 4}
"""Keys that a thread sorts at most, by threads of a line."""
_MOST_IN_WORDS = (1 << 31) - 1 - 8
"""Elements of a tensor that is read so, and a word in front of it."""
_SELECTS = 1024
"""Threads of a line that is longer than what they sort."""


@dataclass(frozen=True)
class SortTile:
    """A line has `threads` threads, of which each `holds` so many of its elements, and sorts `each` keys: all of a
    line's or, where it holds more, the first of them. It holds none of lines that are read several times."""

    threads: int
    each: int
    holds: int

    @property
    def parameters(self) -> Named:
        held = (("holds", self.holds),) if self.holds else ()
        return ("threads", self.threads), ("each", self.each), *held

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> SortTile:
        holds = reader.number("holds") if reader.has("holds") else 0
        return SortTile(reader.number("threads"), reader.number("each"), holds)

    @property
    def room(self) -> int:
        """Keys that are sorted."""
        return self.threads * self.each


def serves(problem: KernelProblem) -> bool:
    return isinstance(problem.op, Places) and problem.op.count > 1


def extent_of(problem: KernelProblem) -> int:
    assert isinstance(problem.op, Places)
    return problem.inputs[0].shape[problem.op.axis]


def count_of(problem: KernelProblem) -> int:
    assert isinstance(problem.op, Places)
    return problem.op.count


def results_text(problem: KernelProblem, at: StepExpressions) -> str:
    """C++ arguments: where places go and, where the step leaves the elements there, where these go."""
    op = problem.op
    if not isinstance(op, TopElements):
        return at.outputs[0]
    return f"{at.outputs[1] if op.with_places else 'nullptr'}, {at.outputs[0]}"


def in_words(problem: KernelProblem) -> bool:
    """Whether elements have numbers of 32 bits, by which words are read wherever lines begin (`Granules`)."""
    return problem.inputs[0].type.elements <= _MOST_IN_WORDS


def key_bytes(problem: KernelProblem) -> int:
    """Bytes of a key: half of them are the place."""
    short = problem.inputs[0].format.dtype.nbytes <= 2 and extent_of(problem) <= 1 << 16
    return 4 if short else 8


def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    dtype, count = problem.inputs[0].format.dtype, count_of(problem)
    if dtype.nbytes > 4:
        return f"keys have no room for {dtype.value} and a place"
    most = max(threads * each for threads, each in MOST.items())
    return Reason("sorts up to {} elements, not {}", most, count) if count > most else None


def _enough(keys: int, threads: int) -> int:
    """Keys of a thread, a power of two."""
    return 1 << max(ceil(log2(max(keys, 1) / threads)), 0)


def tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[SortTile]:
    """Where all of a line is sorted, and where those are that come first."""
    extent, count = extent_of(problem), count_of(problem)
    for threads in (WARP, BLOCK):
        if (each := _enough(extent, threads)) <= MOST[threads]:
            yield SortTile(threads, each, each)
    if (holds := ceil(extent / WARP)) <= MOST[WARP] and (each := _enough(count, WARP)) < holds:
        yield SortTile(WARP, each, holds)
    if (each := _enough(count, _SELECTS)) <= MOST[_SELECTS]:
        yield SortTile(_SELECTS, each, 0)


def refuse_tile(problem: KernelProblem, tile: SortTile) -> str | None:
    if tile.threads not in MOST or not 1 <= tile.each <= MOST[tile.threads] or tile.each & (tile.each - 1):
        return Reason("{} threads do not sort {} keys each", tile.threads, tile.each)
    held = (
        (0,) if tile.threads == _SELECTS else (tile.each,) if tile.threads != WARP else range(tile.each, MOST[WARP] + 1)
    )
    if tile.holds not in held:
        return Reason("{} threads that sort {} keys each do not hold {}", tile.threads, tile.each, tile.holds)
    if tile.holds and tile.threads * tile.holds < extent_of(problem):
        return Reason("{} elements are more than {} threads hold", extent_of(problem), tile.threads)
    count = count_of(problem)
    return Reason("{} keys have no room for {} elements", tile.room, count) if tile.room < count else None


_COMPARED, _SHUFFLED, _EXCHANGED, _LOADED = 2.0, 4.0, 9.0, 14.0
"""Guesses at the instructions of a key of 32 bits that is compared with another one in a thread, in its warp and in its
block, and until it is there; those of 64 bits take `_WIDE` times as many."""
_WIDE = 2.5
_FULL = 2.0
"""What those of a warp whose registers are all keys take, in them: some go to memory meanwhile."""
_BITS, _BIT, _MET = 10, 2.5, 25.0
"""How many bits of a bound are expected to be tried, and the same of a key that is compared with it and of a thread
whose warp counts those that are less."""
_PASS, _PASSES, _WIDE_PASS = 7.5, 3.5, 2.0
"""The same of an element of a line that is counted or taken, how often that is expected, and what keys of 64 bits take
there."""
_ISSUED = 128 * 1.6e9 * 0.6
"""A guess at the instructions of threads that a multiprocessor begins in a second."""
_STEP, _ASKED = 30e-9, 0.7e-6
"""Seconds of a comparison of which the next one takes the result; and until a word is there."""
_REACHED = 0.7
_REGISTERS = 64


def _steps(keys: int) -> float:
    """Comparisons of each of so many keys, one after the other, until they are sorted."""
    return log2(keys) * (log2(keys) + 1) / 2


def _seconds(problem: KernelProblem, tile: SortTile, target: Target) -> float:
    gpu, extent = target.gpu, extent_of(problem)
    assert gpu is not None, "forms are for GPUs"
    lines = problem.inputs[0].type.elements // max(extent, 1)
    wide = _WIDE if key_bytes(problem) == 8 else 1.0
    all_steps, of_threads, of_warps = (_steps(many) for many in (tile.room, tile.threads, tile.threads // WARP))
    key = _COMPARED * (all_steps - of_threads) + _SHUFFLED * (of_threads - of_warps) + _EXCHANGED * of_warps + _LOADED
    instructions, waits = tile.room * key * wide, all_steps * _STEP
    instructions *= _FULL if tile.threads == WARP and tile.each == MOST[WARP] else 1.0
    if tile.holds > tile.each:
        instructions += WARP * (tile.holds * (_BITS * _BIT + _LOADED) * wide + _BITS * _MET)
        waits += _BITS * _STEP
    if not tile.holds:
        instructions += extent * _PASS * _PASSES * (_WIDE_PASS if wide > 1 else 1.0)
        waits += _PASSES * _ASKED * ceil(extent / (4 * _SELECTS))
    block = max(tile.threads, BLOCK)
    blocks = ceil(lines * tile.threads / block)
    waves = ceil(blocks / (gpu.sms * occupancy(block, _REGISTERS, tile.room * key_bytes(problem), gpu)))
    busy = min(1.0, blocks / gpu.sms)
    issue = lines * instructions / (_ISSUED * gpu.sms * busy)
    memory = moved(problem.nbytes, target) / _REACHED
    return max(memory, issue, waits * waves) + OVERLAPPED * target.launch_seconds + _ASKED


def ranking_code(
    function: str, problem: KernelProblem, cut: tuple[int, int, int], at: StepExpressions, more: str = ""
) -> StepCode:
    """A call of `bolt::portable::FUNCTION`, of the header of its name. `cut`: elements that a thread holds,
    threads of a line, and keys of a thread; `more` is what it is compiled with behind all else."""
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    types = f"{'std::uint32_t' if key_bytes(problem) == 4 else 'std::uint64_t'}, {ctype(x.format.dtype)}"
    how = f"{boolean(op.greatest)}, {boolean(op.last)}, {', '.join(map(str, cut))}, {types}{more}"
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    call = f"bolt::portable::{function}<{how}>(r, {given});"
    return StepCode((f"bolt_portable/cuda/places/{function}.h",), None, "", call)


def _emit(problem: KernelProblem, tile: SortTile, at: StepExpressions) -> StepCode:
    return ranking_code("sorted_places", problem, (tile.holds, tile.threads, tile.each), at)


FORM: Form[SortTile] = Form(
    "sorted",
    serves,
    refuse,
    tiles,
    lambda problem, tile, gpu: refuse_tile(problem, tile),
    _seconds,
    SortTile.read,
    _emit,
)
