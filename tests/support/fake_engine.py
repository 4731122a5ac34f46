"""An engine that is NumPy, with the interface of `runtime.loader`, and the plan that goes with it.

Every node of a graph is one step. `faults` change what a step makes, so that tests can break an engine where they
want to: a fault gets the node, its inputs and its output (fp32), and returns another output.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, TensorFormat
from bolt_build.graph.ir import Array, Graph, Layout, Node
from bolt_build.graph.reference import evaluate_node
from bolt_build.planner.engine_plan import (
    PLAN_VERSION,
    BatchPlan,
    EnginePlan,
    Location,
    Port,
    Step,
    StepTensor,
)
from bolt_build.runtime.loader import StepInfo

Fault = Callable[[Node, list[Array], Array], Array]


def plan_of(*graphs: Graph, stored: DType = DType.F32) -> EnginePlan:
    """A plan with one step a node, its tensors stored in `stored`."""
    plans = tuple(_batch_plan(graph, stored) for graph in graphs)
    return EnginePlan(PLAN_VERSION, "fake", "host", "fp32", "structure", (), plans, (), ())


def _batch_plan(graph: Graph, stored: DType) -> BatchPlan:
    def operand(name: str) -> Operand:
        value = graph.value(name)
        return Operand(value.type.shape, TensorFormat(stored, Layout.ROW), value.constant is not None)

    def tensor(name: str) -> StepTensor:
        where = Location("input" if name in graph.inputs else "arena", 0)
        return StepTensor(name, operand(name), where, None if graph.value(name).synthetic else name)

    steps = []
    for index, node in enumerate(graph.nodes):
        inputs, outputs = tuple(map(tensor, node.inputs)), tuple(map(tensor, node.outputs))
        operands = tuple(t.operand for t in inputs), tuple(t.operand for t in outputs)
        problem = KernelProblem(node.op, *operands, node.epilogue, DType.F32, "host")
        steps.append(Step(index, node.name, node.covers, problem, Candidate("numpy"), inputs, outputs, ()))
    ports = [tuple(Port(name, operand(name)) for name in names) for names in (graph.inputs, graph.outputs)]
    return BatchPlan(graph.batch, ports[0], ports[1], tuple(steps), 0, 0)


@dataclass
class FakeContext:
    """`runtime.loader.Context` for one graph. `blind` names tensors that it does not show to observers."""

    graph: Graph
    faults: Mapping[str, Fault]
    blind: Container[str] = ()
    stray: float = 0.0
    """Added to the outputs of a plain run only."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self.run_observed(inputs, lambda *_: None)
        return {name: array + np.float32(self.stray) for name, array in outputs.items()}

    def run_observed(
        self,
        inputs: Mapping[str, Array],
        observer: Callable[[StepInfo, str, Array], None],
        only: Container[str] | None = None,
    ) -> dict[str, Array]:
        values = {v.name: v.constant.array for v in self.graph.values if v.constant is not None}
        values.update((name, array.astype(np.float32)) for name, array in inputs.items())
        for index, node in enumerate(self.graph.nodes):
            arrays = [values[name] for name in node.inputs]
            (result,) = evaluate_node(node, arrays)
            if node.name in self.faults:
                result = np.asarray(self.faults[node.name](node, arrays, result), np.float32)
            name = node.outputs[0]
            values[name] = result
            shown = not self.graph.value(name).synthetic and name not in self.blind
            if shown and (only is None or name in only):
                observer(StepInfo(index, node.name, node.covers, "numpy"), name, result.copy())
        return {name: values[name] for name in self.graph.outputs}


@dataclass
class FakeModel:
    """`runtime.loader.Model` for the graphs of every batch."""

    graphs: tuple[Graph, ...]
    faults: Mapping[str, Fault]
    blind: Container[str] = ()
    stray: float = 0.0

    @contextmanager
    def context(self, batch: int, *, dims: Mapping[str, int]) -> Iterator[FakeContext]:
        (graph,) = (graph for graph in self.graphs if graph.batch == batch)
        yield FakeContext(graph, self.faults, self.blind, self.stray)
