"""Whether any two buffers of a plan overlap while both are alive, found from the plan alone.

A step may write bytes only where nothing is kept that another step still reads, in every order that the plan's
dependencies allow. It may write over its own input, which dies there, from the input's first byte on. A tensor that is
put together where its parts were written reads these and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner_checks import overlap, written_by

from bolt_build.families.base import PART_ALIGNMENT
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.planner.engine_plan import BatchPlan, StepTensor


@dataclass(frozen=True)
class _Kept:
    """A tensor of the arena that step `writer` wrote and step `reader` reads."""

    tensor: StepTensor
    writer: int
    reader: int


def overlaps(plan: BatchPlan) -> list[str]:
    """A sentence for every write over bytes that are still to be read. Alignment and the arena's end count too."""
    before = _ancestors(plan)
    kept, problems = _kept(plan)
    for step in plan.steps:
        for output in (tensor for tensor in step.outputs if tensor.location.kind == "arena"):
            start, stop = _span(output)
            if start % PART_ALIGNMENT or start < 0 or stop > plan.arena_bytes:
                problems.append(f"'{step.name}' writes '{output.value}' at [{start}, {stop}) of {plan.arena_bytes}")
        for output in (tensor for tensor in written_by(step) if tensor.location.kind == "arena"):
            for k in kept:
                in_place = k.reader == step.index and k.tensor.location == output.location
                earlier, later = step.index in before[k.writer], k.reader in before[step.index]
                if k.writer == step.index or in_place or earlier or later:
                    continue
                if overlap(output, k.tensor):
                    problems.append(f"'{step.name}' writes over '{k.tensor.value}', which step {k.reader} still reads")
    return problems


def most_alive(plan: BatchPlan) -> int:
    """Bytes of the arena that hold something at once, at most, in the order of execution.

    A tensor is alive from the step that writes it to the last that reads it, both included; what a step writes over its
    own input counts once.
    """
    spans: list[tuple[int, int, int, int]] = [(*_span(k.tensor), k.writer, k.reader) for k in _kept(plan)[0]]
    for step in plan.steps:
        outputs = [tensor for tensor in step.outputs if tensor.location.kind == "arena" and not step.view]
        spans += [(*_span(tensor), step.index, step.index) for tensor in outputs]
    most = 0
    for step in plan.steps:
        alive = sorted((start, stop) for start, stop, writer, reader in spans if writer <= step.index <= reader)
        held = end = 0
        for start, stop in alive:
            held += max(0, stop - max(start, end))
            end = max(end, stop)
        most = max(most, held)
    return most


def _ancestors(plan: BatchPlan) -> list[set[int]]:
    """For each step, all steps that are finished when it starts."""
    found: list[set[int]] = []
    for step in plan.steps:
        found.append(set(step.after).union(*(found[index] for index in step.after)))
    return found


def _kept(plan: BatchPlan) -> tuple[list[_Kept], list[str]]:
    """Every (write, read) pair in the arena, and reads of what no earlier step wrote. A view passes its input on, but a
    concatenation reads its parts."""
    before = _ancestors(plan)
    writers: dict[tuple[str, int], int] = {}
    kept, problems = [], []
    for step in plan.steps:
        passes = step.view and not isinstance(step.problem.op, Concat)
        for tensor in step.inputs:
            if tensor.location.kind != "arena":
                continue
            writer = writers.get((tensor.value, tensor.location.at))
            if writer is None or (writer != step.index and writer not in before[step.index] and not passes):
                problems.append(f"'{step.name}' reads '{tensor.value}', which nothing has surely written there")
            elif not passes:
                kept.append(_Kept(tensor, writer, step.index))
        for output in step.outputs:
            place = (output.value, output.location.at)
            source = step.inputs[0] if passes else None
            if source is None:
                writers[place] = step.index
            elif source.location.kind == "arena" and (source.value, source.location.at) in writers:
                writers[place] = writers[source.value, source.location.at]
    return kept, problems


def _span(tensor: StepTensor) -> tuple[int, int]:
    return tensor.location.at, tensor.location.at + tensor.reach
