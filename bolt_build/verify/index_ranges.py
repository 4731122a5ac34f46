"""Which values an input may have whose elements are indices: those of the smallest axis that they are used for."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.graph.ops.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.roi_align import RoiAlign
from bolt_build.graph.ops.row_sum import NormedRows, RowSum
from bolt_build.graph.ops.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.shape import Cast, Convert
from bolt_build.planner.engine_plan import BatchPlan

_INDICES = 1
"""Which input of gathers and scatters has the indices."""


def index_ranges(plan: BatchPlan) -> dict[str, int]:
    """For each input whose elements reach the indices of a gather or scatter as they are, the least
    extent that they count in."""
    origins: dict[str, frozenset[str]] = {}
    found: dict[str, int] = {}
    for step in plan.steps:
        sources = []
        for tensor in step.inputs:
            given = tensor.location.kind == "input"
            own = frozenset((plan.inputs[tensor.location.at].name,)) if given else frozenset[str]()
            sources.append(own | origins.get(tensor.value, frozenset()))
        uses = _uses(step.problem)
        for index, extent in uses:
            for name in sources[index]:
                found[name] = min(extent, found.get(name, extent))
        if not uses and (step.problem.op.moves or isinstance(step.problem.op, Cast | Convert)):
            origins.update((output.value, frozenset().union(*sources)) for output in step.outputs)
    return found


def _uses(problem: KernelProblem) -> tuple[tuple[int, int], ...]:
    """Which inputs of the problem are indices, each with the least extent that it counts in."""
    op = problem.op
    rows = op.first if isinstance(op, NormedRows) else op
    if isinstance(rows, RowSum):
        return tuple((table + 1, problem.inputs[table].shape[0]) for table in rows.tables)
    if isinstance(op, RoiAlign):
        return ((2, problem.inputs[0].shape[0]),)
    extent = _extent(problem)
    return () if extent is None else ((_INDICES, extent),)


def _extent(problem: KernelProblem) -> int | None:
    """The least extent that indices of the problem count in; None where it has none."""
    data = problem.inputs[0].shape if problem.inputs else ()
    match problem.op:
        case Gather(axis) | GatherElements(axis) | ScatterElements(axis):
            return data[axis]
        case ScatterND():
            return min(data[: problem.inputs[_INDICES].shape[-1]])
        case GatherND(first):
            return min(data[first : first + problem.inputs[_INDICES].shape[-1]])
    return None
