"""Elementwise nodes between two transposes that undo each other are computed in front of them."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.carried_choices import CARRY_CHOICES

HEADS = """
    graph g batch=2 (%x: f32[2,5,3,4], %b: bool[{seen}], %f: f32[{factor}]) -> (%y{more}) {{
      const %zero: f32[] {{0}}
      %t = transpose(%x) perm=[0,2,1,3] // "t"
      %w = {node} // "w"
      %z = transpose(%w) perm=[{back}] // "z"
      %y = relu(%z) // "y"
    }}"""


def between(node: str, seen: str = "2,1,5,1", factor: str = "3,1,1", back: str = "0,2,1,3", more: str = "") -> Graph:
    return graph(HEADS.format(node=node, seen=seen, factor=factor, back=back, more=more))


@pytest.mark.parametrize("seen", ["2,1,5,1", "2,1,1,1", "5,1", "1,3,5,1"])
@pytest.mark.parametrize("node", ["where(%b, %t, %zero)", "where(%b, %zero, %t)"])
def test_what_broadcasts_is_turned_instead(seen: str, node: str) -> None:
    before = between(node, seen)
    result = run(CARRY_CHOICES, before)
    same_values(before, result.graph)
    assert said(result) == [("w", "carried", "in front of 't', which 'z' undoes")]
    full = [each for each in result.graph.nodes if each.op.kind == "transpose" and each.inputs[0] == "x"]
    assert full == []


@pytest.mark.parametrize("node", ["mul(%t, %f)", "sub(%f, %t)", "tanh(%t)"])
def test_so_are_functions_of_one_tensor_and_what_broadcasts(node: str) -> None:
    before = between(node)
    after = run(CARRY_CHOICES, before).graph
    same_values(before, after)
    assert "perm=[0,2,1,3]" not in body(after)


@pytest.mark.parametrize(
    "before",
    [
        between("where(%b, %t, %zero)", back="0,1,3,2"),
        between("where(%b, %t, %zero)", more=", %t"),
        between("where(%b, %t, %zero)", more=", %w"),
        between("where(%b, %t, %zero)", seen="2,3,5,4"),
        between("mul(%t, %t)"),
    ],
    ids=["another order", "moved rows are an output", "the choice is one", "as large as the tensor", "read twice"],
)
def test_others_stay(before: Graph) -> None:
    result = run(CARRY_CHOICES, before)
    if "mul(%t, %t)" in body(before):
        same_values(before, result.graph)
        return
    assert result.graph == before
    assert result.decisions == ()
