"""How a GPU takes softmax over lines that lie side by side in groups which a block holds whole: a group is one run of
memory, the next ones are on their way to shared memory meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, gcd
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_SLOTS, _THREADS, _MOST_LOADS, _MOST_BLOCKS = (1, 2), range(64, 641, WARP), 16, 8
"""Groups on their way to a block, threads of one, accesses that a thread holds at most, blocks of a multiprocessor."""
_SECTOR = 32
"""Bytes that memory reads at once."""
_OTHERS = 48
"""Registers of a thread beside those that hold elements, and one for each load: greatest elements and sums of eight
lines, and addresses."""
_USED = 0.8
"""The part of what threads could hold that elements take at least."""
_BYTES = 2
"""Bytes of an element."""


@dataclass(frozen=True)
class GroupTile(NumberTile):
    """A block of so many `threads` has groups one after the other. A thread holds so many `loads` of eight elements of
    a group, and as many of each of the next `slots` groups are on their way. A multiprocessor has `resident` blocks,
    and there are so many `blocks` in all."""

    threads: int
    loads: int
    slots: int
    resident: int
    blocks: int
    SETTINGS: ClassVar[tuple[str, ...]] = ("blocks",)

    def shared(self, of: Lines) -> int:
        """Bytes of shared memory of a block (`SoftmaxGroups`)."""
        held = self.slots * self.loads * self.threads * LANES * _BYTES
        return held + 8 * (busy(self.threads, of) * LANES + of.inner)

    def text(self, of: Lines) -> str:
        """A `GroupShape`."""
        sizes = (of.count, of.inner, self.threads, self.loads, self.slots, self.resident)
        return f"bolt::portable::GroupShape<{', '.join(map(str, sizes))}>"


def period(of: Lines) -> int:
    """Accesses after which elements are of the same lines again."""
    return of.inner // gcd(of.inner, LANES)


def busy(threads: int, of: Lines) -> int:
    """Threads that hold something."""
    return threads // period(of) * period(of)


def _accesses(of: Lines) -> int:
    """Of a group, wherever it begins."""
    length = of.count * of.inner
    return ceil((length + (LANES - 1 if length % LANES else 0)) / LANES)


def least_loads(threads: int, of: Lines) -> int:
    """Accesses of a thread that holds something, 0 where none does."""
    return ceil(_accesses(of) / busy(threads, of)) if busy(threads, of) else 0


def _room(tile: GroupTile, of: Lines, gpu: Gpu) -> int:
    """Blocks that a multiprocessor holds at once."""
    return occupancy(tile.threads, 5 * tile.loads + _OTHERS, tile.shared(of), gpu)


def tiles(of: Lines, gpu: Gpu) -> Iterator[GroupTile]:
    """Blocks of which a multiprocessor has room for as many as are named, whose threads mostly hold something."""
    for threads in _THREADS:
        if not busy(threads, of):
            continue
        loads = least_loads(threads, of)
        if loads > _MOST_LOADS or _accesses(of) < _USED * loads * threads:
            continue
        for slots in _SLOTS:
            tile = GroupTile(threads, loads, slots, 1, 1)
            resident = min(_room(tile, of, gpu), _MOST_BLOCKS)
            turns = ceil(of.groups / (resident * gpu.sms))
            blocks = ceil(of.groups / turns)
            yield GroupTile(threads, loads, slots, resident, blocks)


def refuse(of: Lines, gpu: Gpu) -> str | None:
    """Why no block holds groups of such lines, None where one may."""
    if of.inner * of.read % _SECTOR == 0:
        return Reason("{} elements side by side are whole sectors, which registers read as fast", of.inner)
    if not gpu.async_copies:
        return "copies to shared memory run beside a block's work from sm_80 on"
    if (of.read, of.stored) != (_BYTES, _BYTES):
        return Reason("elements of {} and {} bytes are not those of half precision", of.read, of.stored)
    if period(of) > _THREADS[-1]:
        what = "lines repeat after {} accesses, a block has {} threads at most"
        return Reason(what, period(of), _THREADS[-1])
    if _accesses(of) > (most := _MOST_LOADS * _THREADS[-1]):
        what = "groups of {} elements are more than the {} that a block's threads hold"
        return Reason(what, of.count * of.inner, most * LANES)
    return None


def refuse_tile(tile: GroupTile, of: Lines, gpu: Gpu) -> str | None:
    """Why no kernel has the lines so, None where one does."""
    if tile.threads not in _THREADS or tile.slots not in _SLOTS or tile.resident > _MOST_BLOCKS:
        return "blocks have 64 to 640 threads in whole warps, one or two groups on their way, and 7 others beside"
    if not busy(tile.threads, of):
        return Reason("lines repeat after {} accesses, a block has {} threads", period(of), tile.threads)
    if tile.loads > _MOST_LOADS or tile.loads != least_loads(tile.threads, of):
        what = "{} accesses of a group are {} of each of {} threads, of {} at most, not {}"
        return Reason(what, _accesses(of), least_loads(tile.threads, of), tile.threads, _MOST_LOADS, tile.loads)
    if (reason := refuse_shared(tile.shared(of), gpu)) is not None:
        return reason
    if tile.resident > (room := _room(tile, of, gpu)):
        return Reason("a multiprocessor has room for {} such blocks, not {}", room, tile.resident)
    return None


_TURN, _LOAD, _MEMORY, _ISSUED = 1.4e-6, 0.13e-6, 0.13, 1.73
"""Seconds in which a group's threads wait, launch included, and more for each access of one; and what memory and
instructions take beside that. Fitted to 14 kernels for seven problems that an H200 has timed, which take 11% more or
less; none is held out."""
_RATE, _ELEMENT, _THREAD = 128 * 1.755e9, 9, 250
"""Instructions that a multiprocessor's threads begin a second, those of an element, and those of a thread and group:
counted in the kernels' code."""


def seconds(problem: KernelProblem, tile: GroupTile, target: Target, of: Lines) -> float:
    gpu = target.gpu
    assert gpu is not None, "groups are held by a GPU's blocks"
    turns, beside_others = ceil(of.groups / tile.blocks), max(1.0, tile.blocks / gpu.sms)
    issued = (of.count * of.inner * _ELEMENT + tile.threads * _THREAD) / _RATE * beside_others
    memory = moved(problem.nbytes, target)
    return float(turns * (_TURN + tile.loads * _LOAD + _ISSUED * issued) + _MEMORY * memory)


def groups(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    emit: Callable[[KernelProblem, GroupTile, StepExpressions], StepCode],
) -> Form[GroupTile]:
    """The form of softmax and its logarithm, for lines that lie side by side."""
    return Form(
        "groups",
        lambda problem: serves(problem) and lines(problem).are_columns,
        lambda problem, gpu: refuse(lines(problem), gpu),
        lambda problem, gpu: tiles(lines(problem), gpu),
        lambda problem, tile, gpu: refuse_tile(tile, lines(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, lines(problem)),
        GroupTile.read,
        emit,
    )
