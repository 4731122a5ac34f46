"""Which values an input may have whose elements are indices: those of the smallest axis that they are used for."""

from __future__ import annotations

from bolt_build.graph.ops.moves.shape import Cast, Convert
from bolt_build.planner.engine_plan import BatchPlan


def index_ranges(plan: BatchPlan) -> dict[str, int]:
    """For each input whose elements reach the indices of an operator as they are, the least extent that they count
    in."""
    origins: dict[str, frozenset[str]] = {}
    found: dict[str, int] = {}
    for step in plan.steps:
        sources = []
        for tensor in step.inputs:
            given = tensor.location.kind == "input"
            own = frozenset((plan.inputs[tensor.location.at].name,)) if given else frozenset[str]()
            sources.append(own | origins.get(tensor.value, frozenset()))
        uses = step.problem.op.indices([operand.type for operand in step.problem.inputs])
        for index, extent in uses.items():
            for name in sources[index]:
                found[name] = min(extent, found.get(name, extent))
        if not uses and (step.problem.op.moves or isinstance(step.problem.op, Cast | Convert)):
            origins.update((output.value, frozenset().union(*sources)) for output in step.outputs)
    return found
