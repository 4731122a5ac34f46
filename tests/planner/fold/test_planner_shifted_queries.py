"""Queries to which several constants are added are one product with keys and values."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold.shifted_queries import SHIFT_QUERIES
from bolt_build.planner.passes.rows.shared_projections import SHARE_PROJECTIONS

SHIFTED = """
    %flat = reshape(%x) shape=[10,6]
    %rows = matmul(%flat, %wq, %bq)
    %heads = reshape(%rows) shape=[2,5,2,8]
    %content = add(%heads, %u)
    %place = add(%t, %heads)
    %q = reshape(%content) shape=[2,5,16]
"""

TURNED = """
    %rows = matmul(%x, %wq, %bq)
    %apart = reshape(%rows) shape=[2,5,2,8]
    %heads = transpose(%apart) perm=[0,2,1,3]
    %content = add(%heads, %front)
    %place = add(%heads, %behind)
    %back = transpose(%content) perm=[0,2,1,3]
    %q = reshape(%back) shape=[2,5,16]
"""


def shifted(lines: str = SHIFTED, outputs: str = "(%y, %place)") -> Graph:
    """A graph of these statements, and attention over %q, keys and values."""
    made = "\n".join(f'{line.strip()} // "{line.split()[0][1:]}"' for line in lines.strip().splitlines())
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,6]) -> {outputs} {{
          const %wq: f32[6,16]
          const %wk: f32[6,16]
          const %wv: f32[6,16]
          const %bq: f32[16]
          const %u: f32[2,8]
          const %t: f32[1,1,2,8]
          const %each: f32[5,1,8]
          const %one: f32[8]
          const %other: f32[4,1,8]
          const %front: f32[2,1,8]
          const %behind: f32[1,2,1,8]
          {made}
          %k = matmul(%x, %wk) // "k"
          %v = matmul(%x, %wv) // "v"
          %y = attention(%q, %k, %v) heads=2 kv_heads=2 scale=0.5 causal=false packed=false safe=false // "attend"
        }}""")


def test_one_constant_is_the_bias_and_the_other_their_difference() -> None:
    result = run(SHIFT_QUERIES, shifted())
    assert body(result.graph).splitlines()[:3] == [
        """%q = matmul(%x, %wq, %'bq.folded)  // "rows", "heads", "content", "q\"""",
        """%'place.rows = add(%q, %'place.difference)  // "place\"""",
        "%place = reshape(%'place.rows) shape=[2,5,2,8] @place.apart",
    ]
    assert said(result) == [("content", "folded", "into 'rows', behind which 'place' come")]


def test_queries_keys_and_values_are_columns_of_one_product_then() -> None:
    result = run(SHARE_PROJECTIONS, run(SHIFT_QUERIES, shifted()).graph)
    assert said(result) == [
        ("attend", "merged", "'rows', 'k', 'v' into the product 'rows', whose columns are read in place")
    ]
    assert body(result.graph).count("matmul(") == 1


def test_constants_may_be_added_where_heads_stand_in_front_of_rows() -> None:
    result = run(SHIFT_QUERIES, shifted(TURNED))
    assert body(result.graph).splitlines()[:4] == [
        """%q = matmul(%x, %wq, %'bq.folded)  // "rows", "apart", "heads", "content", "back", "q\"""",
        """%'place.rows = add(%q, %'place.difference)  // "place\"""",
        "%'place.apart = reshape(%'place.rows) shape=[2,5,2,8]",
        "%place = transpose(%'place.apart) perm=[0,2,1,3] @place.apart.1",
    ]


def test_heads_that_are_matrices_of_one_batch_stay() -> None:
    """A reshape behind the exchange put images and heads on one axis: no exchange of three axes undoes it."""
    lines = """
    %rows = matmul(%x, %wq, %bq)
    %apart = reshape(%rows) shape=[2,5,2,8]
    %turned = transpose(%apart) perm=[0,2,1,3]
    %heads = reshape(%turned) shape=[4,5,8]
    %content = add(%heads, %one)
    %place = add(%heads, %other)
    %whole = reshape(%content) shape=[2,2,5,8]
    %back = transpose(%whole) perm=[0,2,1,3]
    %q = reshape(%back) shape=[2,5,16]
"""
    before = shifted(lines)
    assert run(SHIFT_QUERIES, before).graph == before


def test_exchanges_that_do_not_undo_each_other_stay() -> None:
    """A reshape between the sum and the exchange behind it mixes heads and rows."""
    lines = TURNED.replace(
        "%back = transpose(%content) perm=[0,2,1,3]",
        "%mixed = reshape(%content) shape=[2,5,2,8]\n    %back = transpose(%mixed) perm=[0,2,1,3]",
    )
    before = shifted(lines)
    assert run(SHIFT_QUERIES, before).graph == before


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (SHIFTED + "%more = relu(%heads)", "others than sums with constants of its columns read 'heads'"),
        (SHIFTED.replace("%u)", "%each)"), "others than sums with constants of its columns read 'heads'"),
        (SHIFTED + "%more = relu(%content)", "'content' is read by 2 nodes"),
        (SHIFTED + "%more = relu(%rows)", "'rows' is read by 2 nodes"),
    ],
)
def test_queries_stay_where_more_is_read_of_them(lines: str, reason: str) -> None:
    outputs = "(%y, %place, %more)" if "%more" in lines else "(%y, %place)"
    result = run(SHIFT_QUERIES, shifted(lines, outputs))
    assert said(result) == [("attend", "declined", reason)]


def test_one_sum_alone_is_left_to_what_folds_it() -> None:
    alone = SHIFTED.replace("%place = add(%t, %heads)\n", "")
    assert said(run(SHIFT_QUERIES, shifted(alone, "(%y)"))) == []
