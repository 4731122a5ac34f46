"""Proposes one kernel for two products that follow each other, or for a convolution and the pooling behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
)
from bolt_build.families.chains import chained
from bolt_build.families.cutlass import pairs, pooled
from bolt_build.families.stages import may_share
from bolt_build.graph.chains import Link, link
from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.chain import Chain
from bolt_build.graph.ops.pool import Pool
from bolt_build.targets import Target


class Way(Protocol):
    """A kind of kernels for chained problems: a module."""

    def candidates(
        self, problem: KernelProblem, target: Target
    ) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]: ...
    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float: ...
    def expense(self, problem: KernelProblem) -> Expense: ...
    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode: ...
    def unit_text(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str: ...
    def of_warpgroups(self, candidate: Candidate) -> bool: ...


def way(problem: KernelProblem) -> Way:
    """What computes a chained problem."""
    op = problem.op
    assert isinstance(op, Chain)
    return pooled if isinstance(op.second, Pool) else pairs


def propose(
    graph: Graph, linked: Link, firsts: Sequence[KernelProblem], second: KernelProblem, target: Target
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """Both in one kernel for each form of the first's problem; and why there is none.

    Three nodes one behind the other are two pairs that overlap; that one kernel computes all three is refused.
    """
    what = ", ".join(linked.region)
    if linked.obstacle is not None:
        return (), (Refusal("cutlass", what, linked.obstacle),)
    found: list[Alternative] = []
    reasons: list[str] = []
    names = (*linked.first.inputs, *linked.second.inputs[1:])
    for first in firsts:
        problem = chained(first, second)
        candidates, refusals = way(problem).candidates(problem, target)
        if candidates:
            step = ProposedStep(problem, names, linked.second.outputs, may_share(problem, names, ()))
            seconds = way(problem).predict(problem, candidates[0], target)
            found.append(Alternative(linked.region, "cutlass", (step,), seconds, (first, second)))
        else:
            reasons += [refusal.reason for refusal in refusals]
    refused = [Refusal("cutlass", what, reason) for reason in dict.fromkeys(reasons)]
    behind = link(graph, linked.second)
    if found and behind is not None and behind.obstacle is None:
        reason = "one kernel computes two products, not three"
        if isinstance(behind.second.op, Pool):
            reason = "one kernel computes two products, not a pooling behind them as well"
        refused.append(Refusal("cutlass", f"{what}, {behind.second.name}", reason))
    return tuple(found), tuple(refused)
