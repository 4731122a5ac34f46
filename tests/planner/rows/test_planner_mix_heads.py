"""Heads that a small matrix mixes become planes of a convolution."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.rows.mix_heads import MIX_HEADS


def mixed(product: str = "matmul(%t, %w, %b)", last: str = "0,3,1,2", heads: int = 4, w: str = "4,6") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,{heads},3,5]) -> (%y) {{
          const %w: f32[{w}]
          const %b: f32[{w.split(",")[-1]}]
          %t = transpose(%x) perm=[0,2,3,1] // "t"
          %m = {product} // "m"
          %y = transpose(%m) perm=[{last}] // "y"
        }}""")


@pytest.mark.parametrize(
    "before", [mixed(), mixed("matmul(%t, %w)"), mixed("matmul(%t, %w) transpose_b=true", heads=6)]
)
def test_heads_are_mixed_where_they_lie(before: Graph) -> None:
    result = run(MIX_HEADS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["conv"]
    assert said(result) == [("m", "made a convolution", "it mixes planes where they lie")]
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
    np.testing.assert_allclose(evaluate(result.graph, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-6)


def test_what_is_turned_in_another_way_stays() -> None:
    before = mixed(last="0,3,2,1")
    result = run(MIX_HEADS, before)
    assert (result.graph, said(result)) == (before, [])


def test_more_heads_than_kernels_of_few_planes_have_stay() -> None:
    before = mixed(heads=17, w="17,6")
    result = run(MIX_HEADS, before)
    reason = "it mixes 17 by 6 heads, and kernels of few planes take 16 at most"
    assert (result.graph, said(result)) == (before, [("m", "declined", reason)])
