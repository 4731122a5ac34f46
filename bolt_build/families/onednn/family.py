"""The oneDNN family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
    TensorFormat,
)
from bolt_build.families.common.cost import roofline
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.refusals import refuse_unoffered
from bolt_build.families.onednn.kernels import RULES
from bolt_build.graph.ir import Graph, Node
from bolt_build.targets import Target


class OneDnn:
    """`Family` over `RULES`: channels-last convolutions and pooling, row-major products, with fused post-ops."""

    name = "onednn"

    @property
    def include_dir(self) -> Path:
        return Path(__file__).parent / "include"

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(Path(__file__).parent / "src" / f"{unit}.cpp" for unit in ("operators", "primitive"))

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        rule = RULES.get(type(node.op))
        if rule is None:
            return (), (Refusal(self.name, node.name, f"{node.op.kind} is left to other families"),)
        found: list[Alternative] = []
        reasons: list[str] = []
        inputs = tuple(graph.type(name) for name in node.inputs)
        for layouts, to in rule.layouts(node, inputs, graph.type(node.outputs[0])):
            problem = problem_of(graph, node, target, precision, layouts, to)
            reason = rule.refuse(problem)
            if reason is not None:
                reasons.append(reason)
                continue
            step = ProposedStep(problem, node.inputs, node.outputs, rule.shares(problem, node.inputs))
            found.append(Alternative((node.name,), self.name, (step,), roofline(problem, target, rule.efficiency)))
        return tuple(found), tuple(Refusal(self.name, node.name, reason) for reason in dict.fromkeys(reasons))

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        """None: oneDNN's reorders measure no faster than the portable conversions."""
        return None

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        rule = RULES.get(type(problem.op))
        what = problem.op.kind
        reason = f"{what} is left to other families" if rule is None else rule.refuse(problem)
        if rule is None or reason is not None:
            return (), (Refusal(self.name, what, str(reason)),)
        return (Candidate(self.name, (("primitive", rule.algorithm),)),), ()

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """None: a primitive has no settings."""
        return ()

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return roofline(problem, target, RULES[type(problem.op)].efficiency)

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """The problem's own: what oneDNN pads inside its blocked weights is not known here."""
        return Expense(problem.nbytes, problem.flops)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        return refuse_unoffered(self, problem, candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        return RULES[type(problem.op)].emit(problem, at)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """None: all of it is in headers."""
        return ()
