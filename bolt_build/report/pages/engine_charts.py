"""Charts of what is known of engines: a group a batch of a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bolt_build.graph.ir import Graph
from bolt_build.report.explained.explainer import explain
from bolt_build.report.pages.chart import Chart, Group, graph_group, plan_group
from bolt_build.sizes import Sizes
from bolt_build.workflows.evidence import Evidence


def plan_chart(engines: Sequence[Evidence], batch: int | None = None) -> Chart:
    """The steps of every batch, or of one, where the engine has it."""
    groups = []
    for number, evidence in enumerate(engines):
        plan = evidence.engine.plan
        for steps, explained in zip(plan.plans, explain(evidence).batches, strict=True):
            if batch in (None, steps.batch):
                title = f"{plan.name} for {plan.target} in {plan.precision}, {steps.sizes}"
                groups.append(plan_group(f"p{number}b{steps.sizes.key}", title, steps, explained))
    return Chart(tuple(groups))


def graph_groups(
    engines: Sequence[Evidence], batch: int | None = None, imported: Callable[[Sizes], Graph] | None = None,
    first: int = 0,
) -> tuple[Group, ...]:  # fmt: skip
    """The graph of each engine's first batch, or of `batch` where it has that: as optimised, or, where `imported` gives
    it, as the model has it. Kernels are those of the steps that compute the nodes. Groups are numbered from `first`."""
    groups = []
    for number, evidence in enumerate(engines, first):
        plan, batches = evidence.engine.plan, [each.batch for each in evidence.engine.plan.plans]
        if batch is not None and batch not in batches:
            continue
        at = 0 if batch is None else batches.index(batch)
        graph = evidence.engine.graphs[at] if imported is None else imported(plan.plans[at].sizes)
        stage = "as optimised" if imported is None else "as imported"
        title = f"{plan.name} for {plan.target} in {plan.precision}, {plan.plans[at].sizes}, {stage}"
        groups.append(graph_group(f"g{number}", title, graph, explain(evidence).batches[at]))
    return tuple(groups)
