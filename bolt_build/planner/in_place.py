"""Slices and concatenations that copy nothing: what reads a slice reads it where it lies, and what computes the inputs
of a concatenation writes them where the output lies.

A slice of rows (of channels, where these are innermost in memory) is a view of the rows of its input, for kernels that
can read rows further apart than they are long (`ProposedStep.reads_apart`). Where a reader cannot, it is copied.

An input that has memory of its own becomes a part of the output's: one run of bytes where only extents of 1 lie outside
of the concatenated axis; otherwise, where that axis is the innermost in memory (channels, channels last), rows as far
apart as the output's, from kernels that can store such, for kernels that can read such. Largest outputs come first, so
that a concatenation of concatenations is one buffer, and so is that which many extend (dense blocks): a concatenation
whose inputs already lie side by side in another one's output is these bytes of it. A concatenation all of whose inputs
are parts is a view; one with some that are not copies those alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.families.base import PART_ALIGNMENT, memory_axes
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.schedule import VIEW, Schedule, ScheduledStep, ScheduledTensor
from bolt_build.sizes import Sizes

STAGE = "write-in-place"
FARTHEST = 1 << 31
"""Bytes over which kernels reach: their offsets have 32 bits."""
_HOLDERS = {"input": "a graph input", "output": "a graph output", "weight": "a constant"}


@dataclass(frozen=True)
class PlacedSchedule:
    """The schedule, and for every slice and concatenation what of it needs no copy, and why the rest does."""

    schedule: Schedule
    decisions: tuple[Decision, ...]


def write_in_place(schedule: Schedule, sizes: Sizes) -> PlacedSchedule:
    """Lets slices be read where their inputs lie, and concatenations' inputs be written where their outputs lie.
    `sizes` name the plan in decisions."""
    placer, found = _Placer(schedule), dict[int, Decision]()

    def decide(index: int) -> None:
        step = schedule.steps[index]
        assert isinstance(step.problem.op, Concat | Slice)
        if isinstance(step.problem.op, Slice):
            action, reason = placer.view(index, step, step.problem.op)
        else:
            action, reason = placer.place(index, step, step.problem.op.axis)
        found[index] = Decision(STAGE, f"{sizes}: {step.name}", action, reason)

    moving = [
        i for i, step in enumerate(schedule.steps) if isinstance(step.problem.op, Concat | Slice) and not step.view
    ]
    slices = [i for i in moving if isinstance(schedule.steps[i].problem.op, Slice)]
    # What concatenations alone read of a slice may as well be copied to where they lie.
    early = [i for i in slices if placer.is_computed_with(schedule.steps[i].outputs[0])]
    concats = sorted(set(moving) - set(slices), key=lambda i: -schedule.steps[i].outputs[0].operand.nbytes)
    for index in (*early, *concats, *(i for i in slices if i not in early)):
        decide(index)
    return PlacedSchedule(placer.finish(), tuple(found[index] for index in sorted(found)))


def _innermost(tensor: ScheduledTensor) -> int:
    return memory_axes(len(tensor.operand.shape), tensor.operand.format.layout)[-1]


def _takes_runs(tensor: ScheduledTensor, op: Slice) -> bool:
    """Whether a slice takes a run of each row, of all rows or of some that follow each other."""
    shape, order = tensor.operand.shape, memory_axes(len(tensor.operand.shape), tensor.operand.format.layout)
    cut = [at for at, axis in enumerate(order[:-1]) if op.count[axis] != shape[axis]]
    outermost = not cut or all(shape[axis] == 1 for axis in order[: cut[-1]])
    return outermost and all(step == 1 for step in op.step)


def _begin(tensor: ScheduledTensor, op: Slice) -> int:
    """The byte of the tensor at which a slice that takes runs of rows begins."""
    shape, order = tensor.operand.shape, memory_axes(len(tensor.operand.shape), tensor.operand.format.layout)
    rows = 0
    for axis in order[:-1]:
        rows = rows * shape[axis] + op.begin[axis]
    return (rows * tensor.operand.row + op.begin[order[-1]]) * tensor.operand.format.dtype.nbytes


def _other_rows(tensor: ScheduledTensor, other: ScheduledTensor) -> str | None:
    """The rows of the tensor where they are not as long as those of `other`, of the same memory. Where extents are 1,
    the same bytes have several layouts, whose rows are not the same."""
    row = tensor.operand.row
    return None if row == other.operand.row else f"rows of {row} elements"


def _keeps_rows(step: ScheduledStep, tensor: ScheduledTensor) -> bool:
    """True where the step is a view of the same memory in the same rows: an image as a matrix, for example."""
    return step.view and all(
        (each.storage, each.offset) == (tensor.storage, tensor.offset) and _other_rows(each, tensor) is None
        for each in (*step.inputs[:1], *step.outputs)
    )


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
        self._sliced: dict[int, list[int]] = {}
        self._writers: dict[int, list[tuple[ScheduledStep, int]]] = {}
        self._readers: dict[int, list[tuple[ScheduledStep, int]]] = {}
        for step in schedule.steps:
            for at, tensor in enumerate(step.outputs):
                self._writers.setdefault(tensor.storage, []).append((step, at))
            for at, tensor in enumerate(step.inputs):
                self._readers.setdefault(tensor.storage, []).append((step, at))

    def is_computed_with(self, tensor: ScheduledTensor) -> bool:
        """True where others than concatenations read the tensor."""
        return any(not isinstance(step.problem.op, Concat) for step, _ in self._readers.get(tensor.storage, ()))

    def view(self, index: int, step: ScheduledStep, op: Slice) -> tuple[str, str]:
        """Makes the step's output a view of its input's rows where possible: what was done, and why not."""
        (source,), (output,) = step.inputs, step.outputs
        obstacle = self._no_rows(source, output, op) or self._unmoved(output)
        if obstacle is not None:
            return "copied", obstacle
        begin = _begin(source, op)
        self._parts[output.storage] = _Part(source.storage, source.offset + begin, source.operand.row)
        self._sliced.setdefault(source.storage, []).append(output.storage)
        self._views.add(index)
        of = f"{output.operand.row} of {source.operand.row} elements"
        return "copies nothing", f"{of} of each row are read where '{source.value}' lies"

    def _no_rows(self, source: ScheduledTensor, output: ScheduledTensor, op: Slice) -> str | None:
        """Why a slice is no part of each row of its input that kernels could load, None where it is."""
        given = source.operand
        row, begin = given.row * given.format.dtype.nbytes, _begin(source, op)
        if given.constant or given.format != output.operand.format:
            return _HOLDERS["weight"] if given.constant else f"{given.format} becomes {output.operand.format}"
        if not given.nbytes or not output.operand.nbytes:
            return "has no elements"
        if not _takes_runs(source, op):
            return "takes no run of each row"
        if row % PART_ALIGNMENT:
            return f"a part of rows of {row} bytes, which is no multiple of {PART_ALIGNMENT}"
        if begin % PART_ALIGNMENT:
            return f"begins at byte {begin % row} of each row, which is no multiple of {PART_ALIGNMENT}"
        return self._too_far(source)

    def _too_far(self, tensor: ScheduledTensor) -> str | None:
        """Why rows of the tensor's memory may not lie apart, None where they may."""
        if self._schedule.storages[self._place(tensor).within].nbytes >= FARTHEST:
            return f"rows lie apart over {FARTHEST} bytes or more, beyond the reach of kernels"
        return None

    def _unmoved(self, output: ScheduledTensor) -> str | None:
        """Why the output of a slice has memory of its own, None where every reader can read it elsewhere."""
        kind = self._schedule.storages[output.storage].kind
        if kind != "arena":
            return _HOLDERS[kind]
        if output.storage in self._parts:
            return "written where a concatenation lies"
        for step, at in self._readers.get(output.storage, ()):
            if at not in step.reads_apart and not _keeps_rows(step, output):
                what = "another view" if step.view else f"{step.problem.op.kind} of '{step.candidate.family}'"
                return f"read in dense rows by '{step.name}', {what}"
            if (rows := _other_rows(step.inputs[at], output)) is not None:
                return f"read as {rows} by '{step.name}'"
        return None

    def place(self, index: int, step: ScheduledStep, axis: int) -> tuple[str, str]:
        """Makes parts of the step's inputs where possible: what was done, and why not more."""
        output, begin, copied = step.outputs[0], 0, dict[str, list[str]]()
        whole = output.operand
        pieces, order = whole.pieces(axis), memory_axes(len(whole.shape), whole.format.layout)
        if pieces == 1 or axis == order[-1]:
            within = self._side_by_side(step, output, pieces)
            if within is not None:
                self._parts[output.storage] = within
                self._views.add(index)
                return "copies nothing", f"its {len(step.inputs)} inputs lie side by side in another concatenation"
        for number, tensor in enumerate(step.inputs):
            if pieces == 1:
                obstacle = self._claim(tensor, output, begin)
            elif axis == order[-1]:
                obstacle = self._claim_rows(tensor, output, begin, (step, number))
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

    def _side_by_side(self, step: ScheduledStep, output: ScheduledTensor, pieces: int) -> _Part | None:
        """The place of the step's output where its inputs lie already, in order, in the output of another
        concatenation, and whoever reads it can read it there; None where that is not so."""
        if self._taken(output) is not None or not step.inputs or not output.operand.nbytes:
            return None
        first, end = self._place(step.inputs[0]), 0
        for tensor in step.inputs:
            lies = self._place(tensor)
            if tensor.storage not in self._parts or lies != replace(first, begin=first.begin + end):
                return None
            end += tensor.operand.nbytes // pieces
        if (first.pitch != 0) != (pieces > 1):
            return None
        if first.pitch and self._read_dense(output, None) is not None:
            return None
        return first

    def _place(self, tensor: ScheduledTensor) -> _Part:
        """Where the tensor lies in memory that is no part of other memory."""
        storage, begin, pitch = tensor.storage, tensor.offset, 0
        while storage in self._parts:
            part = self._parts[storage]
            # Rows within rows are as far apart as the outer ones.
            storage, begin, pitch = part.within, begin + part.begin, part.pitch or pitch
        return _Part(storage, begin, pitch)

    def _claim(self, tensor: ScheduledTensor, output: ScheduledTensor, begin: int) -> str | None:
        """Makes the tensor the bytes of `output` from `begin` on; otherwise says why that is impossible."""
        obstacle = self._taken(tensor)
        if obstacle is None and self._place(output).pitch:
            obstacle = "would lie in rows of another concatenation"
        if obstacle is None and begin % PART_ALIGNMENT:
            obstacle = f"would begin at byte {begin}, which is no multiple of {PART_ALIGNMENT}"
        if obstacle is None:
            self._parts[tensor.storage] = _Part(output.storage, begin)
        return obstacle

    def _claim_rows(
        self, tensor: ScheduledTensor, output: ScheduledTensor, begin: int, reader: tuple[ScheduledStep, int]
    ) -> str | None:
        """Makes the tensor a part of each row of `output`, from byte `begin` of the row on; otherwise says why not."""
        operand = output.operand
        row = operand.row * operand.format.dtype.nbytes
        obstacle = self._taken(tensor) or self._dense(tensor, reader)
        if obstacle is None and row % PART_ALIGNMENT:
            obstacle = f"a part of rows of {row} bytes, which is no multiple of {PART_ALIGNMENT}"
        if obstacle is None and begin % PART_ALIGNMENT:
            obstacle = f"would begin at byte {begin} of each row, which is no multiple of {PART_ALIGNMENT}"
        obstacle = obstacle or self._too_far(output)
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
        if any(tensor.storage in sliced for sliced in self._sliced.values()):
            return "a slice, which lies where its input does"
        if tensor.storage in self._parts:
            return "already a part of another concatenation, or of this one"
        return None

    def _dense(self, tensor: ScheduledTensor, reader: tuple[ScheduledStep, int]) -> str | None:
        """Why the tensor's rows must lie one behind the other for others than `reader`, None where they need not."""
        views = self._sliced.get(tensor.storage, [])
        if any(part.within == tensor.storage and at not in views for at, part in self._parts.items()):
            return "put together from parts"
        if (obstacle := self._read_dense(tensor, reader)) is not None:
            return obstacle
        ((step, output),) = self._writers[tensor.storage]
        if output not in step.pitched:
            return f"stored in dense rows by '{step.candidate.family}'"
        if (rows := _other_rows(step.outputs[output], tensor)) is not None:
            return f"stored as {rows} by '{step.name}'"
        return None

    def _read_dense(self, tensor: ScheduledTensor, but: tuple[ScheduledStep, int] | None) -> str | None:
        """Why those who read the tensor, `but` for one, need rows one behind the other, None where they do not."""
        dense = [
            step
            for step, at in self._readers.get(tensor.storage, ())
            if (but is None or step is not but[0] or at != but[1]) and not self._reads(step, at, tensor)
        ]
        if not dense:
            return None
        others = {id(step): step for step in dense if but is None or step is not but[0]}
        if not others:
            return "read twice by this"
        first = next(iter(others.values()))
        more = f" and {len(others) - 1} other steps" if len(others) > 1 else ""
        return f"read in dense rows by '{first.name}'{more}"

    def _reads(self, step: ScheduledStep, at: int, tensor: ScheduledTensor) -> bool:
        """True where the step reads rows as long as the tensor's of input `at` wherever they lie: a slice that is a
        view reads nothing."""
        if _other_rows(step.inputs[at], tensor) is not None:
            return False
        viewed = isinstance(step.problem.op, Slice) and step.outputs[0].storage in self._parts
        return viewed or at in step.reads_apart

    def finish(self) -> Schedule:
        """The schedule with parts in their places, and without the memory that they had."""
        kept = [at for at in range(len(self._schedule.storages)) if at not in self._parts]
        number = {old: new for new, old in enumerate(kept)}

        def moved(tensor: ScheduledTensor) -> ScheduledTensor:
            place = self._place(tensor)
            # Whoever compares tensors finds these values in the concatenation.
            onnx = None if place.pitch else tensor.onnx
            return replace(tensor, storage=number[place.within], offset=place.begin, pitch=place.pitch, onnx=onnx)

        steps = []
        for index, step in enumerate(self._schedule.steps):
            inputs, outputs = tuple(map(moved, step.inputs)), tuple(map(moved, step.outputs))
            step = replace(step, inputs=inputs, outputs=outputs)
            steps.append(replace(step, candidate=VIEW, view=True) if index in self._views else step)
        return Schedule(tuple(steps), tuple(self._schedule.storages[at] for at in kept))
