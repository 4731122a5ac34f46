"""What one family proposes for one layer on a GPU: its only problem, or why there is none."""

from __future__ import annotations

from families_harness import Layer, graph_with

from bolt_build.families.base import Family, KernelProblem
from bolt_build.targets import Target


def one_problem(family: Family, layer: Layer, target: Target) -> KernelProblem:
    """The problem of a layer that the family takes by itself, reading input 0 with rows that may lie apart."""
    graph, node = graph_with(layer)
    ((alternative,), refused) = family.propose(graph, node, target, layer.precision)
    assert refused == ()
    assert alternative.region == ("layer",)
    (step,) = alternative.steps
    assert step.pitched == (0,)
    return step.problem


def refusals(family: Family, layer: Layer, target: Target) -> set[str]:
    """The reasons for which it does not take a layer."""
    graph, node = graph_with(layer)
    alternatives, refused = family.propose(graph, node, target, layer.precision)
    assert alternatives == ()
    return {refusal.reason for refusal in refused}
