"""How a GPU takes softmax over few long lines of neighbours, each by many multiprocessors: one kernel gathers what
parts of a line add up to, and another one, on Hopper beside it, brings the same elements to shared memory and finishes
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_THREADS, _RESIDENT = (256, 512), 512
"""Threads of a block; and those of each of both kernels that a multiprocessor holds beside each other: it has 64
registers for each."""
LEAST = 4096
"""Elements of a line from which on several blocks share it."""
_PART = 8
"""Bytes of what a block has of a line (`SoftmaxPaired`)."""
_FEW = (1, 4)
"""Loads of a thread in the smallest parts that are tried."""


@dataclass(frozen=True)
class PairedTile(NumberTile):
    """A line has so many `parts`, of a block of `threads` threads in each of both kernels. The second one's keep so
    many loads in shared memory (`kept`), and read others again."""

    parts: int
    threads: int
    kept: int

    def share(self, of: Lines) -> int:
        """Loads of a block: as many for each thread."""
        return ceil(ceil(_loads(of) / self.parts) / self.threads) * self.threads

    def shared(self, of: Lines) -> int:
        """Bytes of shared memory of a block of the second kernel."""
        return self.kept * LANES * of.read

    def scratch(self, of: Lines) -> int:
        """Bytes between both kernels."""
        return _PART * of.groups * self.parts

    def text(self, of: Lines) -> str:
        """A `PairedLine`."""
        sizes = (of.count, self.parts, self.share(of), self.share(of) - self.kept, self.threads)
        return f"bolt::portable::PairedLine<{', '.join(map(str, sizes))}>"


def _loads(of: Lines) -> int:
    """Of a line, which may begin inside of one."""
    return ceil((of.count + (LANES - 1 if of.count % LANES else 0)) / LANES)


def tiles(of: Lines, gpu: Gpu) -> Iterator[PairedTile]:
    """Blocks that a multiprocessor holds all at once, of both kernels, and fewer ones of more loads."""
    found = dict[PairedTile, None]()
    for threads in _THREADS:
        resident = _RESIDENT // threads
        room = gpu.shared_memory // resident - 2048 * (resident > 1)
        most = max(1, gpu.sms * resident // of.groups)
        for least in _FEW:
            share = PairedTile(min(most, ceil(_loads(of) / (threads * least))), threads, 1).share(of)
            again = max(0, ceil((share - room // (LANES * of.read)) / threads)) * threads
            if again < share:
                found[PairedTile(ceil(_loads(of) / share), threads, share - again)] = None
    yield from found


def refuse_tile(tile: PairedTile, of: Lines, gpu: Gpu) -> str | None:
    """Why no kernels have the lines so, None where they do."""
    if tile.threads not in _THREADS:
        return "there are kernels of 256 or 512 threads"
    share = tile.share(of)
    if tile.parts != ceil(_loads(of) / share):
        return Reason("{} loads are not cut in {} parts of as many for each thread", _loads(of), tile.parts)
    if tile.kept > share or (share - tile.kept) % tile.threads:
        what = "of {} loads of a block not {} are kept, where its threads have {} at once"
        return Reason(what, share, tile.kept, tile.threads)
    return refuse_shared(tile.shared(of), gpu)


def _refuse(of: Lines, gpu: Gpu) -> str | None:
    if 2 * of.groups > gpu.sms:
        return Reason("{} lines keep more than half of {} multiprocessors busy with one each", of.groups, gpu.sms)
    return Reason("{} elements of a line are too many to be counted", of.count) if of.count >= 1 << 31 else None


_WAITS, _REACHED, _CACHED, _KEPT = 1.3e-6, 0.66, 0.35, 0.5
"""Seconds in which blocks put sums together, and until the second kernel's threads have them; the part of a GPU's
bandwidth that both kernels reach; what a byte that is read again takes of one from memory where L2 keeps it; and the
part of L2 below which it does. Nine problems on an H200 take 15% more or less."""
_RATE, _ELEMENT = 0.8 * 128 * 1.7e9, 20
"""Instructions that a multiprocessor's threads begin a second, and those of an element in both kernels."""


def seconds(problem: KernelProblem, tile: PairedTile, target: Target, of: Lines) -> float:
    gpu, read = target.gpu, problem.inputs[0].nbytes
    assert gpu is not None, "lines are a GPU's"
    again = read * (_CACHED if read <= _KEPT * gpu.l2 else 1.0)
    spread = min(1.0, of.groups * tile.parts * tile.threads / (gpu.sms * _RESIDENT))
    memory = (problem.nbytes + again) / target.bandwidth / (_REACHED * spread**0.5)
    issued = of.elements * _ELEMENT / (gpu.sms * _RATE * spread)
    return float(OVERLAPPED * target.launch_seconds + _WAITS + max(memory, issued))


def paired(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    emit: Callable[[KernelProblem, PairedTile, StepExpressions], StepCode],
) -> Form[PairedTile]:
    """The form of softmax and its logarithm, for lines of neighbours."""
    return Form(
        "paired",
        lambda problem: serves(problem) and not lines(problem).are_columns and lines(problem).count >= LEAST,
        lambda problem, gpu: _refuse(lines(problem), gpu),
        lambda problem, gpu: tiles(lines(problem), gpu),
        lambda problem, tile, gpu: refuse_tile(tile, lines(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, lines(problem)),
        PairedTile.read,
        emit,
    )
