"""Deep products with few results are computed in parts of their depth."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul
from bolt_build.planner.passes.rows import split_depths
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.passes.rows.split_depths import SPLIT_DEPTHS


@pytest.fixture(autouse=True)
def from_1024(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are small where less depth is cut."""
    monkeypatch.setattr(split_depths, "_DEEP", 1024)


def test_a_weighted_mean_of_pixels_reads_them_where_they_lie() -> None:
    """As context blocks have it: the pixels of an image, weighted, and the result beside it."""
    before = graph("""
        graph g batch=2 (%x: f32[2,8,64,32], %m: f32[2,2048,1]) -> (%y) {
          %rows = reshape(%x) shape=[2,8,2048] // "rows"
          %y = matmul(%rows, %m) // "y"
        }""")
    placed = run(PLACE_PRODUCTS, before).graph
    result = run(SPLIT_DEPTHS, placed)
    assert said(result) == [("y", "split its depth of 2048 in 8 parts", "2 blocks would multiply all of it")]
    product, total = result.graph.nodes
    assert product.op == PlacedMatMul(
        left=((2, 8, 8, 8, 32), (0, 2, 1, 3, 4), (2, 8, 8, 256)),
        right=((2, 8, 256), (0, 1, 2), (2, 8, 256, 1)),
        made=((2, 8, 8), (1, 0, 2), (8, 2, 8, 1)),
    )
    assert total.op == Reduce("sum", (0,), False)


@pytest.mark.parametrize("turned", ["", "transpose_a=true", "transpose_b=true"])
def test_channels_by_channels_over_an_image(turned: str) -> None:
    a = "2,3,2048,8" if turned == "transpose_a=true" else "2,3,8,2048"
    b = "2,3,8,2048" if turned == "transpose_b=true" else "2,3,2048,8"
    before = graph(f"""
        graph g batch=2 (%a: f32[{a}], %b: f32[{b}]) -> (%y) {{
          %c = matmul(%a, %b) {turned} // "c"
          %y = relu(%c) // "y"
        }}""")
    result = run(SPLIT_DEPTHS, before)
    assert said(result) == [("c", "split its depth of 2048 in 8 parts", "6 blocks would multiply all of it")]
    assert [node.op.kind for node in result.graph.nodes] == ["placed_matmul", "reduce", "activation"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("2,8,512", "2,512,8"),  # no deeper than a sum of parts takes
        ("300,8,2048", "300,2048,8"),  # blocks enough
    ],
)
def test_products_that_have_enough_blocks_or_little_depth_stay(a: str, b: str) -> None:
    before = graph(f"""
        graph g batch=2 (%a: f32[{a}], %b: f32[{b}]) -> (%y) {{
          %y = matmul(%a, %b) // "y"
        }}""")
    assert said(run(SPLIT_DEPTHS, before)) == []


def test_a_depth_that_has_no_whole_parts_is_named() -> None:
    before = graph("""
        graph g batch=1 (%a: f32[1,8,1031], %b: f32[1,1031,8]) -> (%y) {
          %y = matmul(%a, %b) // "y"
        }""")
    reason = "its depth of 1031 cannot be cut where its factors lie"
    assert said(run(SPLIT_DEPTHS, before)) == [("y", "declined", reason)]
