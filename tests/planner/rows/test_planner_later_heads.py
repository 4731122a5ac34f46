"""What is computed row by row comes in front of what moves heads, or behind it where a product of two tensors is."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.later_heads import MOVE_HEADS_LATER

MOVED = """
    graph g batch=2 (%x: f32[2,5,3,4], %z: f32[2,5,3,4], %f: f32[{factor}], %s: f32[4]) -> (%y{more}) {{
      const %w: f32[3,1,1] #
      %t = transpose(%x) perm=[{perm}] // "t"
      %u = transpose(%z) perm=[{perm}] // "u"
      %n = {node} // "n"
      %y = {reader} // "y"
    }}"""


def moved(
    node: str, factor: str = "3,1,1", perm: str = "0,2,1,3", more: str = "", reader: str = "reshape(%n) shape=[30,4]"
) -> Graph:
    return graph(MOVED.format(node=node, factor=factor, perm=perm, more=more, reader=reader))


@pytest.mark.parametrize(
    "node",
    [
        "tanh(%t)",
        "mul(%t, %f)",
        "sub(%w, %t)",
        "softmax(%t) axis=3",
        "norm(%t, %s) statistic=rms axes=[3] epsilon=1e-05",
        "sub(%t, %u)",
    ],
)
def test_rows_are_computed_before_they_are_moved(node: str) -> None:
    before = moved(node)
    result = run(MOVE_HEADS_LATER, before)
    same_values(before, result.graph)
    assert said(result) == [("n", "computed first", "'t' moves what it leaves")]
    own, move = (next(x for x in result.graph.nodes if x.name == name) for name in ("n", "n.moved"))
    assert result.graph.type(own.outputs[0]).shape == (2, 5, 3, 4)
    assert move.inputs == own.outputs


@pytest.mark.parametrize("scale", ["", "1", "1,1,1,4"])
def test_a_scale_may_have_any_rank(scale: str) -> None:
    before = moved("norm(%t, %f) statistic=rms axes=[3] epsilon=1e-05", scale)
    assert said(run(MOVE_HEADS_LATER, before)) == [("n", "computed first", "'t' moves what it leaves")]


@pytest.mark.parametrize(("factor", "expected"), [("2,3,1,1", "2,1,3,1"), ("5,1", "5,1,1"), ("4", "4"), ("1", "1")])
def test_what_broadcasts_is_turned(factor: str, expected: str) -> None:
    before = moved("mul(%t, %f)", factor)
    after = run(MOVE_HEADS_LATER, before).graph
    same_values(before, after)
    (product,) = (x for x in after.nodes if x.op.kind == "binary")
    shape = after.type(product.inputs[1]).shape
    assert ",".join(map(str, shape)).removeprefix("1,") == expected


@pytest.mark.parametrize(
    "before",
    [
        moved("tanh(%t)", perm="0,3,1,2", reader="reshape(%n) shape=[30,4]"),
        moved("tanh(%t)", more=", %t"),
        moved("softmax(%t) axis=2"),
        moved("mul(%t, %f)", "2,3,5,4"),
        moved("norm(%t) statistic=rms axes=[2,3] epsilon=1e-05"),
    ],
    ids=["elements are moved", "read elsewhere", "across rows", "as large", "several axes"],
)
def test_others_stay(before: Graph) -> None:
    assert run(MOVE_HEADS_LATER, before).graph == before


PRODUCT = """
    graph g batch=2 (%a: f32[2,3,5,6], %b: f32[2,3,6,4], %f: f32[2,3,5,1]) -> (%y) {
      %p = matmul(%a, %b) // "p"
      %n = mul(%p, %f) // "n"
      %y = transpose(%n) perm=[0,2,1,3] // "y"
    }"""


def test_what_a_product_of_two_tensors_leaves_is_moved_first() -> None:
    before = graph(PRODUCT)
    result = run(MOVE_HEADS_LATER, before)
    same_values(before, result.graph)
    assert said(result) == [("n", "computed last", "'y' moves what it reads")]
    (move,) = (x for x in result.graph.nodes if x.op.kind == "transpose" and x.inputs == ("p",))
    assert result.graph.type(move.outputs[0]).shape == (2, 5, 3, 4)


LEFT = """
    graph g batch=2 (%a: f32[2,15,6], %b: f32[2,6,4], %h: f32[]) -> (%y) {
      %p = matmul(%a, %b) // "p"
      %c = reshape(%p) shape=[2,5,3,4]
      %t = transpose(%c) perm=[0,2,1,3] // "t"
      %y = mul(%t, %h) // "y"
    }"""


def test_what_it_leaves_where_it_is_wanted_stays_so() -> None:
    before = graph(LEFT)
    assert run(MOVE_HEADS_LATER, before).graph == before


CUT = """
    graph g batch=2 (%x: f32[2,5,6]) -> (%y) {
      const %w: f32[6,12] #
      const %b: f32[12] #
      %p = matmul(%x, %w) // "p"
      %a = add(%p, %b) // "a"
      %c = reshape(%a) shape=[2,5,3,4] // "c"
      %t = transpose(%c) perm=[0,2,1,3] // "t"
      %y = relu(%t) // "y"
    }"""


def test_an_activation_comes_in_front_of_the_cut_too() -> None:
    before = graph(CUT)
    result = run(MOVE_HEADS_LATER, before)
    same_values(before, result.graph)
    kinds = [x.op.kind for x in result.graph.nodes]
    assert kinds == ["matmul", "binary", "activation", "reshape", "transpose"], body(result.graph)
