"""A family that computes matrix products and convolutions one by one, or two in one kernel, in the time it is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner_fakes import AS_MODEL, ROW, Fake, recipe

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, ProposedStep, Refusal
from bolt_build.families.common.chains import chained
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.patterns.chains import chain_from
from bolt_build.schema.recipe import FusionPolicy, LayerSpec, Policy, Recipe
from bolt_build.targets import Target

CHAIN_ON_H200 = """
    graph g batch=32 (%x: f32[32,64,56,56]) -> (%z) {
      const %w: f32[64,64,3,3] #
      const %b: f32[64] #
      const %v: f32[64,64,1,1] #
      const %c: f32[64] #
      %y = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] | relu // "/3x3"
      %z = conv(%y, %v, %c) | relu // "/1x1"
    }"""


@dataclass(frozen=True)
class Joining(Fake):
    """Matrix products one by one in `apart` seconds each, and two of them in `together`."""

    name: str = "joining"
    together: float = 1.5e-6
    apart: float = 1e-6
    joins: bool = True
    conversion: float | None = None

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        alone = replace(self._alternative(graph, node, target, precision, ROW), seconds=self.apart)
        chain = chain_from(graph, node) if self.joins else None
        if chain is None:
            return (alone,), ()
        if chain.obstacle is not None:
            return (alone,), (Refusal(self.name, ", ".join(chain.region), chain.obstacle),)
        first = alone.steps[0].problem
        second = self._alternative(graph, chain.second, target, precision, ROW).steps[0].problem
        names = (*node.inputs, *chain.second.inputs[1:])
        step = ProposedStep(chained(first, second), names, chain.second.outputs)
        joint = Alternative(chain.region, self.name, (step,), self.together, (first, second))
        return (alone, joint), ()


def with_policy(persistent: str = "auto", layers: tuple[LayerSpec, ...] = ()) -> Recipe:
    return replace(recipe(AS_MODEL, layers), policy=Policy(FusionPolicy(True, persistent)))
