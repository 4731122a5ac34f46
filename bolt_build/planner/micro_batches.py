"""Micro-batches: steps that run for one part of the batch after the other, so that what is between them stays in cache.

A step on a large batch writes more than a core's caches hold, and the next one reads it back from memory. Steps that
compute images by themselves can be run for a few images each, all of them, before the next few images. Tensors that
only steps of the span touch lie in a slab then, of the size of one part; others lie where they lay, part behind part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from bolt_build.families.base import PART_ALIGNMENT, Family, KernelProblem
from bolt_build.planner.engine_plan import Decision, MicroBatchSpan
from bolt_build.planner.parts import part_of
from bolt_build.planner.schedule import Schedule, ScheduledStep, ScheduledTensor
from bolt_build.sizes import Sizes
from bolt_build.targets import Target

STAGE = "micro-batches"
_NEAR, _SHARED = 1 << 20, 8 << 20
"""Bytes that a core's own cache holds, and that it may have of the one shared with others."""
_SHARED_COST = 0.3
"""What a byte of the shared cache costs, of one of memory."""
_CALL = 20 << 10
"""Bytes that memory gives while a kernel is called."""
_WORTH = 8 << 20
"""Bytes of memory that a span must save."""


@dataclass(frozen=True)
class MicroBatching:
    """The micro-batched spans of a plan in order, and a line for each that says what it saves."""

    spans: tuple[MicroBatchSpan, ...]
    decisions: tuple[Decision, ...]


def micro_batching_of(schedule: Schedule, sizes: Sizes, target: Target, families: Sequence[Family]) -> MicroBatching:
    """Which steps of a CPU's plan go over the batch part by part. `sizes` name the plan in decisions."""
    if not target.runs_on_threads or target.queues != 1 or sizes.batch < 2:
        return MicroBatching((), ())
    by_name = {family.name: family for family in families}
    finder = _Finder(schedule, sizes.batch, target, by_name)
    found = sorted(finder.best(0, len(schedule.steps)), key=lambda each: each.span.first)
    return MicroBatching(tuple(each.span for each in found), tuple(each.decision(schedule, sizes) for each in found))


@dataclass(frozen=True)
class _Found:
    span: MicroBatchSpan
    saved: float

    def decision(self, schedule: Schedule, sizes: Sizes) -> Decision:
        first, last = (schedule.steps[at].name for at in (self.span.first, self.span.last))
        action = f"go over the batch in {self.span.parts} parts"
        return Decision(
            STAGE, f"{sizes}: {first} to {last}", action, f"saves {self.saved / 1e6:.0f} MB of memory's traffic"
        )


class _Finder:
    def __init__(self, schedule: Schedule, batch: int, target: Target, families: dict[str, Family]) -> None:
        self._schedule, self._target, self._families = schedule, target, families
        self._divisors = divisors_of(batch)
        self._saved = {parts: [self._saving(step, parts) for step in schedule.steps] for parts in self._divisors}

    def best(self, begin: int, end: int) -> list[_Found]:
        """The span between two steps that saves most, and those beside it."""
        found: _Found | None = None
        for parts in self._divisors:
            for first, last, saved in _sums(self._saved[parts], begin, end):
                if saved >= _WORTH and (found is None or saved > found.saved):
                    found = _Found(MicroBatchSpan(first, last, parts), saved)
        if found is None:
            return []
        return [found, *self.best(begin, found.span.first), *self.best(found.span.last + 1, end)]

    def _saving(self, step: ScheduledStep, parts: int) -> float | None:
        """Bytes of memory that the step in parts saves; None where it has none."""
        tensors = [tensor for tensor in (*step.inputs, *step.outputs) if not tensor.operand.constant]
        if not all(self._spans(tensor, parts) for tensor in tensors):
            return None
        if step.view:
            return 0.0
        if step.problem.op.reads_sizes or self._part(step, parts) is None:
            return None
        moved = sum(tensor.operand.nbytes for tensor in tensors)
        factors = sum(tensor.operand.nbytes for tensor in step.inputs if tensor.operand.constant)
        return moved * (_cost(moved) - _cost(moved // parts)) - parts * _CALL - _SHARED_COST * (parts - 1) * factors

    def _part(self, step: ScheduledStep, parts: int) -> KernelProblem | None:
        found, family = part_of(step.problem, parts), self._families[step.candidate.family]
        legal = found is not None and family.refuse(found, step.candidate, self._target) is None
        return found if legal else None

    def _spans(self, tensor: ScheduledTensor, parts: int) -> bool:
        """True where a part of the tensor lies in the same part of its storage."""
        operand, storage = tensor.operand, self._schedule.storages[tensor.storage]
        if not operand.nbytes or storage.nbytes % (parts * PART_ALIGNMENT):
            return False
        rows = operand.type.elements // operand.row
        nbytes = rows * (tensor.pitch or operand.row) * operand.format.dtype.nbytes
        return nbytes == storage.nbytes


def divisors_of(batch: int) -> list[int]:
    """Into how many equal parts, two or more, the batch can be cut; ascending, in the time of the batch's root."""
    small = [parts for parts in range(1, isqrt(batch) + 1) if batch % parts == 0]
    return sorted({*small, *(batch // parts for parts in small)} - {1})


def _cost(nbytes: int) -> float:
    return 0.0 if nbytes <= _NEAR else _SHARED_COST if nbytes <= _SHARED else 1.0


def _sums(saved: Sequence[float | None], begin: int, end: int) -> list[tuple[int, int, float]]:
    """Of each run of steps that have parts the piece with the largest sum: first, last, sum."""
    found: list[tuple[int, int, float]] = []
    best: tuple[int, int, float] | None = None
    start, total = begin, 0.0
    for at in range(begin, end + 1):
        each = saved[at] if at < end else None
        if each is None:
            found += [best] if best is not None else []
            best, start, total = None, at + 1, 0.0
            continue
        if total <= 0.0:
            start, total = at, 0.0
        total += each
        if best is None or total > best[2]:
            best = start, at, total
    return found
