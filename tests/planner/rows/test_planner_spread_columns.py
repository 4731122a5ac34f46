"""Products of rows that were put together from parts, of which some are repeated."""

from __future__ import annotations

import numpy as np
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.outer_products import MULTIPLY_COLUMNS
from bolt_build.planner.passes.rows.spread_columns import SPREAD_COLUMNS

PAIRS = """
    %left = reshape(%x) shape=[2,6,1,8] // "left"
    %right = reshape(%x) shape=[2,1,6,8] // "right"
    %a = expand(%left) shape=[2,6,6,8] // "a"
    %b = expand(%right) shape=[2,6,6,8] // "b"
"""


def constant(name: str, *shape: int) -> str:
    numbers = np.random.default_rng(len(name)).normal(size=shape).round(2).ravel().tolist()
    return f"const %{name}: f32[{','.join(map(str, shape))}] {{{', '.join(map(str, numbers))}}}"


def made(after: Graph) -> list[str]:
    return [line.split("  //")[0].split(" @")[0] for line in body(after).splitlines()]


def pairs(end: str, width: int, columns: int = 8, outputs: str = "%y") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,6,8], %d: f32[2,6,6,1]) -> ({outputs}) {{
          {constant("w", width, columns)}
          {constant("v", columns)}
          {PAIRS}
          {end}
        }}""")


def test_features_of_both_ends_are_multiplied_before_they_are_repeated() -> None:
    before = pairs('%c = concat(%a, %b, %d) axis=3 // "c"\n%y = matmul(%c, %w, %v) // "y"', 17)
    result = run(SPREAD_COLUMNS, before)
    assert said(result) == [("y", "multiplies", "'left', 'right' before it is repeated")]
    assert made(result.graph) == [
        "%left = reshape(%x) shape=[2,6,1,8]",
        "%right = reshape(%x) shape=[2,1,6,8]",
        "%'y.parts = matmul(%d, %'w.parts, %v)",
        "%'y.repeated1 = matmul(%left, %'w.repeated1)",
        "%'y.repeated2 = matmul(%right, %'w.repeated2)",
        "%'y.3 = add(%'y.repeated1, %'y.repeated2)",
        "%y = add(%'y.parts, %'y.3)",
    ]


def test_all_parts_may_be_repeated_along_different_axes() -> None:
    result = run(SPREAD_COLUMNS, pairs('%c = concat(%a, %b) axis=3 // "c"\n%y = matmul(%c, %w) // "y"', 16, 12))
    assert [line.split(" = ")[1].split("(")[0] for line in made(result.graph)] == [
        "reshape", "reshape", "matmul", "matmul", "add",
    ]  # fmt: skip


def test_rows_that_edges_take_are_multiplied_once_a_node() -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[5,8], %from: i64[24], %to: i64[24], %e: f32[24,3]) -> (%y) {{
          {constant("w", 19, 6)}
          %a = gather(%x, %from) axis=0 // "a"
          %b = gather(%x, %to) axis=0 // "b"
          %c = concat(%a, %e, %b) axis=1 // "c"
          %y = matmul(%c, %w) // "y"
        }}""")
    result = run(SPREAD_COLUMNS, before)
    assert said(result) == [("y", "multiplies", "'x', 'x' before it is repeated")]
    assert made(result.graph) == [
        "%'y.parts = matmul(%e, %'w.parts)",
        "%'y.repeated1 = matmul(%x, %'w.repeated1)",
        "%'y.repeated1.taken = gather(%'y.repeated1, %from) axis=0",
        "%'y.repeated2 = matmul(%x, %'w.repeated2)",
        "%'y.repeated2.taken = gather(%'y.repeated2, %to) axis=0",
        "%'y.5 = add(%'y.parts, %'y.repeated1.taken)",
        "%y = add(%'y.repeated2.taken, %'y.5)",
    ]


def test_few_repeated_columns_stay_with_the_reason() -> None:
    end = '%c = concat(%a, %d) axis=3 // "c"\n%y = matmul(%c, %w) // "y"\n%z = neg(%b) // "z"'
    before = pairs(end, 9, 24, "%y, %z")
    result = run(SPREAD_COLUMNS, before)
    assert result.graph is before
    words = "8 columns that are repeated are fewer than the 24 that a sum would move again"
    assert said(result) == [("y", "declined", words)]


def test_what_is_repeated_along_one_axis_alone_stays() -> None:
    end = '%c = concat(%a, %a) axis=3 // "c"\n%y = matmul(%c, %w) // "y"\n%z = neg(%b) // "z"'
    before = pairs(end, 16, 8, "%y, %z")
    result = run(SPREAD_COLUMNS, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", "all parts are repeated along the same axis")]


def test_rows_that_are_read_elsewhere_stay() -> None:
    end = '%c = concat(%a, %b) axis=3 // "c"\n%y = matmul(%c, %w) // "y"\n%z = neg(%c) // "z"'
    before = pairs(end, 16, 8, "%y, %z")
    assert run(SPREAD_COLUMNS, before).graph is before


def test_a_product_of_depth_one_is_a_multiplication() -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,5,1]) -> (%y) {{
          {constant("w", 1, 7)}
          {constant("v", 7)}
          %y = matmul(%x, %w, %v) // "y"
        }}""")
    result = run(MULTIPLY_COLUMNS, before)
    assert made(result.graph) == ["%'y.product = mul(%x, %w)", "%y = add(%'y.product, %v)"]
    assert said(result) == [("y", "multiplies", "a product of one column with one row")]
