"""Concatenations that copy nothing: what computes their inputs writes them where the output lies.

An input that has memory of its own becomes a part of the output's: one run of bytes where only extents of 1 lie outside
of the concatenated axis; otherwise, where that axis is the innermost in memory (channels, channels last), rows as far
apart as the output's, from kernels that can store such and for a concatenation that alone reads them. A concatenation
all of whose inputs are parts is a view; one with some that are not copies those alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.families.base import PART_ALIGNMENT, memory_axes
from bolt_build.graph.ops.shape import Concat
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.schedule import VIEW, Schedule, ScheduledStep, ScheduledTensor

STAGE = "write-in-place"
_HOLDERS = {"input": "a graph input", "output": "a graph output", "weight": "a constant"}


@dataclass(frozen=True)
class PlacedSchedule:
    """The schedule, and for every concatenation what of it needs no copy, and why the rest does."""

    schedule: Schedule
    decisions: tuple[Decision, ...]


def write_in_place(schedule: Schedule, batch: int) -> PlacedSchedule:
    """Lets concatenations' inputs be written where their outputs lie. `batch` names the plan in decisions."""
    placer = _Placer(schedule)
    decisions = []
    for index, step in enumerate(schedule.steps):
        if isinstance(step.problem.op, Concat) and not step.view:
            action, reason = placer.place(index, step, step.problem.op.axis)
            decisions.append(Decision(STAGE, f"batch {batch}: {step.name}", action, reason))
    return PlacedSchedule(placer.finish(), tuple(decisions))


@dataclass(frozen=True)
class _Part:
    """Where a storage lies that has become a part: in storage `within` from byte `begin` on, its rows `pitch` elements
    apart (0: dense)."""

    within: int
    begin: int
    pitch: int = 0


class _Placer:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._parts: dict[int, _Part] = {}
        self._views: set[int] = set()
        self._writers: dict[int, list[tuple[ScheduledStep, int]]] = {}
        self._readers: dict[int, list[int]] = {}
        for index, step in enumerate(schedule.steps):
            for at, tensor in enumerate(step.outputs):
                self._writers.setdefault(tensor.storage, []).append((step, at))
            for tensor in step.inputs:
                self._readers.setdefault(tensor.storage, []).append(index)

    def place(self, index: int, step: ScheduledStep, axis: int) -> tuple[str, str]:
        """Makes parts of the step's inputs where possible: what was done, and why not more."""
        output, begin, copied = step.outputs[0], 0, dict[str, list[str]]()
        whole = output.operand
        pieces, order = whole.pieces(axis), memory_axes(len(whole.shape), whole.format.layout)
        for tensor in step.inputs:
            if pieces == 1:
                obstacle = self._claim(tensor, output, begin)
            elif axis == order[-1]:
                obstacle = self._claim_rows(tensor, output, begin)
            else:
                obstacle = f"falls into {pieces} pieces"
            if obstacle is not None:
                copied.setdefault(obstacle, []).append(f"'{tensor.value}'")
            begin += tensor.operand.nbytes // pieces if tensor.operand.nbytes else 0
        count = len(step.inputs)
        if not copied:
            self._views.add(index)
            return "copies nothing", f"its {count} inputs are written where it lies"
        reasons = "; ".join(f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in copied.items())
        left = sum(map(len, copied.values()))
        return ("declined" if left == count else f"copies {left} of {count} inputs"), reasons

    def _claim(self, tensor: ScheduledTensor, output: ScheduledTensor, begin: int) -> str | None:
        """Makes the tensor the bytes of `output` from `begin` on; otherwise says why that is impossible."""
        obstacle = self._taken(tensor)
        if obstacle is None and begin % PART_ALIGNMENT:
            obstacle = f"would begin at byte {begin}, which is no multiple of {PART_ALIGNMENT}"
        if obstacle is None:
            self._parts[tensor.storage] = _Part(output.storage, begin)
        return obstacle

    def _claim_rows(self, tensor: ScheduledTensor, output: ScheduledTensor, begin: int) -> str | None:
        """Makes the tensor a part of each row of `output`, from byte `begin` of the row on; otherwise says why not."""
        operand = output.operand
        row = operand.row * operand.format.dtype.nbytes
        obstacle = self._taken(tensor) or self._dense(tensor)
        if obstacle is None and row % PART_ALIGNMENT:
            obstacle = f"a part of rows of {row} bytes, which is no multiple of {PART_ALIGNMENT}"
        if obstacle is None and begin % PART_ALIGNMENT:
            obstacle = f"would begin at byte {begin} of each row, which is no multiple of {PART_ALIGNMENT}"
        if obstacle is None:
            self._parts[tensor.storage] = _Part(output.storage, begin, operand.row)
        return obstacle

    def _taken(self, tensor: ScheduledTensor) -> str | None:
        """Why the tensor's memory cannot be moved, None where it can."""
        kind = self._schedule.storages[tensor.storage].kind
        if kind != "arena":
            return _HOLDERS[kind]
        if not self._schedule.fills(tensor):
            return "itself a part of another tensor"
        if tensor.storage in self._parts:
            return "already a part of another concatenation, or of this one"
        return None

    def _dense(self, tensor: ScheduledTensor) -> str | None:
        """Why the tensor's rows must lie one behind the other, None where they need not."""
        writers, readers = self._writers[tensor.storage], self._readers[tensor.storage]
        if len(readers) > 1:
            others = len(set(readers)) - 1
            return f"read in dense rows by {others} other steps" if others else "read twice by this"
        if any(part.within == tensor.storage for part in self._parts.values()):
            return "put together from parts"
        ((step, output),) = writers
        if output not in step.pitched:
            return f"stored in dense rows by '{step.candidate.family}'"
        return None

    def finish(self) -> Schedule:
        """The schedule with parts in their places, and without the memory that they had."""
        kept = [at for at in range(len(self._schedule.storages)) if at not in self._parts]
        number = {old: new for new, old in enumerate(kept)}

        def moved(tensor: ScheduledTensor) -> ScheduledTensor:
            storage, offset, pitch = tensor.storage, tensor.offset, 0
            while storage in self._parts:
                part = self._parts[storage]
                storage, offset, pitch = part.within, offset + part.begin, pitch or part.pitch
            # Whoever compares tensors finds these values in the concatenation.
            onnx = None if pitch else tensor.onnx
            return replace(tensor, storage=number[storage], offset=offset, pitch=pitch, onnx=onnx)

        steps = []
        for index, step in enumerate(self._schedule.steps):
            inputs, outputs = tuple(map(moved, step.inputs)), tuple(map(moved, step.outputs))
            step = replace(step, inputs=inputs, outputs=outputs)
            steps.append(replace(step, candidate=VIEW, view=True) if index in self._views else step)
        return Schedule(tuple(steps), tuple(self._schedule.storages[at] for at in kept))
