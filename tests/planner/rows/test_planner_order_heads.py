"""Columns of a product in the order in which slices take them of every head."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.rows.order_heads import ORDER_HEADS

PRODUCT = """
    graph g batch=2 (%x: f32[2,5,6]) -> ({outputs}) {{
      const %w: {weight} #
      const %b: f32[24] #
      %a = matmul(%x, %w, %b){flag} // "a"
      %r = reshape(%a) shape={cut} // "r"
      %q = slice(%r) begin={first} count={many} step=[1,1,1,1] // "q"
      %k = slice(%r) begin=[0,0,0,3] count=[2,5,3,5] step=[1,1,1,1] // "k"
      %y = relu(%q) // "y"
      %z = relu(%k) // "z"
    }}"""
USUAL = {
    "outputs": "%y, %z", "weight": "f32[6,24]", "flag": "", "cut": "[2,5,3,8]", "first": "[0,0,0,0]",
    "many": "[2,5,3,2]",
}  # fmt: skip


@pytest.mark.parametrize("turned", [{}, {"weight": "f32[24,6]", "flag": " transpose_b=true"}])
def test_slices_of_every_head_become_runs_of_columns(turned: dict[str, str]) -> None:
    result = run(ORDER_HEADS, graph(PRODUCT.format(**USUAL | turned)))
    flag = turned.get("flag", "")
    assert body(result.graph) == (
        f'%\'a.ordered = matmul(%x, %\'w.ordered, %\'b.ordered){flag}  // "a", "r"\n'
        "%'q.heads = slice(%'a.ordered) begin=[0,0,0] count=[2,5,6] step=[1,1,1]\n"
        '%q = reshape(%\'q.heads) shape=[2,5,3,2]  // "q"\n'
        "%'k.heads = slice(%'a.ordered) begin=[0,0,6] count=[2,5,15] step=[1,1,1]\n"
        '%k = reshape(%\'k.heads) shape=[2,5,3,5]  // "k"\n'
        '%y = relu(%q)  // "y"\n%z = relu(%k)  // "z"'
    )
    assert said(result) == [("a", "ordered", "its channels by what 2 slices take of each head")]


@pytest.mark.parametrize("moved", [False, True])
def test_channels_of_a_convolution_are_ordered_too(moved: bool) -> None:
    move = '%t = transpose(%a) perm=[0,2,3,1] // "t"\n%r = reshape(%t) shape=[2,20,3,4]' if moved else (
        "%r = reshape(%a) shape=[2,3,4,20]"
    )  # fmt: skip
    slices = [([0, 0, 0, 2], [2, 20, 3, 2]), ([0, 0, 0, 0], [2, 20, 3, 2])] if moved else [
        ([0, 0, 2, 0], [2, 3, 2, 20]), ([0, 0, 0, 0], [2, 3, 2, 20]),
    ]  # fmt: skip
    parts = "\n".join(
        f'%{name} = slice(%r) begin={begin} count={count} step=[1,1,1,1] // "{name}"'.replace(", ", ",")
        for name, (begin, count) in zip("yz", slices, strict=True)
    )
    result = run(
        ORDER_HEADS,
        graph(f"""
graph g batch=2 (%x: f32[2,3,5,4]) -> (%y, %z) {{
const %w: f32[12,3,1,1] #
%a = conv(%x, %w) // "a"
{move} // "r"
{parts}
}}"""),
    )
    assert [node.op.kind for node in result.graph.nodes] == [
        "conv", *(["transpose"] if moved else []), "slice", "reshape", "slice", "reshape",
    ]  # fmt: skip
    assert said(result) == [("a", "ordered", "its channels by what 2 slices take of each head")]


@pytest.mark.parametrize(
    "other",
    [
        {"many": "[2,5,3,4]"},  # shared channels
        {"first": "[0,0,0,0]", "many": "[2,5,2,2]"},  # not of every head
        {"outputs": "%y, %z, %r"},
        {"outputs": "%y, %z, %a"},
        {"cut": "[2,15,1,8]", "first": "[0,0,0,0]", "many": "[2,15,1,2]"},  # no heads
    ],
)
def test_other_slices_leave_the_columns_in_their_order(other: dict[str, str]) -> None:
    text = PRODUCT.format(**USUAL | other)
    if "cut" in other:
        text = text.replace("count=[2,5,3,5]", "count=[2,15,1,5]")
    before = graph(text)
    assert run(ORDER_HEADS, before).graph == before


def test_whole_heads_and_what_reads_them_otherwise_leave_the_columns_in_their_order() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,6]) -> (%y, %z) {
          const %w: f32[6,24] #
          %a = matmul(%x, %w) // "a"
          %r = reshape(%a) shape=[2,5,3,8] // "r"
          %y = slice(%r) begin=[0,0,0,0] count=[2,5,3,2] step=[1,1,1,1] // "y"
          %z = relu(%r) // "z"
        }""")
    assert run(ORDER_HEADS, before).graph == before


MOVED = """
    graph g batch=2 (%x: f32[2,5,6]) -> ({outputs}) {{
      const %w: f32[6,24] #
      const %b: f32[24] #
      %a = matmul(%x, %w, %b) // "a"
      %r = reshape(%a) shape={cut} // "r"
      %t = transpose(%r) perm={perm} // "t"
      %y = relu(%t) // "y"
    }}"""


@pytest.mark.parametrize(
    ("cut", "perm", "shape"),
    [
        ("[2,5,4,3,2]", "[0,1,3,2,4]", "[2,5,3,4,2]"), ("[10,4,3,2]", "[0,2,1,3]", "[10,3,4,2]"),
        ("[2,5,4,6]", "[0,1,3,2]", "[2,5,6,4]"), ("[10,2,12]", "[0,2,1]", "[10,12,2]"),
    ],
)  # fmt: skip
def test_a_product_leaves_its_columns_as_what_is_behind_it_moves_them(cut: str, perm: str, shape: str) -> None:
    """BLOOM's queries, keys and values of each head: three runs of columns instead."""
    result = run(ORDER_HEADS, graph(MOVED.format(outputs="%y", cut=cut, perm=perm)))
    assert body(result.graph) == (
        "%'a.ordered = matmul(%x, %'w.ordered, %'b.ordered)  // \"a\"\n"
        f'%t = reshape(%\'a.ordered) shape={shape} @t  // "r", "t"\n'
        '%y = relu(%t)  // "y"'
    )
    assert said(result) == [("a", "ordered", "its channels as 't' moves them")]


@pytest.mark.parametrize(
    ("outputs", "cut", "perm"),
    [("%y, %r", "[10,4,6]", "[0,2,1]"), ("%y", "[2,5,4,6]", "[0,2,1,3]"), ("%y", "[5,2,4,6]", "[1,0,3,2]"),
     ("%y", "[2,5,4,3,2]", "[0,4,1,2,3]"), ("%y", "[5,4,12]", "[0,2,1]")],
    ids=["read as it was", "rows move too", "rows move apart from columns", "columns between rows", "half rows"],
)  # fmt: skip
def test_columns_stay_where_more_than_columns_moves(outputs: str, cut: str, perm: str) -> None:
    before = graph(MOVED.format(outputs=outputs, cut=cut, perm=perm))
    assert run(ORDER_HEADS, before).graph == before
