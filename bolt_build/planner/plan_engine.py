"""From graphs to the engine plan: passes, search space, cover, schedule, memory, and the table of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.digest import digest, encode
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import Family, Operand, Refusal
from bolt_build.graph.ir import Array, Graph
from bolt_build.planner.engine_plan import (
    PLAN_VERSION,
    BatchPlan,
    Decision,
    EnginePlan,
    Location,
    Port,
    Step,
    StepTensor,
)
from bolt_build.planner.memory import Arena, plan_memory
from bolt_build.planner.pipeline import optimize
from bolt_build.planner.resolve import resolve
from bolt_build.planner.schedule import Schedule, ScheduledTensor, schedule
from bolt_build.planner.space import SearchSpace, search_space
from bolt_build.planner.weights import WeightTable
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target


@dataclass(frozen=True)
class PlannedEngine:
    """The plan, the constants of its weights table in order (each in its slot's element type), the optimised graphs."""

    plan: EnginePlan
    constants: tuple[Array, ...]
    graphs: tuple[Graph, ...]


def plan_engine(
    graphs: Sequence[Graph], recipe: Recipe, spec: TargetSpec, target: Target, families: Sequence[Family]
) -> PlannedEngine:
    """Plans one engine with one plan for each graph (one a batch).

    Raises BoltError with every node of any batch that no family has a kernel for, each once.
    """
    decisions: list[Decision] = []
    refusals: list[Refusal] = []
    optimized = []
    for graph in graphs:
        result = optimize(graph, recipe.policy)
        optimized.append(result.graph)
        decisions += result.decisions
    weights, plans = WeightTable(), []
    for space in _spaces(optimized, recipe, spec, target, families):
        cover = resolve(space)
        ordered = schedule(space, cover, target)
        arena = plan_memory(ordered)
        plans.append(_batch_plan(space, ordered, arena, weights))
        decisions += (*space.decisions, *cover.decisions, _arena_decision(space, arena))
        refusals += space.refusals
    plan = EnginePlan(
        PLAN_VERSION, recipe.name, spec.name, spec.precision, structure(optimized), weights.slots(), tuple(plans),
        tuple(dict.fromkeys(decisions)), tuple(dict.fromkeys(refusals)),
    )  # fmt: skip
    return PlannedEngine(plan, weights.constants(), tuple(optimized))


def _arena_decision(space: SearchSpace, arena: Arena) -> Decision:
    buffers = len({offset for offset in arena.offsets if offset is not None})
    reason = f"{arena.nbytes} bytes over {buffers} places; {arena.live_peak} bytes are alive at once at the peak"
    return Decision("memory", f"batch {space.graph.batch}", "planned the arena", reason)


def structure(graphs: Sequence[Graph]) -> str:
    """Digest of tensors' names, types and operators of the graphs, without the values of constants.

    A graph's own name is its file's: another file of the same architecture has another, and its weights still fit.
    """
    return digest([_skeleton(graph) for graph in graphs])


def _skeleton(graph: Graph) -> object:
    values = [[v.name, encode(v.type), v.constant is not None] for v in graph.values]
    return [graph.batch, list(graph.inputs), list(graph.outputs), values, encode(graph.nodes)]


def _spaces(
    graphs: Sequence[Graph], recipe: Recipe, spec: TargetSpec, target: Target, families: Sequence[Family]
) -> list[SearchSpace]:
    """The search space of every batch. Raises BoltError with the diagnostics of all of them."""
    spaces: list[SearchSpace] = []
    diagnostics: dict[Diagnostic, None] = {}
    for graph in graphs:
        try:
            spaces.append(search_space(graph, recipe, spec, target, families))
        except BoltError as error:
            diagnostics.update(dict.fromkeys(error.diagnostics))
    if diagnostics:
        raise BoltError(diagnostics)
    return spaces


def _batch_plan(space: SearchSpace, ordered: Schedule, arena: Arena, weights: WeightTable) -> BatchPlan:
    graph = space.graph

    def placed(tensor: ScheduledTensor) -> StepTensor:
        storage, offset = ordered.storages[tensor.storage], arena.offsets[tensor.storage]
        if storage.weight is not None and storage.dtype is not None:
            location = Location("weight", weights.index(graph, storage.weight, storage.dtype))
        elif offset is not None:
            location = Location("arena", offset)
        else:
            location = Location(storage.kind, storage.at)
        return StepTensor(tensor.value, tensor.operand, location, tensor.onnx)

    steps = []
    for index, step in enumerate(ordered.steps):
        inputs = tuple(placed(tensor) for tensor in step.inputs)
        outputs = tuple(placed(tensor) for tensor in step.outputs)
        steps.append(
            Step(index, step.name, step.covers, step.problem, step.candidate, inputs, outputs, step.after, step.view)
        )
    ports = [
        tuple(Port(name, Operand(graph.type(name).shape, format)) for name, format in border)
        for border in (space.fixed, space.wanted)
    ]
    return BatchPlan(graph.batch, ports[0], ports[1], tuple(steps), arena.nbytes, arena.live_peak)
