"""One arena for all intermediate tensors, planned by liveness over the partial order of steps.

Two buffers may overlap only if every step that touches one is ordered before every step that touches the other. Where a
kernel can work in place, input and output become one buffer; so do parts of a tensor that are written where it lies
(`in_place.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from bolt_build.planner.engine_plan import MicroBatchSpan
from bolt_build.planner.schedule import Schedule, ScheduledStep

ALIGNMENT = 64
"""Bytes: a cache line, and more than any vector load asks for."""

REFINEMENTS = 64
"""Attempts to pack tighter after the fixed orders; each places every buffer once."""


@dataclass(frozen=True)
class Buffer:
    """Memory that step `defined` is the first to write, in execution order; `touched` are all steps that write or read
    it, `defined` included."""

    nbytes: int
    defined: int
    touched: tuple[int, ...]


@dataclass(frozen=True)
class Arena:
    """Offsets of the storages of a schedule (None where they live elsewhere), the arena's size, and the live peak.

    `live_peak` is the largest sum of bytes of buffers alive at one step of the execution order: from the step that
    defines a buffer to the last that touches it, both included, its own padding not counted.

    `held` are offsets in the slab of storages that steps of one span alone touch, in which a part of them lies;
    `slab_bytes` is its size.
    """

    offsets: tuple[int | None, ...]
    nbytes: int
    live_peak: int
    held: tuple[int | None, ...] = ()
    slab_bytes: int = 0


def plan_memory(schedule: Schedule, spans: Sequence[MicroBatchSpan] = ()) -> Arena:
    """Places every arena storage of the schedule at a 64-byte aligned offset, and parts of those within a span.

    Those have their place in the arena as well: all of them lie there where steps run one by one, to be looked at.
    Others that a span touches are alive from its first step to its last.
    """
    order = ancestors([step.after for step in schedule.steps])
    users = _users(schedule)
    homes = [_home(touched, spans) for touched in users]
    groups = _share(schedule, order, homes)
    buffers = [_buffer(schedule, members, users, spans) for members in groups]
    placed, nbytes = pack(buffers, order)
    offsets: list[int | None] = [None] * len(schedule.storages)
    for members, offset in zip(groups, placed, strict=True):
        for storage in members:
            offsets[storage] = offset
    held: list[int | None] = [None] * len(schedule.storages)
    slab_bytes = 0
    for span in spans:
        own = [(members, each) for members, each in zip(groups, buffers, strict=True) if homes[members[0]] is span]
        parts = [replace(each, nbytes=each.nbytes // span.parts) for _, each in own]
        places, size = pack(parts, order)
        slab_bytes = max(slab_bytes, size)
        for (members, _), offset in zip(own, places, strict=True):
            for storage in members:
                held[storage] = offset
    return Arena(tuple(offsets), nbytes, live_peak(buffers, len(schedule.steps)), tuple(held), slab_bytes)


def _home(touched: Sequence[int], spans: Sequence[MicroBatchSpan]) -> MicroBatchSpan | None:
    """The span whose steps alone touch a storage."""
    inside = (span for span in spans if touched and span.first <= touched[0] and touched[-1] <= span.last)
    return next(inside, None)


def ancestors(after: Sequence[tuple[int, ...]]) -> list[int]:
    """For each step, the steps ordered before it as bits of an integer."""
    found: list[int] = []
    for waits in after:
        bits = 0
        for earlier in waits:
            bits |= found[earlier] | 1 << earlier
        found.append(bits)
    return found


def live_peak(buffers: Sequence[Buffer], steps: int) -> int:
    """The largest sum of bytes alive at one step of the execution order."""
    change = [0] * (steps + 1)
    for buffer in buffers:
        change[buffer.defined] += buffer.nbytes
        change[max(buffer.touched) + 1] -= buffer.nbytes
    alive = peak = 0
    for difference in change:
        alive += difference
        peak = max(peak, alive)
    return peak


def pack(buffers: Sequence[Buffer], order: Sequence[int]) -> tuple[list[int], int]:
    """Offsets for the buffers and the bytes they span: the smallest of several greedy packings.

    Buffers are placed largest first, longest-lived first, and in the order of their definition, each into the tightest
    gap that holds it; then the buffer that ends highest is moved to the front and all are placed again, a few times.
    """
    if not buffers:
        return [], 0
    apart = _conflicts(buffers, order)
    peak = live_peak(buffers, len(order))
    keys: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-buffers[i].nbytes, buffers[i].defined),
        lambda i: (buffers[i].defined - max(buffers[i].touched), -buffers[i].nbytes),
        lambda i: (buffers[i].defined, -buffers[i].nbytes),
        lambda i: (-buffers[i].nbytes * (max(buffers[i].touched) - buffers[i].defined + 1), buffers[i].defined),
    ]
    best: tuple[int, list[int]] | None = None
    leading: list[int] = []
    for key in keys:
        sequence = sorted(range(len(buffers)), key=key)
        offsets, nbytes = _place(sequence, buffers, apart)
        if best is None or nbytes < best[0]:
            best, leading = (nbytes, offsets), sequence
    assert best is not None
    seen: set[tuple[int, ...]] = set()
    offsets = best[1]
    for _ in range(REFINEMENTS):
        if best[0] <= aligned(peak) or tuple(leading) in seen:
            break
        seen.add(tuple(leading))
        top = max(leading, key=lambda i: (offsets[i] + buffers[i].nbytes, -i))
        leading = [top, *(i for i in leading if i != top)]
        offsets, nbytes = _place(leading, buffers, apart)
        if nbytes < best[0]:
            best = nbytes, offsets
    return best[1], best[0]


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _conflicts(buffers: Sequence[Buffer], order: Sequence[int]) -> list[list[int]]:
    """For each buffer, the others that may be alive while it is."""
    touched = [sum(1 << step for step in buffer.touched) for buffer in buffers]
    # Parts of one buffer may be written by steps that nothing orders: what is before one is not before all.
    before = [reduce(and_, (order[step] for step in buffer.touched)) for buffer in buffers]
    found: list[list[int]] = [[] for _ in buffers]
    for a in range(len(buffers)):
        for b in range(a):
            if touched[a] & ~before[b] and touched[b] & ~before[a]:
                found[a].append(b)
                found[b].append(a)
    return found


def _place(sequence: Sequence[int], buffers: Sequence[Buffer], apart: list[list[int]]) -> tuple[list[int], int]:
    """Each buffer of the sequence into the tightest gap between those already placed that it must not overlap."""
    offsets = [-1] * len(buffers)
    end = 0
    for index in sequence:
        need = aligned(buffers[index].nbytes)
        taken = sorted((offsets[o], offsets[o] + aligned(buffers[o].nbytes)) for o in apart[index] if offsets[o] >= 0)
        at, slack, free = -1, 0, 0
        for start, stop in taken:
            gap = start - free
            if gap >= need and (at < 0 or gap - need < slack):
                at, slack = free, gap - need
            free = max(free, stop)
        offsets[index] = at if at >= 0 else free
        end = max(end, offsets[index] + need)
    return offsets, end


def _users(schedule: Schedule) -> list[list[int]]:
    """For each storage, the steps that read or write it, in order."""
    found: list[list[int]] = [[] for _ in schedule.storages]
    for index, step in enumerate(schedule.steps):
        for storage in dict.fromkeys(tensor.storage for tensor in (*step.inputs, *step.outputs)):
            found[storage].append(index)
    return found


def _buffer(
    schedule: Schedule, members: Sequence[int], users: Sequence[Sequence[int]], spans: Sequence[MicroBatchSpan]
) -> Buffer:
    steps = {index for member in members for index in users[member]}
    for span in spans:
        inside = [index for index in steps if span.first <= index <= span.last]
        if inside and len(inside) < len(steps):
            steps |= {span.first, span.last}
    touched = sorted(steps)
    return Buffer(max(schedule.storages[s].nbytes for s in members), min(touched), tuple(touched))


def _share(schedule: Schedule, order: Sequence[int], homes: Sequence[MicroBatchSpan | None]) -> list[list[int]]:
    """Arena storages in groups that are one buffer: the input of an in-place step dies there and lends its memory.

    What lies in a span's slab shares with nothing else; of other storages parts must begin at the same bytes.
    """
    touched = [0] * len(schedule.storages)
    for index, step in enumerate(schedule.steps):
        for tensor in (*step.inputs, *step.outputs):
            touched[tensor.storage] |= 1 << index
    owner = list(range(len(schedule.storages)))
    groups = {i: [i] for i, storage in enumerate(schedule.storages) if storage.kind == "arena"}
    for index, step in enumerate(schedule.steps):
        for source, result in step.may_share:
            lender, taker = owner[step.inputs[source].storage], owner[step.outputs[result].storage]
            if lender == taker or lender not in groups or taker not in groups:
                continue
            if touched[taker] & order[index]:
                continue  # the result already has another input's memory, which was written while this one was alive
            sizes = [schedule.storages[each].nbytes for each in (lender, taker)]
            if sizes[0] < sizes[1] or homes[lender] is not homes[taker] or (any(homes) and sizes[0] != sizes[1]):
                continue
            if not (schedule.fills(step.inputs[source]) and schedule.fills(step.outputs[result])):
                continue  # a part of something larger stays where it is
            dies_here = not touched[lender] & ~(order[index] | 1 << index)
            if dies_here and _reads_in_place(step, result, owner, lender):
                groups[lender] += groups.pop(taker)
                touched[lender] |= touched[taker]
                for member in groups[lender]:
                    owner[member] = lender
    return list(groups.values())


def _reads_in_place(step: ScheduledStep, result: int, owner: Sequence[int], lender: int) -> bool:
    """True where every input that lies in the lender's memory may be overwritten by the output, not just one."""
    inside = [i for i, tensor in enumerate(step.inputs) if owner[tensor.storage] == lender]
    return all((i, result) in step.may_share for i in inside)
