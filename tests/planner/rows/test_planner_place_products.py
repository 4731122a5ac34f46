"""Products of two tensors read their factors where they lie, and store their result where it is wanted."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul, Walk, walks
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS

PLACED = ("y", "placed", "its kernel walks through what lies elsewhere")


def test_heads_are_read_in_rows_and_stored_in_rows() -> None:
    before = graph("""
        graph g batch=2 (%q: f32[2,7,12], %k: f32[2,5,12]) -> (%y) {
          %q4 = reshape(%q) shape=[2,7,3,4] // "q4"
          %qh = transpose(%q4) perm=[0,2,1,3] // "qh"
          %k4 = reshape(%k) shape=[2,5,3,4] // "k4"
          %kh = transpose(%k4) perm=[0,2,3,1] // "kh"
          %s = matmul(%qh, %kh) // "s"
          %st = transpose(%s) perm=[0,2,1,3] // "st"
          %y = reshape(%st) shape=[2,7,15] // "y"
        }""")
    result = run(PLACE_PRODUCTS, before)
    assert body(result.graph) == (
        "%y = placed_matmul(%q, %k) left=[[2,7,3,4],[0,2,1,3],[2,3,7,4]] right=[[2,5,3,4],[0,2,3,1],[2,3,4,5]] "
        'made=[[2,3,7,5],[0,2,1,3],[2,7,15]] @y  // "s", "st", "y"'
    )
    assert said(result) == [("s", "placed", "its kernel walks through what lies elsewhere")]


def test_pixels_of_an_image_are_read_in_either_layout() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,3,5], %m: f32[2,15,1]) -> (%y) {
          %rows = reshape(%x) shape=[2,8,15] // "rows"
          %y = matmul(%rows, %m) // "y"
        }""")
    result = run(PLACE_PRODUCTS, before)
    (node,) = result.graph.nodes
    assert (node.inputs, node.outputs) == (("x", "m"), ("y",))
    assert said(result) == [PLACED]


def test_a_run_of_columns_is_cut_out_in_front() -> None:
    before = graph("""
        graph g batch=2 (%p: f32[2,5,24], %v: f32[2,3,5,4]) -> (%y) {
          %p5 = reshape(%p) shape=[2,5,2,3,4] // "p5"
          %t = transpose(%p5) perm=[2,0,3,1,4] // "t"
          %q1 = slice(%t) begin=[1,0,0,0,0] count=[1,2,3,5,4] step=[1,1,1,1,1] // "q1"
          %q = reshape(%q1) shape=[2,3,5,4] // "q"
          %y = matmul(%q, %v) transpose_b=true // "y"
        }""")
    result = run(PLACE_PRODUCTS, before)
    assert body(result.graph).splitlines() == [
        "%'p.columns = slice(%p) begin=[0,0,12] count=[2,5,12] step=[1,1,1] @y.left",
        (
            "%y = placed_matmul(%'p.columns, %v) left=[[2,5,3,4],[0,2,1,3],[2,3,5,4]] "
            'right=[[2,3,5,4],[0,1,3,2],[2,3,4,5]] made=[[2,3,5,5],[0,1,2,3],[2,3,5,5]]  // "y"'
        ),
    ]


def test_runs_of_columns_of_both_factors_are_cut_out() -> None:
    before = graph("""
        graph g batch=2 (%p: f32[2,5,24]) -> (%y) {
          %a = slice(%p) begin=[0,0,0] count=[2,5,12] step=[1,1,1] // "a"
          %b = slice(%p) begin=[0,0,12] count=[2,5,12] step=[1,1,1] // "b"
          %a4 = reshape(%a) shape=[2,5,3,4] // "a4"
          %b4 = reshape(%b) shape=[2,5,3,4] // "b4"
          %ah = transpose(%a4) perm=[0,2,1,3] // "ah"
          %bh = transpose(%b4) perm=[0,2,3,1] // "bh"
          %y = matmul(%ah, %bh) // "y"
        }""")
    after = run(PLACE_PRODUCTS, before).graph
    assert [(node.name, node.op.kind, node.inputs[0]) for node in after.nodes] == [
        ("y.left", "slice", "p"), ("y.right", "slice", "p"), ("y", "placed_matmul", "p.columns"),
    ]  # fmt: skip


def test_what_others_read_stays_where_it_is() -> None:
    before = graph("""
        graph g batch=2 (%a: f32[2,4,6], %b: f32[2,4,5]) -> (%y, %z) {
          %t = transpose(%a) perm=[0,2,1] // "t"
          %y = matmul(%t, %b) // "y"
          %z = relu(%t) // "z"
        }""")
    result = run(PLACE_PRODUCTS, before)
    assert {node.op.kind for node in result.graph.nodes} == {"transpose", "placed_matmul", "activation"}


@pytest.mark.parametrize(
    "lines",
    [
        '%y = matmul(%a, %b) // "y"',
        '%t = transpose(%b) perm=[0,2,1] // "t"\n %y = matmul(%t, %w) // "y"',
    ],
)
def test_products_that_nothing_moves_and_those_of_weights_stay(lines: str) -> None:
    before = graph(f"""
        graph g batch=2 (%a: f32[2,4,6], %b: f32[2,6,5]) -> (%y) {{
          const %w: f32[6,6] #
          {lines}
        }}""")
    result = run(PLACE_PRODUCTS, before)
    assert result.graph is before
    assert said(result) == []


def test_a_constant_matrix_of_each_head_multiplies_heads_where_they_lie() -> None:
    """As what queries have with positions; kernels of packed weights take one matrix alone."""
    result = run(PLACE_PRODUCTS, graph("""
        graph g batch=2 (%q: f32[2,7,12]) -> (%y) {
          const %far: f32[6,4,16]
          %q4 = reshape(%q) shape=[2,7,3,4] // "q4"
          %t = transpose(%q4) perm=[0,2,1,3] // "t"
          %rows = reshape(%t) shape=[6,7,4] // "rows"
          %y = matmul(%rows, %far) // "y"
        }"""))  # fmt: skip
    (node,) = result.graph.nodes
    assert node.inputs == ("q", "far")
    assert said(result) == [PLACED]


def test_rows_that_are_no_single_run_stay_moved() -> None:
    before = graph("""
        graph g batch=1 (%a: f32[3,4,5,6], %b: f32[6,7]) -> (%y) {
          %t = transpose(%a) perm=[2,0,1,3] // "t"
          %m = reshape(%t) shape=[60,6] // "m"
          %y = matmul(%m, %b) // "y"
        }""")
    result = run(PLACE_PRODUCTS, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", "its factors do not lie as a kernel walks through matrices")]


def test_matrices_of_both_factors_are_counted_in_common_parts() -> None:
    op = PlacedMatMul(
        ((6, 2, 4), (0, 1, 2), (6, 2, 4)), ((2, 3, 4, 5), (1, 0, 2, 3), (6, 4, 5)), ((6, 2, 5), (0, 1, 2), (6, 2, 5))
    )
    found = walks(op, [(6, 2, 4), (2, 3, 4, 5), (6, 2, 5)], [(8, 4, 1), (60, 20, 5, 1), (10, 5, 1)])
    assert found is not None
    assert found.batch == (Walk(3, (16, 20, 20)), Walk(2, (8, 60, 10)))
    assert (found.rows, found.columns, found.depth) == (Walk(2, (4, 0, 5)), Walk(5, (0, 1, 1)), Walk(4, (1, 5, 0)))


def test_a_residual_rides_in_a_placed_product() -> None:
    before = graph("""
        graph g batch=2 (%a: f32[2,4,6], %b: f32[2,4,5], %r: f32[2,6,5]) -> (%y) {
          %p = placed_matmul(%a, %b) left=[[2,4,6],[0,2,1],[2,6,4]] right=[[2,4,5],[0,1,2],[2,4,5]] \
made=[[2,6,5],[0,1,2],[2,6,5]] // "p"
          %y = add(%p, %r) // "y"
        }""")
    (node,) = run(FUSE_EPILOGUES, before).graph.nodes
    assert [stage.op.kind for stage in node.epilogue] == ["binary"]


def test_a_gather_that_drops_an_axis_is_where_a_factor_is_read() -> None:
    before = graph("""
        graph g batch=2 (%p: f32[2,5,2,3,4], %v: f32[2,3,5,4]) -> (%y) {
          const %one: i64[] {1}
          %q = gather(%p, %one) axis=2 // "q"
          %t = transpose(%q) perm=[0,2,1,3] // "t"
          %y = matmul(%t, %v) transpose_b=true // "y"
        }""")
    result = run(PLACE_PRODUCTS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["gather", "placed_matmul"]


def test_products_of_nothing_stay() -> None:
    before = graph("""
        graph g batch=2 (%a: f32[2,0,6], %b: f32[2,0,5]) -> (%y) {
          %t = transpose(%a) perm=[0,2,1] // "t"
          %y = matmul(%t, %b) // "y"
        }""")
    assert run(PLACE_PRODUCTS, before).graph is before
