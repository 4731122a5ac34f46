"""Charts of what is known of engines: a group a batch of a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bolt_build.graph.ir import Graph
from bolt_build.report.explained.explainer import explain
from bolt_build.report.pages.chart import Chart, Group, graph_group, plan_group
from bolt_build.sizes import Dims, Sizes
from bolt_build.workflows.evidence import Evidence


def plan_chart(engines: Sequence[Evidence], batch: int | None = None, only: Dims = ()) -> Chart:
    """The steps of every batch and extent, or of those that are asked for, where the engine has them."""
    groups = []
    for number, evidence in enumerate(engines):
        plan = evidence.engine.plan
        for steps, explained in zip(plan.plans, explain(evidence).batches, strict=True):
            if steps.sizes.is_of(batch, only):
                title = f"{plan.name} for {plan.target} in {plan.precision}, {steps.sizes}"
                groups.append(plan_group(f"p{number}b{steps.sizes.key}", title, steps, explained))
    return Chart(tuple(groups))


def graph_groups(
    engines: Sequence[Evidence], batch: int | None = None, imported: Callable[[Sizes], Graph] | None = None,
    first: int = 0, only: Dims = (),
) -> tuple[Group, ...]:  # fmt: skip
    """The graph of each engine's first batch and extents, or of those that are asked for where it has them: as
    optimised, or, where `imported` gives it, as the model has it. Kernels are those of the steps that compute the
    nodes. Groups are numbered from `first`."""
    groups = []
    for number, evidence in enumerate(engines, first):
        plan = evidence.engine.plan
        at = next((at for at, each in enumerate(plan.plans) if each.sizes.is_of(batch, only)), None)
        if at is None:
            continue
        graph = evidence.engine.graphs[at] if imported is None else imported(plan.plans[at].sizes)
        stage = "as optimised" if imported is None else "as imported"
        title = f"{plan.name} for {plan.target} in {plan.precision}, {plan.plans[at].sizes}, {stage}"
        groups.append(graph_group(f"g{number}", title, graph, explain(evidence).batches[at]))
    return tuple(groups)
