"""How a GPU computes functions of lines that lie side by side, by blocks that take some after others: while threads
compute and store those in their registers, the next ones are on their way to shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import beside, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.staged import Lines, StagedTile, refuse_lines
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_THREADS, _ACROSS, _BLOCKS = (1, 2, 4, 8, 16, 32), (32, 64, 96, 128), (128, 512)
"""Threads of a line, lines that threads of a block have room for, and threads of a block at least and at most."""
_MOST_LOADS, _OTHERS = 36, 32
"""Elements that a thread holds at most, and its registers beside these."""


@dataclass(frozen=True)
class StreamedTile(NumberTile):
    """A line has so many `threads`, and a block's threads room for so many lines `across` them: as many as leave all
    blocks the same. A block has `rounds` of them."""

    threads: int
    across: int
    rounds: int

    @property
    def block(self) -> int:
        return self.threads * self.across

    def lines(self, of: Lines) -> int:
        """Of a block at once."""
        return ceil(of.inner / ceil(of.inner / self.across))

    def parts(self, of: Lines) -> int:
        """Of all blocks."""
        return of.groups * ceil(of.inner / self.lines(of))

    def loads(self, of: Lines) -> int:
        """Elements of a thread."""
        return ceil(of.count / self.threads)

    def shared(self, of: Lines) -> int:
        """Bytes of shared memory of a block (`StreamedLines`)."""
        return StagedTile(self.threads, self.lines(of), self.block).shared(of)

    def resident(self, of: Lines, gpu: Gpu) -> int:
        """Blocks of a multiprocessor."""
        return beside(self.block, self.loads(of) + _OTHERS, self.shared(of), gpu)

    def text(self, of: Lines) -> str:
        """A `StreamedShape`."""
        sizes = ", ".join(map(str, (of.count, of.inner, self.lines(of), self.threads, self.across, self.rounds)))
        return f"bolt::portable::StreamedShape<{sizes}>"


def tiles(of: Lines, gpu: Gpu) -> Iterator[StreamedTile]:
    """Of as few threads a line as hold it, and twice and four times as many; of blocks that are all there at once."""
    threads = [each for each in _THREADS if of.count <= each * _MOST_LOADS and each <= of.count]
    for each in threads[:3]:
        for across in _ACROSS:
            tile = StreamedTile(each, across, 1)
            rounds = ceil(tile.parts(of) / (tile.resident(of, gpu) * gpu.sms))
            if _BLOCKS[0] <= tile.block <= _BLOCKS[1] and rounds > 1:
                yield StreamedTile(each, across, rounds)


def _refuse(of: Lines, gpu: Gpu) -> str | None:
    if not gpu.async_copies:
        return "copies to shared memory run beside a block's work from sm_80 on"
    return "threads read elements of each other" if of.around else refuse_lines(of)


def refuse_tile(tile: StreamedTile, of: Lines, gpu: Gpu) -> str | None:
    """Why no kernel has the lines so on this GPU, None where one does."""
    least, most = _BLOCKS
    if tile.threads not in _THREADS or tile.across not in _ACROSS or not least <= tile.block <= most:
        return Reason("up to 32 threads share a line, of 32, 64, 96 or 128 in blocks of {} to {} threads", least, most)
    if (loads := tile.loads(of)) > _MOST_LOADS:
        what = "{} elements are {} of each of {} threads, which hold {} at most"
        return Reason(what, of.count, loads, tile.threads, _MOST_LOADS)
    if tile.rounds > (parts := tile.parts(of)):
        return Reason("a block has {} parts one after the other, of {} in all", tile.rounds, parts)
    return refuse_shared(tile.shared(of), gpu)


_REACHED, _UNDER_WAY, _EDGE, _FIRST = 0.8, 32 << 10, 12, 1.2e-6
"""The part of a GPU's bandwidth that is reached where so many bytes are on their way to a multiprocessor; bytes that
the ends of a block's rows cost; and seconds until the first lines are there. This and the following are guesses, or
counted in the code: no GPU has timed the kernel."""
_RATE = 0.8 * 128 * 1.7e9
"""Instructions that a multiprocessor's threads begin a second."""
_ELEMENT, _COPY, _LINE, _STEP = 13, 42, 60, 3
"""Instructions of an element, of an access that is copied, of a thread for a part, and of a step of its two sums."""
_ACCESS = 16


def seconds(problem: KernelProblem, tile: StreamedTile, target: Target, of: Lines) -> float:
    """The longer of what memory and instructions take, where some blocks have a part more than others."""
    gpu = target.gpu
    assert gpu is not None, "lines are streamed on GPUs"
    parts = tile.parts(of)
    blocks = ceil(parts / tile.rounds)
    there = min(float(tile.resident(of, gpu)), blocks / gpu.sms)
    run = tile.lines(of) * of.read
    asked = there * run * of.count
    reached = _REACHED * min(1.0, asked / _UNDER_WAY) ** 0.5 * run / (run + (_EDGE if of.inner * of.read % 32 else 0))
    elements = (_ELEMENT + 2 * of.floats) * tile.loads(of) + 2 * _STEP * tile.threads + _LINE
    copies = _COPY * ceil(of.count * (ceil(run / _ACCESS) + 1) / tile.block)
    issued = parts * tile.block * (elements + copies) / (gpu.sms * _RATE)
    uneven = tile.rounds * blocks / parts * max(1.0, blocks / (gpu.sms * tile.resident(of, gpu)))
    memory = moved(problem.nbytes, target) / reached
    return float(max(memory, issued) * uneven + _FIRST + OVERLAPPED * target.launch_seconds)


def streamed(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    refuse: Callable[[KernelProblem], str | None],
    emit: Callable[[KernelProblem, StreamedTile, StepExpressions], StepCode],
) -> Form[StreamedTile]:
    """The form of an operator that is a function of lines, for those that lie side by side."""
    return Form(
        "streamed",
        lambda problem: serves(problem) and lines(problem).are_columns,
        lambda problem, gpu: refuse(problem) or _refuse(lines(problem), gpu),
        lambda problem, gpu: tiles(lines(problem), gpu),
        lambda problem, tile, gpu: refuse_tile(tile, lines(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, lines(problem)),
        StreamedTile.read,
        emit,
    )
