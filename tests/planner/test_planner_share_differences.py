"""Values are multiplied with each of two softmaxes instead of with their difference, and both are attention."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values

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
