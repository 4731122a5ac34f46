"""Rows that a model has word by word, computed image by image as attention takes them."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.turned_rows import TURN_ROWS


def layers(*lines: str, outputs: str = "(%y)", x: str = "%x: f32[5,2,6]") -> Graph:
    """A graph of %x, words first, with these nodes."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 ({x}) -> {outputs} {{
          const %w: f32[6,6]
          const %b: f32[6]
          const %s: f32[6]
          const %places: f32[5,1,6]
          const %words: f32[9,6]
          const %rows: f32[10,6]
          {made}
        }}""")


TURN = "transpose({}) perm=[1,0,2]"
REASON = "rows lie as attention takes them: {} elements fewer are moved"
LAYER = (
    "%n = norm(%x, %s) statistic=rms axes=[2]", "%m = matmul(%n, %w, %b)", "%t = transpose(%m) perm=[1,0,2]",
    "%a = softmax(%t) axis=1", "%u = transpose(%a) perm=[1,0,2]", "%r = reshape(%u) shape=[10,6]",
    "%p = matmul(%r, %w)", "%q = reshape(%p) shape=[5,2,6]", "%h = add(%x, %q)",
)  # fmt: skip
"""A residual around something that takes images one after the other, as attention does."""
BACK = ("%f = transpose(%h) perm=[1,0,2]", "%y = softmax(%f) axis=1")


def test_a_layer_with_words_in_front_of_the_batch_has_images_in_front() -> None:
    result = run(TURN_ROWS, layers(*LAYER, *BACK))
    assert body(result.graph).splitlines() == [
        """%'x.turned = transpose(%x) perm=[1,0,2] @x.turn""",
        """%'n.turned = norm(%'x.turned, %s) statistic=rms axes=[2]  // "n\"""",
        """%t = matmul(%'n.turned, %w, %b)  // "m", "t\"""",
        """%a = softmax(%t) axis=1  // "a\"""",
        """%'r.turned = reshape(%a) shape=[10,6]  // "r\"""",
        """%'p.turned = matmul(%'r.turned, %w)  // "p\"""",
        """%'q.turned = reshape(%'p.turned) shape=[2,5,6]  // "q\"""",
        """%f = add(%'x.turned, %'q.turned)  // "h", "f\"""",
        """%y = softmax(%f) axis=1  // "y\"""",
    ]
    assert said(result) == [("n", "turned with 5 others", REASON.format(120))]


def test_what_comes_in_and_goes_out_with_images_in_front_is_moved_no_more() -> None:
    """CLIP's layers: one transpose in front of all of them, one behind."""
    inner = [line.replace("%x", "%i") for line in LAYER]
    result = run(TURN_ROWS, layers("%i = transpose(%x) perm=[1,0,2]", *inner, *BACK, x="%x: f32[2,5,6]"))
    assert not [node for node in result.graph.nodes if node.op.kind == "transpose"]
    assert said(result) == [("n", "turned with 5 others", REASON.format(240))]


@pytest.mark.parametrize(
    "line",
    ["%h = add(%u, %places)", "%v = reshape(%u) shape=[10,6]\n%k = add(%v, %rows)\n%h = reshape(%k) shape=[5,2,6]"],
    ids=["of each word", "of each row"],
)
def test_constants_of_rows_are_turned(line: str) -> None:
    lines = line.split("\n")
    result = run(TURN_ROWS, layers("%u = transpose(%x) perm=[1,0,2]", *lines, *BACK, x="%x: f32[2,5,6]"))
    assert [node.op.kind for node in result.graph.nodes if node.op.kind == "transpose"] == []


def test_words_are_looked_up_in_the_order_in_which_they_come() -> None:
    ids = layers("%i = transpose(%x) perm=[1,0]", "%h = gather(%words, %i) axis=0", *BACK, x="%x: i64[2,5]")
    assert body(run(TURN_ROWS, ids).graph).splitlines() == [
        """%f = gather(%words, %x) axis=0  // "h", "f\"""", """%y = softmax(%f) axis=1  // "y\"""",
    ]  # fmt: skip


def test_columns_are_cut_moved_and_joined_in_either_order() -> None:
    lines = (
        "%i = transpose(%x) perm=[1,0,2]", "%j = slice(%i) begin=[0,0,0] count=[5,2,4] step=[1,1,1]",
        "%k = slice(%i) begin=[0,0,4] count=[5,2,2] step=[1,1,1]", "%l = concat(%k, %j) axis=2",
        "%c = reshape(%l) shape=[5,2,2,3]", "%d = transpose(%c) perm=[0,1,3,2]", "%h = reshape(%d) shape=[5,2,6]",
    )  # fmt: skip
    after = run(TURN_ROWS, layers(*lines, *BACK, x="%x: f32[2,5,6]")).graph
    assert [node.op.perm for node in after.nodes if node.op.kind == "transpose"] == [(0, 1, 3, 2)]  # type: ignore[attr-defined]


def test_other_moves_of_rows_take_the_turn_with_them() -> None:
    """Heads that come in front of words are one transpose with it, as before: what else is moved decides."""
    lines = (
        *LAYER[:3], "%c = reshape(%m) shape=[5,2,3,2]", "%z = transpose(%c) perm=[1,2,0,3]", *LAYER[3:], *BACK,
    )  # fmt: skip
    after = run(TURN_ROWS, layers(*lines, outputs="(%y, %z)")).graph
    assert sum(node.op.kind == "transpose" for node in after.nodes) == 3


@pytest.mark.parametrize(
    "lines",
    [
        ("%y = relu(%x)", "%t = transpose(%y) perm=[1,0,2]", "%z = softmax(%t) axis=1"),
        ("%m = matmul(%x, %w)", "%t = transpose(%m) perm=[1,0,2]", "%y = neg(%t)", "%z = softmax(%m) axis=0"),
        ("%n = softmax(%x) axis=0", "%t = transpose(%n) perm=[1,0,2]", "%y = relu(%t)", "%z = neg(%t)"),
    ],
    ids=["read as it was", "nothing less moves", "not row by row"],
)
def test_rows_stay_where_no_fewer_would_be_moved(lines: tuple[str, ...]) -> None:
    before = layers(*lines, outputs="(%y, %z)")
    result = run(TURN_ROWS, before)
    assert result.graph == before
    assert said(result) == []


def test_products_that_sum_over_words_are_not_turned() -> None:
    """A matrix of words and images is no tensor of rows for them."""
    before = layers(
        "%t = transpose(%x) perm=[1,0,2]", "%y = relu(%t)", "%r = reshape(%i) shape=[6,6]", "%z = matmul(%r, %w)",
        outputs="(%y, %z)", x="%x: f32[6,6,1], %i: f32[6,6]",
    )  # fmt: skip
    assert [node.op.kind for node in run(TURN_ROWS, before).graph.nodes if node.name == "z"] == ["matmul"]


def test_a_transpose_of_other_axes_moves_no_rows_that_one_axis_counts() -> None:
    """Elsewhere 4 words of 2 images are turned; here 8 of something are exchanged with 8 others."""
    result = run(TURN_ROWS, graph("""
        graph g batch=2 (%o: f32[8,8,3], %x: f32[4,2,6]) -> (%y, %z) {
          %t = transpose(%o) perm=[1,0,2] // "t"
          %y = slice(%t) begin=[0,0,0] count=[8,4,3] step=[1,1,1] // "y"
          %i = transpose(%x) perm=[1,0,2] // "i"
          %z = softmax(%i) axis=1 // "z"
        }"""))  # fmt: skip
    assert said(result) == []
