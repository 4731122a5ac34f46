"""Arithmetic behind what moves a part of a product's columns, in the weights of these columns."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold.folded_parts import FOLD_PARTS


def packed(
    *lines: str, outputs: str = "%s, %v", value: str = "%v = transpose(%w3) perm=[0,2,1,3]", one: str = "f32[]"
) -> Graph:
    """A product of %x whose columns are queries, keys and values of 2 heads of 3; %t has their heads in front, and what
    `lines` make of its slices %w1, of queries, is read as %s."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,6], %many: f32[2,2,5,3]) -> ({outputs}) {{
          const %w: f32[6,18]
          const %b: f32[18]
          const %one: {one}
          const %heads: f32[2,1,3]
          const %words: f32[5,1]
          %p = matmul(%x, %w, %b) // "p"
          %r = reshape(%p) shape=[2,5,3,2,3] // "r"
          %t = transpose(%r) perm=[2,0,3,1,4] // "t"
          %c1 = slice(%t) begin=[0,0,0,0,0] count=[1,2,2,5,3] step=[1,1,1,1,1] // "c1"
          %w1 = reshape(%c1) shape=[2,2,5,3] // "w1"
          %c3 = slice(%t) begin=[2,0,0,0,0] count=[1,2,2,5,3] step=[1,1,1,1,1] // "c3"
          %w3 = reshape(%c3) shape=[2,2,5,3] // "w3"
          {made}
          {value} // "v"
        }}""")


def test_a_scale_of_queries_is_in_their_columns() -> None:
    result = run(FOLD_PARTS, packed("%s = mul(%w1, %one)"))
    assert body(result.graph).splitlines() == [
        """%'p.part = matmul(%x, %'w.folded, %'b.folded)  // "p\"""",
        """%'r.part = reshape(%'p.part) shape=[2,5,3,2,3]  // "r\"""",
        """%'t.part = transpose(%'r.part) perm=[2,0,3,1,4]  // "t\"""",
        """%'c1.part = slice(%'t.part) begin=[0,0,0,0,0] count=[1,2,2,5,3] step=[1,1,1,1,1]  // "c1\"""",
        """%s = reshape(%'c1.part) shape=[2,2,5,3]  // "w1", "s\"""",
        """%c3 = slice(%'t.part) begin=[2,0,0,0,0] count=[1,2,2,5,3] step=[1,1,1,1,1]  // "c3\"""",
        """%w3 = reshape(%c3) shape=[2,2,5,3]  // "w3\"""",
        """%v = transpose(%w3) perm=[0,2,1,3]  // "v\"""",
    ]
    assert said(result) == [("s", "folded", "into 6 columns of the weights of 'p'")]


@pytest.mark.parametrize("function", ["add(%w1, %heads)", "sub(%heads, %w1)", "div(%w1, %heads)", "mul(%heads, %w1)"])
def test_a_number_for_each_column_finds_its_own(function: str) -> None:
    result = run(FOLD_PARTS, packed(f"%s = {function}"))
    assert said(result) == [("s", "folded", "into 6 columns of the weights of 'p'")]
    assert not [node for node in result.graph.nodes if node.op.kind == "binary"]


def test_one_is_folded_behind_the_other_and_of_other_columns_too() -> None:
    lines = ("%a = add(%w1, %heads)", "%s = mul(%a, %one)")
    result = run(FOLD_PARTS, packed(*lines, value="%v = sub(%w3, %heads)"))
    assert [subject for subject, _, _ in said(result)] == ["a", "s", "v"]
    assert not [node for node in result.graph.nodes if node.op.kind == "binary"]


def test_a_gather_of_one_index_takes_columns_like_a_slice() -> None:
    result = run(FOLD_PARTS, graph("""
        graph g batch=2 (%x: f32[2,5,6]) -> (%s, %v) {
          const %w: f32[6,12]
          const %one: f32[1]
          const %i: i64[] {0}
          const %j: i64[] {1}
          %p = matmul(%x, %w) // "p"
          %r = reshape(%p) shape=[2,5,2,6] // "r"
          %q = gather(%r, %i) axis=2 // "q"
          %v = gather(%r, %j) axis=2 // "v"
          %s = mul(%q, %one) // "s"
        }"""))  # fmt: skip
    assert said(result) == [("s", "folded", "into 6 columns of the weights of 'p'")]


@pytest.mark.parametrize(
    ("lines", "outputs", "reason"),
    [
        (("%s = mul(%w1, %one)", "%k = add(%w1, %heads)"), "%s, %v, %k", "what it reads of 'p' is read by others too"),
        (("%s = mul(%w1, %one)",), "%s, %v, %t", "a graph output lies between it and 'p'"),
        (("%s = mul(%w1, %words)",), "%s, %v", "its constant is not one number a column of 'p'"),
    ],
)
def test_what_stays_has_its_reason(lines: tuple[str, ...], outputs: str, reason: str) -> None:
    before = packed(*lines, outputs=outputs)
    result = run(FOLD_PARTS, before)
    assert result.graph == before
    assert ("s", "declined", reason) in said(result)


@pytest.mark.parametrize(
    ("line", "one", "fewer"),
    [
        ("%s = mul(%w1, %one)", "f32[] {5e-4}", "0.0005"),
        ("%s = div(%w1, %one)", "f32[1,1] {2048}", "0.000488"),
        ("%s = mul(%w1, %one)", "f32[] {0.125}", ""),
        ("%s = add(%w1, %one)", "f32[] {5e-4}", ""),
        ("%s = mul(%w1, %one)", "f32[3] {5e-4, 5e-4, 5e-4}", ""),
    ],
)
def test_fp16_alone_keeps_small_scales_out_of_columns(line: str, one: str, fewer: str) -> None:
    before = packed(line, one=one)
    for precision in ("fp32", "bf16", "fp16"):
        result = run(FOLD_PARTS, before, precision)
        declined = f"fp16 would hold weights times {fewer} to fewer digits"
        stays = precision == "fp16" and fewer != ""
        assert (result.graph == before) is stays
        assert (("s", "declined", declined) in said(result)) is stays


def test_what_the_graph_gives_of_the_same_columns_is_read() -> None:
    """No node reads the rows of which a graph output is made."""
    before = packed(
        "%s = mul(%w1, %one)", "%k = slice(%w1) begin=[0,0,1,0] count=[2,2,1,3] step=[1,1,1,1]", outputs="%s, %v, %k"
    )
    result = run(FOLD_PARTS, before)
    assert result.graph == before
    assert said(result) == [("s", "declined", "what it reads of 'p' is read by others too")]


def test_rows_that_have_other_numbers_between_have_other_names() -> None:
    """Also where only what is read of other columns is made of them."""
    value = """%all = transpose(%p) perm=[1,0,2] // "all"
          %last = slice(%all) begin=[0,0,12] count=[5,2,6] step=[1,1,1] // "last"
          %v = relu(%last)"""
    result = run(FOLD_PARTS, packed("%s = mul(%w1, %one)", value=value))
    assert said(result) == [("s", "folded", "into 6 columns of the weights of 'p'")]
    assert not result.graph.has("all")
    assert result.graph.has("last")


@pytest.mark.parametrize("line", ["%s = div(%one, %w1)", "%s = mul(%w1, %many)", "%s = pow(%w1, %one)"])
def test_other_arithmetic_is_left_alone(line: str) -> None:
    before = packed(line)
    result = run(FOLD_PARTS, before)
    assert result.graph == before
    assert said(result) == []
