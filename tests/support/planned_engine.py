"""An engine plan computed by NumPy, step by step, each tensor rounded to what the plan stores it in: what verification
would see of the engine, without building it. A fault takes the place of a step's result."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from bolt_build.graph.arrays import narrowed, numpy_dtype
from bolt_build.graph.ir import Array, Node
from bolt_build.graph.ops.moves.shape import Convert
from bolt_build.graph.reference import evaluate_node
from bolt_build.planner.engine_plan import BatchPlan, Step, StepTensor
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.runtime.loader import StepInfo


@dataclass(frozen=True)
class Executed:
    """A step, what it read (as stored) and what it left (as stored): `others` are its outputs behind the first."""

    step: Step
    inputs: tuple[Array, ...]
    result: Array
    others: tuple[Array, ...] = ()


Change = Callable[[Executed], Array]


def compute(step: Step, inputs: tuple[Array, ...]) -> Array:
    """The first of `results`."""
    return results(step, inputs)[0]


def results(step: Step, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """What the step leaves of these inputs: computed in float64 operator by operator, fp32 in between, then stored."""
    wide = [
        a.astype(np.float32) if t.operand.format.dtype.is_float else a for a, t in zip(inputs, step.inputs, strict=True)
    ]
    if isinstance(step.problem.op, Convert):
        return (stored(step.outputs[0], wide[0]),)
    node = Node(step.name, step.problem.op, tuple(map(str, range(len(wide)))), ("y",), step.problem.epilogue)
    return tuple(map(stored, step.outputs, evaluate_node(node, wide)))


def stored(tensor: StepTensor, array: Array) -> Array:
    """The array in the element type that the plan gives the tensor."""
    return np.asarray(narrowed(array, numpy_dtype(tensor.operand.format.dtype)))


@dataclass
class PlannedContext:
    """`runtime.loader.Context` for one batch of a plan. `changes` are faults by the index of the step."""

    plan: BatchPlan
    constants: tuple[Array, ...]
    changes: Mapping[int, Change] = field(default_factory=dict)

    def execute(self, inputs: Mapping[str, Array]) -> Iterator[Executed]:
        """Every step in order."""
        values: dict[str, Array] = {}
        ports = [inputs[port.name] for port in self.plan.inputs]
        for step in self.plan.steps:
            for tensor in step.inputs:
                if tensor.location.kind == "weight":
                    values[tensor.value] = stored(tensor, self.constants[tensor.location.at])
                elif tensor.location.kind == "input" and tensor.value not in values:
                    values[tensor.value] = stored(tensor, ports[tensor.location.at])
            arrays = tuple(values[tensor.value] for tensor in step.inputs)
            first, *others = results(step, arrays)
            done = Executed(step, arrays, first, tuple(others))
            if step.index in self.changes:
                done = replace(done, result=self.changes[step.index](done))
            values |= zip((tensor.value for tensor in step.outputs), (done.result, *done.others), strict=True)
            yield done

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self.run_observed(inputs, lambda *_: None)

    def run_observed(
        self,
        inputs: Mapping[str, Array],
        observer: Callable[[StepInfo, str, Array], None],
        only: Container[str] | None = None,
    ) -> dict[str, Array]:
        outputs: dict[str, Array] = {}
        for done in self.execute(inputs):
            step = done.step
            for tensor, array in zip(step.outputs, (done.result, *done.others), strict=True):
                if tensor.location.kind == "output":
                    outputs[self.plan.outputs[tensor.location.at].name] = array
                if tensor.onnx is not None and (only is None or tensor.onnx in only):
                    observer(StepInfo(step.index, step.name, step.covers, "numpy"), tensor.onnx, array)
        return outputs


@dataclass
class PlannedModel:
    """`runtime.loader.Model` for every batch of a plan."""

    engine: PlannedEngine
    changes: Mapping[int, Change] = field(default_factory=dict)

    @contextmanager
    def context(self, batch: int, *, dims: Mapping[str, int]) -> Iterator[PlannedContext]:
        (plan,) = (plan for plan in self.engine.plan.plans if plan.batch == batch and dict(plan.dims) == dims)
        yield PlannedContext(plan, self.engine.constants, self.changes)
