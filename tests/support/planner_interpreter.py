"""Runs an engine plan in NumPy over real bytes: one arena, the caller's buffers, the table of weights.

Whatever a plan gets wrong (an order, an offset, a format, an operand) shows in the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bolt_build.families.base import Operand
from bolt_build.graph.arrays import narrowed, numpy_dtype
from bolt_build.graph.ir import Array, Layout, Node
from bolt_build.graph.ops.moves.shape import Convert
from bolt_build.graph.reference import evaluate_node
from bolt_build.planner.engine_plan import BatchPlan, Location, Step, StepTensor
from bolt_build.planner.parts import part_of
from bolt_build.planner.plan_engine import PlannedEngine

Bytes = npt.NDArray[np.uint8]


def run_plan(
    engine: PlannedEngine, plan: BatchPlan, inputs: Mapping[str, Array], order: Sequence[int] | None = None
) -> dict[str, Array]:
    """The engine's outputs for row-major `inputs`, its steps run in `order` (their own if None)."""
    memory = _Memory(engine, plan, inputs)
    for index in range(len(plan.steps)) if order is None else order:
        _run(memory, plan.steps[index])
    return {port.name: memory.read(Location("output", at), port.operand) for at, port in enumerate(plan.outputs)}


def run_in_parts(engine: PlannedEngine, plan: BatchPlan, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The engine's outputs, with micro-batched spans run part by part as a context runs them."""
    memory, index = _Memory(engine, plan, inputs), 0
    while index < len(plan.steps):
        span = next((span for span in plan.micro_batches if span.first == index), None)
        if span is None:
            _run(memory, plan.steps[index])
            index += 1
            continue
        for part in range(span.parts):
            memory.slab[...] = 0xA5  # another thread's slab, for all that the part knows
            for step in plan.steps[span.first : span.last + 1]:
                _run(memory, _part(step, part, span.parts))
        index = span.last + 1
    return {port.name: memory.read(Location("output", at), port.operand) for at, port in enumerate(plan.outputs)}


def _part(step: Step, part: int, parts: int) -> Step:
    """The step as it computes one part: addresses as emission writes them."""
    if step.view:
        return step
    problem = part_of(step.problem, parts)
    assert problem is not None

    def cut(tensor: StepTensor, operand: Operand) -> StepTensor:
        at, lies = tensor.location, tensor.parts
        if lies is None:
            return tensor
        if lies.held is not None:
            at = Location("slab", lies.held)
        elif at.kind == "arena":
            at = replace(at, at=at.at + part * lies.nbytes)
        else:
            at = replace(at, offset=at.offset + part * lies.nbytes)
        return replace(tensor, operand=operand, location=at)

    return replace(
        step,
        problem=problem,
        inputs=tuple(map(cut, step.inputs, problem.inputs)),
        outputs=tuple(map(cut, step.outputs, problem.outputs)),
    )


def random_order(plan: BatchPlan, seed: int) -> list[int]:
    """An order of the steps that their dependencies allow."""
    random = np.random.default_rng(seed)
    waiting, order = dict(enumerate(step.after for step in plan.steps)), []
    while waiting:
        ready = [index for index, after in waiting.items() if not set(after) & set(waiting)]
        order.append(ready[random.integers(len(ready))])
        del waiting[order[-1]]
    return order


class _Memory:
    def __init__(self, engine: PlannedEngine, plan: BatchPlan, inputs: Mapping[str, Array]) -> None:
        self._arena = np.full(plan.arena_bytes, 0xA5, np.uint8)
        self.slab = np.full(plan.slab_bytes, 0xA5, np.uint8)
        self._inputs = [_stored(inputs[port.name], port.operand) for port in plan.inputs]
        self._outputs = [np.full(port.operand.nbytes, 0xA5, np.uint8) for port in plan.outputs]
        self._weights = [_stored(array, None) for array in engine.constants]

    def bytes_at(self, at: Location, nbytes: int) -> Bytes:
        if at.kind in ("arena", "slab"):
            found = (self._arena if at.kind == "arena" else self.slab)[at.at : at.at + nbytes]
        else:
            buffer = {"input": self._inputs, "output": self._outputs, "weight": self._weights}[at.kind][at.at]
            found = buffer[at.offset : at.offset + nbytes]
        assert found.nbytes == nbytes, f"{at} holds {found.nbytes} bytes, not {nbytes}"
        return found

    def read(self, at: Location, operand: Operand, pitch: int = 0) -> Array:
        shape, last = operand.shape, operand.format.layout is Layout.CHANNELS_LAST
        inner = (shape[0], *shape[2:], shape[1]) if last else shape
        array = self._rows(at, operand, pitch).copy().view(numpy_dtype(operand.format.dtype)).reshape(inner)
        return np.array(np.moveaxis(array, -1, 1) if last else array)

    def write(self, at: Location, operand: Operand, array: Array, pitch: int = 0) -> None:
        assert at.kind in ("arena", "slab", "output"), f"a step writes into the {at.kind}"
        rows = self._rows(at, operand, pitch)
        rows[...] = _stored(array, operand).reshape(rows.shape)

    def _rows(self, at: Location, operand: Operand, pitch: int) -> Bytes:
        """The bytes of each row: where rows lie apart, those between them are another tensor's."""
        if not pitch or not operand.nbytes:
            return self.bytes_at(at, operand.nbytes)
        size = operand.format.dtype.nbytes
        found = self.bytes_at(at, operand.reach(pitch))
        shape = operand.type.elements // operand.row, operand.row * size
        return np.lib.stride_tricks.as_strided(found, shape, (pitch * size, 1))


def _stored(array: Array, operand: Operand | None) -> Bytes:
    """The bytes of a row-major array in the operand's format (its own where None)."""
    if operand is not None:
        assert array.shape == operand.shape
        array = narrowed(array, numpy_dtype(operand.format.dtype))
        if operand.format.layout is Layout.CHANNELS_LAST:
            array = np.moveaxis(array, 1, -1)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _run(memory: _Memory, step: Step) -> None:
    if step.view:
        return  # that the bytes are there already shows in what reads them
    problem = step.problem
    assert tuple(tensor.operand for tensor in (*step.inputs, *step.outputs)) == (*problem.inputs, *problem.outputs)
    arrays = [memory.read(tensor.location, tensor.operand, tensor.pitch) for tensor in step.inputs]
    wide = [a.astype(np.float32) if tensor.operand.format.dtype.is_float else a
            for a, tensor in zip(arrays, step.inputs, strict=True)]  # fmt: skip
    if isinstance(problem.op, Convert):
        results: tuple[Array, ...] = (wide[0],)
    else:
        node = Node(step.name, problem.op, tuple(map(str, range(len(wide)))), ("y",), problem.epilogue)
        results = evaluate_node(node, wide)
    for tensor, result in zip(step.outputs, results, strict=True):
        memory.write(tensor.location, tensor.operand, result, tensor.pitch)
