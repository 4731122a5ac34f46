"""From graphs to the engine plan: passes, search space, cover, schedule, memory, and the table of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import Family, Operand, Refusal
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.limits import MOST_BYTES
from bolt_build.planner.doubles import in_single
from bolt_build.planner.engine_plan import (
    PLAN_VERSION,
    BatchPlan,
    Decision,
    EnginePlan,
    Location,
    MicroBatchSpan,
    PaddedDim,
    Parts,
    Port,
    SlowSteps,
    Step,
    StepTensor,
)
from bolt_build.planner.gpu_memory import check_memory
from bolt_build.planner.in_place import write_in_place
from bolt_build.planner.kernel_sources import Declined, UsedProblem
from bolt_build.planner.memory import Arena, plan_memory
from bolt_build.planner.micro_batches import micro_batching_of
from bolt_build.planner.padded_dims import decisions_of as padding_decisions
from bolt_build.planner.padded_dims import padded_dims, with_counts
from bolt_build.planner.passes.align.pad_channels import PAD_CHANNELS
from bolt_build.planner.persistent import ChainOutcome, decisions_of, outcomes
from bolt_build.planner.pipeline import optimize, recognised
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.resolve import resolve
from bolt_build.planner.schedule import Schedule, ScheduledStep, ScheduledTensor, schedule
from bolt_build.planner.selected_space import Winners, chosen_cover, selected_space
from bolt_build.planner.selection import PREDICTED, ChosenCover, Selection
from bolt_build.planner.slow_steps import slow_steps
from bolt_build.planner.space import SearchSpace, search_space
from bolt_build.planner.structure import structure
from bolt_build.planner.weights import Weight, WeightTable
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.sizes import sizes_of
from bolt_build.targets import Target
from bolt_build.wording import many


@dataclass(frozen=True)
class PlannedEngine:
    """The plan, the weights of its table in order, the optimised graphs.

    `covers` are what was chosen of each graph, as a lock keeps it. `asked` are the digests of every problem whose
    winner could have changed the plan, in order, and `used` those of the plan's steps. `chains` says of all products
    that one kernel could compute together, in each batch, whether one does and why. `declined` is what the selection
    says of whole batches, or lacks, and that was not taken; nothing where all kernels are predicted.
    """

    plan: EnginePlan
    weights: tuple[Weight, ...]
    graphs: tuple[Graph, ...]
    covers: tuple[ChosenCover, ...]
    asked: tuple[str, ...]
    used: tuple[UsedProblem, ...]
    chains: tuple[ChainOutcome, ...] = ()
    declined: tuple[Declined, ...] = ()

    @property
    def constants(self) -> tuple[Array, ...]:
        """The arrays of the weights table in order, each in its slot's element type. They are made each time."""
        return tuple(weight.array for weight in self.weights)


def plan_engine(
    graphs: Sequence[Graph], recipe: Recipe, spec: TargetSpec, target: Target, families: Sequence[Family],
    selection: Selection = PREDICTED,
) -> PlannedEngine:  # fmt: skip
    """Plans one engine with one plan for each graph (one a batch and extent of dimensions with several), with the
    kernels of `selection` where it has them.

    Raises BoltError with every node of any batch that no family has a kernel for, each once, or with every plan that
    the target's GPU has too little memory for.
    """
    optimized, padded, decisions = _optimized(graphs, recipe, spec, target, families)
    refusals: list[Refusal] = []
    weights, plans, covers, used = WeightTable(), [], [], _Used(selection)
    asked: set[str] = set()
    chains: list[ChainOutcome] = []
    declined: list[Declined] = []
    slow: list[SlowSteps] = []
    for space in _spaces(optimized, recipe, spec, target, families):
        asked.update(choice.problem.digest for choice in space.choices)
        space, winners = selected_space(space, selection, target, families)
        cover = resolve(space)
        covers.append(chosen_cover(space, cover.alternatives))
        joined = outcomes(sizes_of(space.graph), space.chains, cover.alternatives, winners)
        chains += joined
        placed = write_in_place(schedule(space, cover, target), sizes_of(space.graph))
        ordered = placed.schedule
        chosen = micro_batching_of(ordered, sizes_of(space.graph), target, families)
        arena = plan_memory(ordered, chosen.spans)
        _check_bytes(space, arena)
        plans.append(_batch_plan(space, ordered, arena, weights, chosen.spans))
        decisions += (*space.decisions, *cover.decisions, *decisions_of(joined))
        decisions += (*placed.decisions, *chosen.decisions, _arena_decision(space, arena))
        decisions += used.decisions(space, ordered.steps, winners, target)
        refusals += space.refusals
        slow += slow_steps(space, ordered.steps, winners, target, families)
        declined += space.declined
    check_memory(weights.slots(), plans, recipe, spec, target)
    decisions += padding_decisions(padded)
    plan = EnginePlan(
        PLAN_VERSION, recipe.name, spec.name, spec.precision, structure(optimized), weights.slots(), tuple(plans),
        tuple(dict.fromkeys(decisions)), tuple(dict.fromkeys(refusals)), tuple(slow), padded,
    )  # fmt: skip
    return PlannedEngine(
        plan, weights.weights(), tuple(optimized), tuple(covers), tuple(sorted(asked)), used.problems(),
        tuple(chains), tuple(declined),
    )  # fmt: skip


def planned_batch(
    space: SearchSpace, selection: Selection, target: Target, families: Sequence[Family]
) -> tuple[BatchPlan, ChosenCover]:
    """The plan of one batch as an engine of it alone would have it, and its cover. Raises BoltError."""
    space, _ = selected_space(space, selection, target, families)
    cover = resolve(space)
    ordered = write_in_place(schedule(space, cover, target), sizes_of(space.graph)).schedule
    spans = micro_batching_of(ordered, sizes_of(space.graph), target, families).spans
    plan = _batch_plan(space, ordered, plan_memory(ordered, spans), WeightTable(), spans)
    return plan, chosen_cover(space, cover.alternatives)


def search_spaces(
    graphs: Sequence[Graph], recipe: Recipe, spec: TargetSpec, target: Target, families: Sequence[Family]
) -> tuple[SearchSpace, ...]:
    """The search space of every batch, with the optimised graph in it, before anything is chosen.

    Raises BoltError with every node of any batch that no family has a kernel for, each once.
    """
    return tuple(_spaces(_optimized(graphs, recipe, spec, target, families).graphs, recipe, spec, target, families))


class _Optimized(NamedTuple):
    """Optimised graphs, in which attention counts its keys where that is padded; what of their sizes is; and what
    passes did."""

    graphs: list[Graph]
    padded: tuple[PaddedDim, ...]
    decisions: list[Decision]


def _optimized(
    graphs: Sequence[Graph], recipe: Recipe, spec: TargetSpec, target: Target, families: Sequence[Family]
) -> _Optimized:
    decisions: list[Decision] = []
    optimized = []
    for graph in graphs:
        result = optimize(graph, recipe.policy, target, spec.precision)
        decisions += result.decisions
        pads = PAD_CHANNELS.pays_on is None or PAD_CHANNELS.pays_on(target, spec.precision)
        if not pads and recipe.policy.padding.mode == "always":
            reason = f"policy.padding.mode is always, but kernels of '{target.name}' read {spec.precision} as it is"
            decisions.append(Decision(PAD_CHANNELS.name, str(sizes_of(graph)), "declined", reason))
        single = in_single(result.graph, spec, target, families)
        decisions += single.decisions
        optimized.append(single.graph)
    padded = padded_dims(graphs, lambda graph: recognised(graph, recipe.policy, target, spec.precision))
    return _Optimized([with_counts(graph, padded) for graph in optimized], padded.dims, decisions)


class _Used:
    """Gathers the problems of an engine's steps, and says where the kernel of each came from."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._found: dict[str, UsedProblem] = {}

    def decisions(
        self, space: SearchSpace, steps: Sequence[ScheduledStep], winners: Winners, target: Target
    ) -> list[Decision]:
        """One for each problem of a batch's steps; one in all where nothing was measured for a GPU."""
        batch, source = str(sizes_of(space.graph)), self._selection.source
        by_problem: dict[str, list[ScheduledStep]] = {}
        for step in steps:
            if not step.view:
                by_problem.setdefault(step.problem.digest, []).append(step)
        found = []
        for digest, same in by_problem.items():
            problem, candidate = same[0].problem, same[0].candidate
            winner = winners.get(problem)
            measured = winner is not None and winner.candidate == candidate
            places = tuple(f"{batch}: {step.name}" for step in same)
            before = self._found[digest].occurs if digest in self._found else ()
            self._found[digest] = UsedProblem(digest, describe_problem(problem), (*before, *places), measured)
            subject = places[0] + (f" and {len(same) - 1} more" if len(same) > 1 else "")
            reason = f"measured {winner.seconds * 1e6:.2f} us, {source}" if winner and measured else ""
            found.append(Decision("tuning", subject, f"took {candidate}", reason or f"predicted: not in {source}"))
        if self._selection != PREDICTED:
            return found
        if not target.tuned:
            return []
        return [Decision("tuning", batch, "chose kernels by prediction", "nothing was measured for this engine")]

    def problems(self) -> tuple[UsedProblem, ...]:
        return tuple(self._found[digest] for digest in sorted(self._found))


def _check_bytes(space: SearchSpace, arena: Arena) -> None:
    """Raises BoltError where a context's memory, with ports of its own, could not be counted."""
    ports = sum(Operand(space.graph.type(name).shape, format).nbytes for name, format in (*space.fixed, *space.wanted))
    if arena.nbytes + ports > MOST_BYTES:
        message = f"{sizes_of(space.graph)} takes {arena.nbytes + ports} bytes, which 63 bits cannot count"
        raise BoltError([Diagnostic("model-too-large", message, hint="bind smaller batches and dimensions")])


def _arena_decision(space: SearchSpace, arena: Arena) -> Decision:
    buffers = len({offset for offset in arena.offsets if offset is not None})
    reason = (
        f"{arena.nbytes} bytes over {many(buffers, 'place')}; {arena.live_peak} bytes are alive at once at the peak"
    )
    return Decision("memory", str(sizes_of(space.graph)), "planned the arena", reason)


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


def _batch_plan(
    space: SearchSpace, ordered: Schedule, arena: Arena, weights: WeightTable, spans: Sequence[MicroBatchSpan]
) -> BatchPlan:
    graph = space.graph

    def placed(tensor: ScheduledTensor, span: MicroBatchSpan | None) -> StepTensor:
        storage, offset = ordered.storages[tensor.storage], arena.offsets[tensor.storage]
        if storage.weight is not None and storage.dtype is not None:
            location = Location("weight", weights.index(graph, storage.weight, storage.dtype))
        elif offset is not None:
            location = Location("arena", offset + tensor.offset)
        else:
            location = Location(storage.kind, storage.at, tensor.offset)
        parts = None
        if span is not None and storage.weight is None:
            begin = arena.held[tensor.storage]
            parts = Parts(storage.nbytes // span.parts, None if begin is None else begin + tensor.offset)
        return StepTensor(tensor.value, tensor.operand, location, tensor.onnx, tensor.pitch, parts)

    steps = []
    for index, step in enumerate(ordered.steps):
        span = next((each for each in spans if each.first <= index <= each.last), None)
        inputs = tuple(placed(tensor, span) for tensor in step.inputs)
        outputs = tuple(placed(tensor, span) for tensor in step.outputs)
        steps.append(
            Step(index, step.name, step.covers, step.problem, step.candidate, inputs, outputs, step.after, step.view)
        )
    ports = [
        tuple(Port(name, Operand(graph.type(name).shape, format)) for name, format in border)
        for border in (space.fixed, space.wanted)
    ]
    return BatchPlan(
        graph.batch, ports[0], ports[1], tuple(steps), arena.nbytes, arena.live_peak, graph.dims, tuple(spans),
        arena.slab_bytes,
    )  # fmt: skip
