"""Proposes one kernel for two products that follow each other."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.families.base import Alternative, KernelProblem, ProposedStep, Refusal
from bolt_build.families.chains import chained
from bolt_build.families.cutlass import pairs
from bolt_build.families.stages import may_share
from bolt_build.graph.chains import Link, link
from bolt_build.graph.ir import Graph
from bolt_build.targets import Target


def propose(
    graph: Graph, linked: Link, firsts: Sequence[KernelProblem], second: KernelProblem, target: Target
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The pair for each form of the first product's problem; and why there is none.

    Three products one behind the other are two pairs that overlap; that one kernel computes all three is refused.
    """
    what = ", ".join(linked.region)
    if linked.obstacle is not None:
        return (), (Refusal("cutlass", what, linked.obstacle),)
    found: list[Alternative] = []
    reasons: list[str] = []
    names = (*linked.first.inputs, *linked.second.inputs[1:])
    for first in firsts:
        problem = chained(first, second)
        ranked, refusals = pairs.ranked(problem, target)
        if ranked:
            step = ProposedStep(problem, names, linked.second.outputs, may_share(problem, names, ()))
            found.append(Alternative(linked.region, "cutlass", (step,), ranked[0][0], (first, second)))
        else:
            reasons += [refusal.reason for refusal in refusals]
    refused = [Refusal("cutlass", what, reason) for reason in dict.fromkeys(reasons)]
    behind = link(graph, linked.second)
    if found and behind is not None and behind.obstacle is None:
        refused.append(
            Refusal("cutlass", f"{what}, {behind.second.name}", "one kernel computes two products, not three")
        )
    return tuple(found), tuple(refused)
