"""Of what nobody reads the other rows of, only the rows that are read are computed."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.early_rows import SELECT_EARLY

FIRST = "slice({}) begin=[0,0,0] count=[2,1,{}] step=[1,1,1]"


def layers(*lines: str, outputs: str = "(%y)") -> Graph:
    """A graph of %x [2,5,6] with these nodes."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,6], %z: f32[2,5,6]) -> {outputs} {{
          const %w: f32[6,8]
          const %back: f32[8,6]
          const %s: f32[6]
          const %places: f32[1,5,6]
          const %at: i64[] {{0}}
          const %two: i64[2]
          {made}
        }}""")


def reason(source: str) -> str:
    return f"in front of '{source}', of which nothing else is read"


def test_one_row_is_taken_before_a_product_and_a_normalisation() -> None:
    before = layers("%m = matmul(%x, %w)", "%n = norm(%m) statistic=l2 axes=[2]", "%y = " + FIRST.format("%n", 8))
    result = run(SELECT_EARLY, before)
    assert body(result.graph).splitlines() == [
        """%'x.taken = slice(%x) begin=[0,0,0] count=[2,1,6] step=[1,1,1] @m.rows""",
        """%'m.taken = matmul(%'x.taken, %w)  // "m\"""",
        """%y = norm(%'m.taken) statistic=l2 axes=[2]  // "n", "y\"""",
    ]
    assert said(result) == [("y", "moved", reason("n")), ("n.rows", "moved", reason("m"))]


def test_a_gather_of_one_index_is_a_row_without_its_axis() -> None:
    result = run(SELECT_EARLY, layers("%m = tanh(%x)", "%y = gather(%m, %at) axis=1"))
    assert body(result.graph).splitlines()[1:] == [
        """%'m.taken = tanh(%'x.taken)  // "m", "y\"""",
        "%y = reshape(%'m.taken) shape=[2,6]",
    ]


def test_both_sides_of_a_residual_are_taken_and_what_both_read_once() -> None:
    before = layers(
        "%a = add(%x, %z)", "%n = norm(%a, %s) statistic=rms axes=[2]", "%m = matmul(%n, %w)", "%d = matmul(%m, %back)",
        "%r = add(%d, %a)", "%y = " + FIRST.format("%r", 6),
    )  # fmt: skip
    lines = body(run(SELECT_EARLY, before).graph).splitlines()
    assert [line.partition(" = ")[2].partition("(")[0] for line in lines] == [
        "slice", "slice", "add", "norm", "matmul", "matmul", "add",
    ]  # fmt: skip
    assert lines[2].startswith("%'a.taken = add(%'x.taken, %'z.taken)")


def test_one_number_a_column_stays_and_what_others_read_is_copied_from() -> None:
    before = layers(
        "%a = tanh(%x)", "%b = add(%a, %s)", "%y = " + FIRST.format("%b", 6), "%u = neg(%a)", outputs="(%y, %u)"
    )
    lines = body(run(SELECT_EARLY, before).graph).splitlines()
    assert lines[:3] == [
        '%a = tanh(%x)  // "a"',
        "%'a.taken = slice(%a) begin=[0,0,0] count=[2,1,6] step=[1,1,1] @b.rows",
        """%y = add(%'a.taken, %s)  // "b", "y\"""",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        # Most rows are read.
        ("%m = tanh(%x)", "%y = slice(%m) begin=[0,0,0] count=[2,4,6] step=[1,1,1]"),
        # Columns are taken.
        ("%m = tanh(%x)", "%y = slice(%m) begin=[0,0,0] count=[2,5,1] step=[1,1,1]"),
        # Indices that are no neighbours.
        ("%m = tanh(%x)", "%y = gather(%m, %two) axis=1"),
        # Statistics over the rows themselves.
        ("%m = norm(%x) statistic=l2 axes=[1]", "%y = slice(%m) begin=[0,0,0] count=[2,1,6] step=[1,1,1]"),
        # A number for each row and column.
        ("%m = add(%x, %places)", "%y = slice(%m) begin=[0,0,0] count=[2,1,6] step=[1,1,1]"),
        # A softmax down the rows.
        ("%m = softmax(%x) axis=1", "%y = slice(%m) begin=[0,0,0] count=[2,1,6] step=[1,1,1]"),
    ],
)
def test_what_is_not_of_few_rows_stays(lines: tuple[str, ...]) -> None:
    before = layers(*lines)
    assert run(SELECT_EARLY, before).graph == before


def test_another_reader_or_an_output_needs_all_rows() -> None:
    for outputs, why in (("(%y, %m)", "'m' is a graph output"), ("(%y, %z2)", "'m' is read by 2 nodes")):
        before = layers("%m = tanh(%x)", "%y = " + FIRST.format("%m", 6), "%z2 = neg(%m)", outputs=outputs)
        result = run(SELECT_EARLY, before)
        assert (result.graph, said(result)) == (before, [("y", "declined", f"stays behind 'm': {why}")])


GATED = (
    "%p = matmul(%x, %w)", "%l = slice(%p) begin=[0,0,0] count=[2,5,4] step=[1,1,1]",
    "%r = slice(%p) begin=[0,0,4] count=[2,5,4] step=[1,1,1]", "%f = silu(%l)", "%g = mul(%f, %r)",
)  # fmt: skip


def test_rows_of_both_sides_of_a_gate_are_taken_in_front_of_their_product() -> None:
    lines = body(run(SELECT_EARLY, layers(*GATED, "%y = " + FIRST.format("%g", 4))).graph).splitlines()
    assert [line.partition("  //")[0].partition(" @")[0] for line in lines] == [
        "%'x.taken = slice(%x) begin=[0,0,0] count=[2,1,6] step=[1,1,1]",
        "%'p.taken = matmul(%'x.taken, %w)",
        "%'l.taken = slice(%'p.taken) begin=[0,0,0] count=[2,1,4] step=[1,1,1]",
        "%'r.taken = slice(%'p.taken) begin=[0,0,4] count=[2,1,4] step=[1,1,1]",
        "%'f.taken = silu(%'l.taken)",
        "%y = mul(%'f.taken, %'r.taken)",
    ]


def test_columns_of_which_others_read_all_rows_are_cut_first() -> None:
    before = layers(*GATED, "%y = " + FIRST.format("%g", 4), "%z2 = exp(%r)", outputs="(%y, %z2)")
    lines = body(run(SELECT_EARLY, before).graph).splitlines()
    assert lines[0].startswith("%p = matmul(%x, %w)")
