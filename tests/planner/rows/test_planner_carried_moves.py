"""Moves of rows that are undone behind products, normalisations and activations of rows."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.carried_moves import CARRY_MOVES
from bolt_build.planner.passes.tidy.moves import MERGE_MOVES


def between(*lines: str, outputs: str = "(%y)", shape: str = "2,5,6") -> Graph:
    """A graph of %x with these nodes."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%x: f32[{shape}]) -> {outputs} {{
          const %w: f32[6,8]
          const %b: f32[8]
          const %s: f32[6]
          const %square: f32[8,8]
          const %rows: f32[5,1,1]
          {made}
        }}""")


UNDONE = "'{}' undoes it, and rows alone are computed between them"


def test_a_product_between_two_transposes_takes_rows_as_they_lie() -> None:
    before = between("%a = transpose(%x) perm=[1,0,2]", "%m = matmul(%a, %w, %b)", "%y = transpose(%m) perm=[1,0,2]")
    result = run(CARRY_MOVES, before)
    assert body(result.graph) == '%y = matmul(%x, %w, %b) @m  // "a", "m", "y"'
    assert said(result) == [("a", "removed", UNDONE.format("y"))]


def test_several_products_read_what_one_move_would_bring_them() -> None:
    """As torch's MultiheadAttention has queries, keys and values of one input."""
    before = between(
        "%a = transpose(%x) perm=[1,0,2]", "%q = matmul(%a, %w, %b)", "%k = matmul(%a, %w)",
        "%y = transpose(%q) perm=[1,0,2]", "%z = transpose(%k) perm=[1,0,2]", outputs="(%y, %z)",
    )  # fmt: skip
    result = run(CARRY_MOVES, before)
    assert [node.inputs[0] for node in result.graph.nodes] == ["x", "x"]
    assert said(result) == [("a", "removed", UNDONE.format("y")), ("a", "removed", UNDONE.format("z"))]


def test_a_move_stays_for_those_behind_whom_nothing_undoes_it() -> None:
    before = between(
        "%a = transpose(%x) perm=[1,0,2]", "%q = matmul(%a, %w, %b)", "%z = matmul(%a, %w)",
        "%y = transpose(%q) perm=[1,0,2]", outputs="(%y, %z)",
    )  # fmt: skip
    assert [node.op.kind for node in run(CARRY_MOVES, before).graph.nodes] == ["transpose", "matmul", "matmul"]


def test_reshapes_on_the_way_are_followed_and_more_than_one_node_may_compute() -> None:
    before = between(
        "%a = transpose(%x) perm=[1,0,2]", "%r = reshape(%a) shape=[10,6]", "%n = norm(%r, %s) statistic=rms axes=[1]",
        "%m = matmul(%n, %w)", "%t = tanh(%m)", "%u = reshape(%t) shape=[5,2,8]", "%v = transpose(%u) perm=[1,0,2]",
        "%y = neg(%v)",
    )  # fmt: skip
    lines = body(run(CARRY_MOVES, before).graph).splitlines()
    assert lines == [
        """%'n.in_place = norm(%x, %s) statistic=rms axes=[2] @n  // "a", "r", "n\"""",
        """%'m.in_place = matmul(%'n.in_place, %w)  // "m\"""",
        """%v = tanh(%'m.in_place)  // "t", "u", "v\"""",
        """%y = neg(%v)  // "y\"""",
    ]


def test_rows_in_order_but_cut_otherwise_are_reshaped_once() -> None:
    before = between(
        "%a = transpose(%x) perm=[1,0,2]", "%m = matmul(%a, %w)", "%t = transpose(%m) perm=[1,0,2]",
        "%y = reshape(%t) shape=[10,8]",
    )  # fmt: skip
    lines = body(run(CARRY_MOVES, before).graph).splitlines()
    assert lines[0].startswith("%'m.in_place = matmul(%x, %w)")
    assert lines[1].startswith("%y = reshape(%'m.in_place) shape=[10,8]")


def test_reshapes_alone_go_where_the_shape_comes_back() -> None:
    before = between("%r = reshape(%x) shape=[10,6]", "%m = matmul(%r, %w)", "%y = reshape(%m) shape=[2,5,8]")
    assert body(run(CARRY_MOVES, before).graph) == '%y = matmul(%x, %w) @m  // "r", "m", "y"'
    other = between("%r = reshape(%x) shape=[10,6]", "%m = matmul(%r, %w)", "%y = reshape(%m) shape=[5,2,8]")
    assert run(CARRY_MOVES, other).graph == other


@pytest.mark.parametrize(
    "lines",
    [
        # The order of rows is another one in the end.
        ("%a = transpose(%x) perm=[1,0,2]", "%m = matmul(%a, %w)", "%y = reshape(%m) shape=[2,5,8]"),
        # Columns move.
        ("%a = transpose(%x) perm=[0,2,1]", "%m = tanh(%a)", "%n = neg(%m)", "%y = transpose(%n) perm=[1,0,2]"),
        # One number a row is no number a column.
        ("%a = transpose(%x) perm=[1,0,2]", "%m = add(%a, %rows)", "%y = transpose(%m) perm=[1,0,2]"),
        # Statistics over other rows.
        ("%a = transpose(%x) perm=[1,0,2]", "%m = norm(%a) statistic=l2 axes=[0]", "%y = transpose(%m) perm=[1,0,2]"),
    ],
)
def test_what_is_not_undone_or_not_of_rows_stays(lines: tuple[str, ...]) -> None:
    before = between(*lines)
    assert run(CARRY_MOVES, before).graph == before


def test_another_reader_of_what_lies_between_keeps_it() -> None:
    before = between(
        "%a = transpose(%x) perm=[1,0,2]", "%m = matmul(%a, %w)", "%y = transpose(%m) perm=[1,0,2]", "%z = neg(%m)",
        outputs="(%y, %z)",
    )  # fmt: skip
    assert run(CARRY_MOVES, before).graph == before


def test_channels_of_a_convolution_go_last_before_its_pixels_are_joined() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,4,4]) -> (%y) {
          const %w: f32[5,3,2,2]
          %c = conv(%x, %w) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=1 // "c"
          %r = reshape(%c) shape=[2,5,4] // "r"
          %y = transpose(%r) perm=[0,2,1] // "y"
        }""")
    result = run(MERGE_MOVES, before)
    assert body(result.graph).splitlines()[1:] == [
        """%'y.turned = transpose(%c) perm=[0,2,3,1]  // "r\"""",
        """%y = reshape(%'y.turned) shape=[2,4,5]  // "y\"""",
    ]
    assert said(result) == [("y", "moved", "in front of the reshape 'r', which joins axes")]


def test_moves_between_what_computes_are_gone_too() -> None:
    """As GPT-2's products of flattened rows are written."""
    before = between(
        "%a = reshape(%x) shape=[10,6]", "%m = matmul(%a, %w)", "%u = reshape(%m) shape=[2,5,8]", "%t = tanh(%u)",
        "%v = reshape(%t) shape=[10,8]", "%n = matmul(%v, %square)", "%y = reshape(%n) shape=[2,5,8]",
    )  # fmt: skip
    assert body(run(CARRY_MOVES, before).graph).splitlines() == [
        """%'m.in_place = matmul(%x, %w) @m  // "a", "m\"""",
        """%'t.in_place = tanh(%'m.in_place) @t  // "u", "t\"""",
        """%y = matmul(%'t.in_place, %square) @n  // "v", "n", "y\"""",
    ]


def test_a_scalar_has_no_rows() -> None:
    """As what a loop gives with each of its turns."""
    before = graph("""
        graph g batch=1 (%x: f32[]) -> (%y) {
          %r = reshape(%x) shape=[1]  // "r"
          %t = tanh(%r)  // "t"
          %y = reshape(%t) shape=[1,1]  // "y"
        }""")
    assert run(CARRY_MOVES, before).graph == before


def test_one_row_without_others_is_no_matrix() -> None:
    """As a model without a batch has it."""
    before = between("%a = reshape(%x) shape=[1,6]", "%m = matmul(%a, %w)", "%y = reshape(%m) shape=[8]", shape="6")
    assert run(CARRY_MOVES, before).graph == before
