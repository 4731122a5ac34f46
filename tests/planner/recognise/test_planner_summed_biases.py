"""Biases that are added to scores by rows and columns of an image."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.recognise.summed_biases import SUM_BIASES
from bolt_build.planner.pipeline import optimize

SPLIT, JOINED = "%a = reshape(%s) shape=[4,2,3,2,3]", "%m = reshape(%c) shape=[4,6,6]"
BOTH = f"{SPLIT}\n %b = add(%a, %rows)\n %c = add(%columns, %b)\n {JOINED}"


def scored(masked: str, output: str = "y") -> Graph:
    """Attention over images of two rows of three, whose heads are matrices of the batch, as ViTDet has them."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,6,24], %rows: f32[4,2,3,2,1], %columns: f32[4,2,3,1,3]) -> (%{output}) {{
          const %first: i64[] {{0}}
          const %second: i64[] {{1}}
          const %third: i64[] {{2}}
          const %eighth: f32[] {{0.125}}
          %h = reshape(%x) shape=[2,6,3,2,4]
          %t = transpose(%h) perm=[2,0,3,1,4]
          %f = reshape(%t) shape=[3,4,6,4]
          %q = gather(%f, %first) axis=0
          %k = gather(%f, %second) axis=0
          %v = gather(%f, %third) axis=0
          %w = mul(%q, %eighth)
          %s = matmul(%w, %k) transpose_b=true
          {masked}
          %p = softmax(%m) axis=2
          %o = matmul(%p, %v)
          %y = reshape(%o) shape=[2,2,6,4]
        }}""")


@pytest.mark.parametrize(
    ("masked", "steps"),
    [
        (BOTH, ["add", "reshape", "add"]),
        (f"{SPLIT}\n %c = add(%rows, %a)\n {JOINED}", ["expand", "reshape", "add"]),
    ],
)
def test_what_is_added_is_summed_up_first(masked: str, steps: list[str]) -> None:
    before = scored(masked)
    result = run(SUM_BIASES, before)
    same_values(before, result.graph)
    names = [node.name for node in result.graph.nodes]
    behind = names.index(next(node.name for node in result.graph.nodes if node.op.kind == "softmax"))
    assert [getattr(node.op, "function", node.op.kind) for node in result.graph.nodes[behind - 3 : behind]] == steps
    assert [each[1:] for each in said(result)] == [("added up", "what is added to scores of [6, 6] as [4, 2, 3, 2, 3]")]


def test_so_attention_has_a_mask() -> None:
    before = scored(BOTH)
    after = optimize(before, POLICY).graph
    same_values(before, after)
    (node,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    assert (node.op, node.inputs[0]) == (Attention(2, 2, 0.125, packed=True), "x")
    assert after.type(node.inputs[1]).shape == (2, 2, 6, 6)


@pytest.mark.parametrize(
    ("masked", "output"),
    [
        (f"{SPLIT}\n %c = mul(%a, %rows)\n {JOINED}", "y"),
        ("%a = reshape(%s) shape=[2,2,6,6]\n %c = add(%a, %a)\n %m = reshape(%c) shape=[4,6,6]", "y"),  # no rows
        (f"{SPLIT}\n %b = add(%a, %rows)\n %c = sigmoid(%b)\n {JOINED}", "y"),
    ],
)
def test_scores_stay_split_where_something_else_is_done_to_them(masked: str, output: str) -> None:
    before = scored(masked, output)
    result = run(SUM_BIASES, before)
    assert (result.graph, said(result)) == (before, [])


@pytest.mark.parametrize(
    ("masked", "output", "reason"),
    [
        (BOTH, "b", "'b' is a graph output"),
        (
            BOTH.replace("%s)", "%z)").replace("%a =", "%z = sigmoid(%s)\n %a ="),
            "y",
            "the softmax's argument comes from 'z', which is a sigmoid and neither scales nor masks a product",
        ),
    ],
)
def test_why_biases_are_not_summed_up(masked: str, output: str, reason: str) -> None:
    before = scored(masked, output)
    result = run(SUM_BIASES, before)
    assert (result.graph, said(result)) == (before, [("m", "declined", reason)])
