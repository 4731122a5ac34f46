"""Keys and values of a latent are one product's where all heads of keys share elements."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.latent_keys import JOIN_LATENT_KEYS
from bolt_build.targets import target_named

BESIDE = """
          %vt = slice(%r) begin=[0,0,0,4] count=[2,5,3,7] step=[1,1,1,1] // "vt"
"""


def latent(
    order: str = "%own, %all", values: str = "", expanded: str = "[2,3,5,2]", other: str = "%t", shared: str = "2,1,5,2"
) -> Graph:
    """Three heads of four own elements and two shared ones, and of values of seven."""
    first = f"""
          %v = slice({other}) begin=[0,0,0,4] count=[2,3,5,7] step=[1,1,1,1] // "v"
          %vt = transpose(%v) perm=[0,2,1,3] // "vt"
    """
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,8], %s: f32[{shared}], %q: f32[2,5,18], %u: f32[2,3,5,11]) -> (%y) {{
          const %w: f32[8,33]
          %m = matmul(%x, %w) // "m"
          %r = reshape(%m) shape=[2,5,3,11] // "r"
          %t = transpose(%r) perm=[0,2,1,3] // "t"
          %own = slice(%t) begin=[0,0,0,0] count=[2,3,5,4] step=[1,1,1,1] // "own"
          %all = expand(%s) shape={expanded} // "all"
          %k = concat({order}) axis=3 // "k"
          %kt = transpose(%k) perm=[0,2,1,3] // "kt"
          %kr = reshape(%kt) shape=[2,5,18] // "kr"
          {values or first}
          %vr = reshape(%vt) shape=[2,5,21] // "vr"
          %y = attention(%q, %kr, %vr) heads=3 kv_heads=3 scale=0.5 // "y"
        }}""")


@pytest.mark.parametrize(
    ("order", "ahead", "values"), [("%own, %all", False, ""), ("%all, %own", True, ""), ("%own, %all", False, BESIDE)]
)  # fmt: skip
def test_shared_elements_are_columns_of_the_product(order: str, values: str, *, ahead: bool) -> None:
    result = run(JOIN_LATENT_KEYS, latent(order, values))
    reason = "2 elements of keys that all heads share are columns of 'm'"
    assert said(result) == [("y", "made one product of keys and values", reason)]
    assert [line.split("  //")[0].split(" @")[0] for line in body(result.graph).splitlines()] == [
        "%'y.keys = reshape(%s) shape=[2,5,2]",
        "%'y.keys.1 = concat(%x, %'y.keys) axis=2",
        "%'y.keys.2 = matmul(%'y.keys.1, %'w.shared)",
        "%'y.keys.3 = slice(%'y.keys.2) begin=[0,0,0] count=[2,5,18] step=[1,1,1]",
        "%'y.keys.4 = slice(%'y.keys.2) begin=[0,0,18] count=[2,5,21] step=[1,1,1]",
        "%y = attention(%q, %'y.keys.3, %'y.keys.4) heads=3 kv_heads=3 scale=0.5",
    ]
    weight = result.graph.constant("w.shared")
    assert weight is not None
    head = weight[8:, :18].reshape(2, 3, 6)
    at = 0 if ahead else 4
    np.testing.assert_array_equal(head[:, 1, at : at + 2], np.eye(2))
    assert not weight[8:, 18:].any()


@pytest.mark.parametrize(
    "before", [latent(other="%u"), latent(expanded="[2,3,5,2]", shared="2,3,5,2")],
    ids=["values of another tensor", "elements that heads do not share"],
)  # fmt: skip
def test_others_stay(before: Graph) -> None:
    assert run(JOIN_LATENT_KEYS, before).graph is before


def test_it_is_for_matrix_instructions_of_half_precision() -> None:
    """The identity costs products, which take less time there than moves."""
    assert JOIN_LATENT_KEYS.pays_on is not None
    assert JOIN_LATENT_KEYS.pays_on(target_named("h200"), "bf16")
    assert not JOIN_LATENT_KEYS.pays_on(target_named("h200"), "fp32")
    assert not JOIN_LATENT_KEYS.pays_on(target_named("host"), "fp32")
