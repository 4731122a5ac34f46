"""Families whose alternatives and kernels are taken at random: those too that are never predicted to be fastest."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, Candidate, Family, KernelProblem, Refusal
from bolt_build.graph.ir import Graph, Node
from bolt_build.targets import Target


class AnyKernel:
    """A family in all but its taste: its predictions are off by a random factor, and the first of its candidates is any
    of them. The same for the same seed."""

    def __init__(self, family: Family, seed: int) -> None:
        self._family, self._seed = family, seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        alternatives, refusals = self._family.propose(graph, node, target, precision)
        return tuple(
            replace(each, seconds=each.seconds * 10 ** self._random(each.region, *_problems(each)).uniform(-3, 3))
            for each in alternatives
        ), refusals

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        found, refusals = self._family.candidates(problem, target)
        shuffled = list(found)
        self._random(problem.digest).shuffle(shuffled)
        return tuple(shuffled), refusals

    def _random(self, *of: object) -> Random:
        return Random(repr((self._seed, self._family.name, *of)))


def _problems(alternative: Alternative) -> tuple[str, ...]:
    return tuple(step.problem.digest for step in alternative.steps)
