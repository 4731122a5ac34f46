"""What kinds of the CUTLASS family offer for a problem, which planning asks of every node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import graph_with
from gpu_products import conv

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.cutlass import offering
from bolt_build.families.cutlass.problems.node_problems import alone
from bolt_build.families.cutlass.registry import kinds_for
from bolt_build.targets import Target, target_named


def test_kinds_are_asked_once_for_problems_that_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[KernelProblem] = []

    def counting(problem: KernelProblem) -> tuple[object, ...]:
        asked.append(problem)
        return kinds_for(problem)

    target: Target = target_named("h200")
    graph, node = graph_with(conv("asked-once", (3, 24, 17, 5), 40, (3, 3)))
    problem = alone(graph, node, target, DType.F16)
    monkeypatch.setattr(offering, "kinds_for", counting)
    first = offering.offered(problem, target)
    once = len(asked)
    assert once
    assert offering.offered(replace(problem), target) == first
    assert offering.reads_apart(replace(problem), target) == (0,)
    assert len(asked) == once
