"""Values are multiplied with each of two softmaxes instead of with their difference, and both are attention."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.recognise.share_differences import PART_SHARES

PAIRS = """
    graph g batch=2 (%q: f32[2,5,16], %k: f32[2,5,16], %v: f32[2,5,16], %c: f32[{factor}]) -> (%y{more}) {{
      const %first: i64[] {{0}}
      const %second: i64[] {{1}}
      const %m: f32[{mask}] #
      %qc = reshape(%q) shape=[2,5,4,4]
      %qh = transpose(%qc) perm=[0,2,1,3]
      %kc = reshape(%k) shape=[2,5,4,4]
      %kh = transpose(%kc) perm=[0,2,1,3]
      %vc = reshape(%v) shape=[2,5,2,8]
      %vh = transpose(%vc) perm=[0,2,1,3]
      %s = matmul(%qh, %kh) transpose_b=true
      %t = add(%s, %m)
      %p = softmax(%t) axis=3
      {parts}
      %r = mul(%b, %c)
      %d = {difference} // "d"
      %y = matmul(%d, %vh) // "y"
    }}"""
OF_PAIRS = """%h = reshape(%p) shape=[2,2,2,5,5]
      %a = gather(%h, %first) axis=2
      %b = gather(%h, %second) axis=2"""
HALVES = """%a = slice(%p) begin=[0,0,0,0] count=[2,2,5,5] step=[1,1,1,1]
      %b = slice(%p) begin=[0,2,0,0] count=[2,2,5,5] step=[1,1,1,1]"""


def differential(
    parts: str = OF_PAIRS, factor: str = "1", mask: str = "5,5", difference: str = "sub(%a, %r)", more: str = ""
) -> Graph:
    return graph(PAIRS.format(parts=parts, factor=factor, mask=mask, difference=difference, more=more))


@pytest.mark.parametrize("parts", [OF_PAIRS, HALVES], ids=["pairs", "halves"])
@pytest.mark.parametrize("factor", ["1", "2,1,1", "2,2,5,1"])
@pytest.mark.parametrize("mask", ["5,5", "4,5,5", "2,1,1,5"])
def test_both_softmaxes_become_attention(parts: str, factor: str, mask: str) -> None:
    before = differential(parts, factor, mask)
    result = run(PART_SHARES, before)
    same_values(before, result.graph)
    assert said(result) == [("y", "multiplied with both softmaxes", "'d' is of what they leave")]
    after = run(RECOGNISE_ATTENTION, result.graph).graph
    same_values(before, after)
    assert [x.op.kind for x in after.nodes if x.op.kind in ("attention", "softmax", "matmul")] == ["attention"] * 2


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (differential(more=", %p"), "'p' is an output"),
        (differential(difference="add(%a, %r)", more=", %h"), "'h' is an output"),
    ],
)
def test_scores_that_others_read_stay(before: Graph, reason: str) -> None:
    result = run(PART_SHARES, before)
    assert result.graph == before
    ((subject, action, why),) = said(result)
    assert (subject, action) == ("y", "declined")
    assert reason in why


@pytest.mark.parametrize(
    "before",
    [differential(factor="5"), differential(factor="5,5"), differential(more=", %d")],
    ids=["columns differ", "shares differ", "the difference is an output"],
)
def test_other_differences_stay(before: Graph) -> None:
    assert run(PART_SHARES, before).graph == before


TWO = """
    graph g batch=2 (%a: f32[{first}], %b: f32[{second}], %v: {values}[2,4,3]) -> (%y) {{
      %p = softmax(%a) axis=2
      %r = softmax(%b) axis={axis}
      {between}
      %y = matmul(%d, %v) // "y"
    }}"""


def two(second: str = "2,4,4", axis: int = 2, values: str = "f32", between: str = "%d = sub(%p, %r)") -> Graph:
    return graph(TWO.format(first="2,4,4", second=second, axis=axis, values=values, between=between))


@pytest.mark.parametrize(
    "before",
    [
        two("2,4,1"),
        two("4", 0),
        two(values="i32", between="%l = cast(%p) to=i32\n%m = cast(%r) to=i32\n%d = sub(%l, %m)"),
    ],
    ids=["one column", "no rows", "shares become integers"],
)
def test_what_is_no_softmax_of_the_same_columns_stays(before: Graph) -> None:
    assert run(PART_SHARES, before).graph == before


def test_shares_and_factors_are_cast_as_they_were() -> None:
    between = "%m = mul(%r, %c)\n%l = cast(%p) to=f16\n%n = cast(%m) to=f16\n%d = sub(%l, %n)"
    before = two(values="f16", between="const %c: f32[1] {0.5}\n" + between)
    result = PART_SHARES.run(before, POLICY)
    same_values(before, result.graph, tolerance=2e-3)
    assert said(result) == [("y", "multiplied with both softmaxes", "'d' is of what they leave")]


SOFTMAX_OF_SOFTMAX = """
    graph g batch=2 (%a: f32[2,4,3,3], %v: f32[2,2,3,3]) -> (%y) {{
      %i = softmax(%a) axis={axis}
      %p = softmax(%i) axis=3
      %l = slice(%p) begin=[0,0,0,0] count=[2,2,3,3] step=[1,1,1,1]
      %r = slice(%p) begin=[0,2,0,0] count=[2,2,3,3] step=[1,1,1,1]
      %d = sub(%l, %r) // "d"
      %y = matmul(%d, %v) // "y"
    }}"""


@pytest.mark.parametrize("axis", range(4))
def test_heads_are_selected_behind_a_softmax_across_them(axis: int) -> None:
    before = graph(SOFTMAX_OF_SOFTMAX.format(axis=axis))
    assert said(run(PART_SHARES, before)) == [("y", "multiplied with both softmaxes", "'d' is of what they leave")]
