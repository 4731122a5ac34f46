"""How a GPU computes functions of lines that lie side by side, by neighbouring threads that hold them in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.staged import Lines, refuse_lines
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Target

_THREADS, _ACROSS, _BLOCKS = (1, 2, 4, 8, 16, 32), (32, 64, 128, 256), (128, 256, 512, 1024)
"""Threads of a line, lines of a block side by side, and threads of a block."""
_MOST_LOADS = 36
"""Elements that a thread holds at most."""
MOST_ELEMENTS = _THREADS[-1] * _MOST_LOADS
"""Elements of a line whose threads hold it."""


@dataclass(frozen=True)
class RegisterTile(NumberTile):
    """A line has so many `threads`, and a block's threads so many lines `across` them."""

    threads: int
    across: int

    @property
    def block(self) -> int:
        return self.threads * self.across

    def loads(self, of: Lines) -> int:
        """Elements of a thread."""
        return ceil(of.count / self.threads)

    def shared(self, of: Lines) -> int:
        """Bytes of shared memory of a block (`RegisterLines`)."""
        return (8 * self.block if self.threads > 1 else 0) + 4 * of.floats * of.count

    def registers(self, of: Lines) -> int:
        """An estimate: what a thread holds, for windows also its squares, and what all else takes."""
        window = self.loads(of) + of.around if of.around else 0
        return _OTHERS + self.loads(of) + window

    def text(self, of: Lines) -> str:
        """A `RegisterShape`."""
        sizes = ", ".join(map(str, (of.count, of.inner, self.threads, self.across)))
        return f"bolt::portable::RegisterShape<{sizes}>"


_OTHERS = 28
"""Registers of a thread for addresses, sums and bounds."""


def tiles(of: Lines) -> Iterator[RegisterTile]:
    """Of as few threads a line as hold it, and twice and four times as many."""
    threads = [each for each in _THREADS if of.count <= each * _MOST_LOADS and each <= of.count]
    for each in threads[:3]:
        for across in _ACROSS:
            if each * across in _BLOCKS:
                yield RegisterTile(each, across)


def refuse_tile(tile: RegisterTile, of: Lines) -> str | None:
    """Why no kernel has the lines so, None where one does."""
    if tile.threads not in _THREADS or tile.across not in _ACROSS or tile.block not in _BLOCKS:
        return "up to 32 threads share a line, of 32, 64, 128 or 256 in blocks of 128 to 1024 threads"
    if (loads := tile.loads(of)) > _MOST_LOADS:
        what = "{} elements are {} of each of {} threads, which hold {} at most"
        return Reason(what, of.count, loads, tile.threads, _MOST_LOADS)
    return None


_REACHED, _UNDER_WAY, _EDGE, _TAIL, _ALONE = 0.84, 40 << 10, 40, 0.6, 0.4
"""The part of a GPU's bandwidth that is reached where a multiprocessor's threads ask for so many bytes at once; bytes
that the ends of a block's rows cost; the part of a round of blocks that the last ones take alone; and the part of a
block's time in which no other hides its waits, if it is the multiprocessor's only one. They follow times of an H200."""
_RATE = 0.8 * 128 * 1.7e9
"""Instructions that a multiprocessor's threads begin a second."""
_ELEMENT, _AROUND, _HALO, _LINE, _STEP = 13, 2, 8, 90, 3
"""Instructions of an element, of one around it, of one beside a thread's own, of a thread of a line, and of a step
of its two sums: counted in the kernels' code."""


def _instructions(tile: RegisterTile, of: Lines) -> int:
    """Of a thread of a line."""
    elements = (_ELEMENT + _AROUND * of.around + 2 * of.floats) * tile.loads(of)
    sums = 0 if of.around else 2 * _STEP * tile.threads
    return elements + _HALO * of.around + sums + _LINE


def seconds(problem: KernelProblem, tile: RegisterTile, target: Target, of: Lines) -> float:
    gpu = target.gpu
    assert gpu is not None, "registers of threads are a GPU's"
    lines = of.groups * of.inner
    blocks = ceil(lines / tile.across)
    resident = occupancy(tile.block, tile.registers(of), tile.shared(of), gpu)
    there = min(float(resident), blocks / gpu.sms)
    asked = there * tile.across * of.count * of.read
    run = tile.across * of.read
    reached = _REACHED * min(1.0, asked / _UNDER_WAY) ** 0.5 * run / (run + (_EDGE if of.inner * of.read % 32 else 0))
    rounds = blocks / (resident * gpu.sms)
    reached *= rounds / (rounds + _TAIL) * resident / (resident + _ALONE)
    # What threads hold twice, at the edges of their windows, they read twice, from caches mostly.
    memory = moved(problem.nbytes, target) / reached
    issued = blocks * tile.block * _instructions(tile, of) / (gpu.sms * _RATE)
    return float(max(memory, issued) + OVERLAPPED * target.launch_seconds)


def registers(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    refuse: Callable[[KernelProblem], str | None],
    emit: Callable[[KernelProblem, RegisterTile, StepExpressions], StepCode],
) -> Form[RegisterTile]:
    """The form of an operator that is a function of lines, for those that lie side by side."""
    return Form(
        "registers",
        lambda problem: serves(problem) and lines(problem).are_columns,
        lambda problem, gpu: refuse(problem) or refuse_lines(lines(problem)),
        lambda problem, gpu: tiles(lines(problem)),
        lambda problem, tile, gpu: refuse_tile(tile, lines(problem)),
        lambda problem, tile, target: seconds(problem, tile, target, lines(problem)),
        RegisterTile.read,
        emit,
    )
