"""What fakes of kernel families have in common: kernels without settings, which take a microsecond."""

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
    Refusal,
    StepCode,
    StepExpressions,
    TensorFormat,
)
from bolt_build.families.common.refusals import refuse_unoffered
from bolt_build.graph.ir import Graph, Node
from bolt_build.targets import Target


class PlainFamily:
    """`Family` that proposes nothing and emits nothing, but what a subclass adds."""

    name: str = "plain"
    include_dir: Path = Path()
    sources: tuple[Path, ...] = ()

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        return (), ()

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        return None

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        return (), ()

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        return ()

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return 1e-6

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        return Expense(problem.nbytes, problem.flops)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        return refuse_unoffered(self, problem, candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        return StepCode((f"{self.name}/{problem.op.kind}.h",), None, "", "")

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        return ()
