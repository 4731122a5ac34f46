"""Regions that wait for what others make of their own values are refused, and no two of a cover wait for each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from planner_checks import graph
from planner_fakes import HOST_TARGET, ROW, SPEC, Fake, recipe

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, Refusal
from bolt_build.graph.ir import Graph, Node
from bolt_build.planner.resolve import resolve
from bolt_build.planner.schedule import schedule
from bolt_build.planner.space import SearchSpace, search_space
from bolt_build.targets import Target


@dataclass(frozen=True)
class Keeping(Fake):
    """Computes pairs of nodes together as well, for others what lies between: faster than both apart. `pairs` are names
    of the first and of the second."""

    name: str = "keeping"
    pairs: tuple[tuple[str, str], ...] = ()
    conversion: float | None = None

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        alone = self._alternative(graph, node, target, precision, ROW)
        found = [alone]
        for first, second in self.pairs:
            if first == node.name:
                behind = self._alternative(
                    graph, next(each for each in graph.nodes if each.name == second), target, precision, ROW
                )
                steps = (*alone.steps, *behind.steps)
                found.append(replace(alone, region=(first, second), steps=steps, seconds=1e-7))
        return tuple(found), ()


def space_of(text: str, *pairs: tuple[str, str]) -> SearchSpace:
    return search_space(graph(text), recipe(), SPEC, HOST_TARGET, (Keeping(pairs=pairs),))


def regions(space: SearchSpace) -> list[tuple[str, ...]]:
    """Of the cover, whose steps have an order."""
    cover = resolve(space)
    assert len(schedule(space, cover, HOST_TARGET).steps) == len(space.graph.nodes)
    return [each.region for each in cover.alternatives]


AROUND = """
    graph g batch=1 (%x: f32[1,8]) -> (%y) {
      %a = relu(%x) // "a"
      %b = tanh(%a) // "b"
      %c = neg(%b) // "c"
      %y = add(%a, %c) // "y"
    }"""


def test_a_kernel_that_reads_what_is_made_of_its_own_values_is_refused() -> None:
    space = space_of(AROUND, ("a", "y"))
    assert space.refusals == (
        Refusal("keeping", "a, y", "'y' reads 'c', which is made of 'a' outside of the kernel"),
    )  # fmt: skip
    assert regions(space) == [("a",), ("b",), ("c",), ("y",)]


BESIDE = """
    graph g batch=1 (%x: f32[1,8]) -> (%c, %d) {
      %a = relu(%x) // "a"
      %b = tanh(%x) // "b"
      %c = add(%a, %b) // "c"
      %d = sub(%b, %a) // "d"
    }"""


def test_what_others_make_of_its_values_behind_it_stops_nothing() -> None:
    space = space_of(BESIDE, ("a", "c"))
    assert space.refusals == ()
    assert regions(space) == [("a", "c"), ("b",), ("d",)]


@pytest.mark.parametrize("pairs", [(("a", "c"), ("b", "d")), (("b", "d"), ("a", "c"))])
def test_of_two_kernels_that_wait_for_each_other_one_is_left_out(pairs: tuple[tuple[str, str], ...]) -> None:
    space = space_of(BESIDE, *pairs)
    assert regions(space) == [("a",), ("b", "d"), ("c",)]
    declined, chosen = resolve(space).decisions
    assert (declined.stage, declined.subject, declined.action) == ("resolve", "batch 1: 'a' and 'c'", "declined")
    assert declined.reason == "a kernel of it and one of 'b' and 'd' would wait for each other"
    assert chosen.action == "chose the cheapest cover"
