"""Queries, keys and values of one input become one product, whose rows packed attention reads."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.projections import MERGE_PROJECTIONS

ATTENTION = "attention(%q, %k, %v) heads=2 kv_heads=2 scale=0.5 causal=false packed=false safe=false"


def projected(
    products: str, attention: str = ATTENTION, outputs: str = "(%y)", inputs: str = "%x: f32[2,5,6]"
) -> Graph:
    """A graph with these products of %x, and attention over %q, %k and %v."""
    made = "\n".join(f'{line.strip()} // "{line.split()[0][1:]}"' for line in products.strip().splitlines())
    return graph(f"""
        graph g batch=2 ({inputs}) -> {outputs} {{
          const %wq: f32[6,8]
          const %wk: f32[6,8]
          const %wv: f32[6,8]
          const %narrow: f32[6,4]
          const %wide: f32[6,12]
          const %turned: f32[8,6]
          const %bq: f32[8]
          const %bv: f32[8]
          {made}
          %y = {attention} // "attend"
        }}""")


THREE = """
    %q = matmul(%x, %wq, %bq)
    %k = matmul(%x, %wk)
    %v = matmul(%x, %wv, %bv)
"""


def test_three_products_become_one_of_all_their_columns() -> None:
    result = run(MERGE_PROJECTIONS, projected(THREE))
    assert body(result.graph).splitlines() == [
        """%'attend.projections = matmul(%x, %'wq.projections, %'bq.projections)  // "q", "k", "v\"""",
        """%y = attention(%'attend.projections) heads=2 kv_heads=2 scale=0.5 packed=true  // "attend\"""",
    ]
    assert result.graph.type("wq.projections").shape == (6, 24)
    assert said(result) == [("attend", "merged", "'q', 'k', 'v' into the product 'q'")]


def test_without_any_bias_there_is_none() -> None:
    result = run(MERGE_PROJECTIONS, projected(THREE.replace(", %bq", "").replace(", %bv", "")))
    assert "matmul(%x, %'wq.projections)" in body(result.graph)


def test_weights_may_lie_either_way_round() -> None:
    result = run(MERGE_PROJECTIONS, projected(THREE.replace("(%x, %wk)", "(%x, %turned) transpose_b=true")))
    assert "matmul(%x, %'wq.projections, %'bq.projections)  //" in body(result.graph)


def test_a_mask_and_fewer_heads_of_keys_stay() -> None:
    narrow = """
        %q = matmul(%x, %wq)
        %k = matmul(%x, %narrow)
        %v = matmul(%x, %narrow)
    """
    before = projected(
        narrow, "attention(%q, %k, %v, %mask) heads=2 kv_heads=1 scale=0.5 causal=true packed=false safe=false",
        inputs="%x: f32[2,5,6], %mask: f32[2,1,1,5]",
    )  # fmt: skip
    result = run(MERGE_PROJECTIONS, before)
    assert "packed=true" in body(result.graph)


def test_products_of_matrices_keep_the_reshape_behind_them() -> None:
    rows = """
        %m = reshape(%x) shape=[10,6]
        %qm = matmul(%m, %wq)
        %q = reshape(%qm) shape=[2,5,8]
        %km = matmul(%m, %wk)
        %k = reshape(%km) shape=[2,5,8]
        %vm = matmul(%m, %wv)
        %v = reshape(%vm) shape=[2,5,8]
    """
    result = run(MERGE_PROJECTIONS, projected(rows))
    assert body(result.graph).splitlines()[1:3] == [
        """%'attend.projections = matmul(%m, %'wq.projections)  // "qm", "q", "km", "k", "vm", "v\"""",
        "%'attend.rows = reshape(%'attend.projections) shape=[2,5,24] @q",
    ]


@pytest.mark.parametrize(
    ("products", "outputs", "why"),
    [
        (THREE, "(%y, %k)", "'k' is a graph output"),
        (THREE.replace("%v = matmul(%x,", "%z = relu(%x)\n%v = matmul(%z,"), "(%y)",
         "'q' and 'v' read different tensors"),
        (THREE.replace("%v = matmul(%x, %wv, %bv)", "%u = matmul(%x, %wv)\n%v = tanh(%u)"), "(%y)",
         "'v' is no product of rows with a weight"),
        (THREE.replace("%k = matmul(%x, %wk)", "%w = relu(%wk)\n%k = matmul(%x, %w)"), "(%y)",
         "the weight of 'k' is not constant"),
        (THREE + "%z = relu(%q)", "(%y, %z)", "'q' is read by 2 nodes"),
    ],
)  # fmt: skip
def test_it_is_declined_with_a_reason(products: str, outputs: str, why: str) -> None:
    before = projected(products, outputs=outputs)
    result = run(MERGE_PROJECTIONS, before)
    assert result.graph == before
    assert said(result) == [("attend", "declined", why)]


def test_keys_and_values_that_are_one_tensor_are_declined() -> None:
    before = projected(
        "%q = matmul(%x, %wq)\n%k = matmul(%x, %wk)",
        "attention(%q, %k, %k) heads=2 kv_heads=2 scale=0.5 causal=false packed=false safe=false",
    )
    assert said(run(MERGE_PROJECTIONS, before)) == [("attend", "declined", "'attend' reads 'k' twice")]


def test_values_of_another_length_are_declined() -> None:
    before = projected(
        "%q = matmul(%x, %wq)\n%k = matmul(%x, %wk)\n%v = matmul(%x, %wide)",
        "attention(%q, %k, %v) heads=2 kv_heads=2 scale=0.5 causal=false packed=false safe=false",
    )
    why = "heads have 4 elements in queries and keys, 6 in values"
    assert said(run(MERGE_PROJECTIONS, before)) == [("attend", "declined", why)]
