"""Both sides of a gate are multiplied before what moves them, so that one kernel may compute all of it."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.patterns.gates import gated_in
from bolt_build.planner.passes.rows.gate_columns import GATE_COLUMNS


def gated(lines: str, outputs: str = "%y", x: str = "f32[2,5,8]") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: {x}) -> ({outputs}) {{
          {lines}
        }}""")


FLAT = """
          const %w: f32[8,6] #
          const %v: f32[8,6] #
          %a = reshape(%x) shape=[10,8]
          %p = matmul(%a, %w) // "p"
          %q = reshape(%p) shape=[2,5,6] // "q"
          %s = silu(%q) // "s"
          %r = matmul(%a, %v) // "r"
          %t = reshape(%r) shape=[2,5,6] // "t"
          %y = mul(%s, %t) // "y"
"""


def test_two_products_that_are_reshaped_are_gated_before() -> None:
    result = run(GATE_COLUMNS, gated(FLAT))
    assert body(result.graph).splitlines() == [
        "%a = reshape(%x) shape=[10,8]",
        '%p = matmul(%a, %w)  // "p"',
        '%r = matmul(%a, %v)  // "r"',
        "%'y.function = silu(%p) @y.function.0",
        '%\'y.gated = mul(%\'y.function, %r) @y  // "q", "s", "t", "y"',
        "%y = reshape(%'y.gated) shape=[2,5,6] @y.moved.1",
    ]
    assert said(result) == [("y", "gated before", "what moves both sides of 'p'")]


ONE = """
          const %w: f32[8,12] #
          %p = matmul(%x, %w) // "p"
"""
WRITTEN = {
    "an axis of sides": ONE + """
          %q = reshape(%p) shape=[2,5,2,6]
          %l = slice(%q) begin=[0,0,0,0] count=[2,5,1,6] step=[1,1,1,1]
          %r = slice(%q) begin=[0,0,1,0] count=[2,5,1,6] step=[1,1,1,1]
          %m = reshape(%l) shape=[2,5,6]
          %n = reshape(%r) shape=[2,5,6]
          %s = sigmoid(%n)
          %y = mul(%m, %s)""",
    "a selected side": ONE + """
          const %i: i64[] {0}
          const %j: i64[] {1}
          %q = reshape(%p) shape=[2,5,2,6]
          %m = gather(%q, %i) axis=2
          %n = gather(%q, %j) axis=2
          %s = sigmoid(%n)
          %y = mul(%m, %s)""",
    "a last axis of sides": ONE + """
          const %i: i64[] {0}
          const %j: i64[] {1}
          %q = reshape(%p) shape=[2,5,6,2]
          %m = gather(%q, %i) axis=3
          %n = gather(%q, %j) axis=3
          %s = sigmoid(%n)
          %y = mul(%m, %s)""",
    "rows in front of a function": ONE + """
          %q = reshape(%p) shape=[10,12]
          %f = tanh(%q)
          %m = slice(%f) begin=[0,0] count=[10,6] step=[1,1]
          %n = slice(%f) begin=[0,6] count=[10,6] step=[1,1]
          %y = mul(%m, %n)""",
}  # fmt: skip


@pytest.mark.parametrize("form", WRITTEN)
def test_sides_are_columns_however_they_were_taken(form: str) -> None:
    result = run(GATE_COLUMNS, gated(WRITTEN[form]))
    (found,) = gated_in(result.graph)
    assert (len(found.products), found.neighbours, found.obstacle) == (1, form == "a last axis of sides", None)
    assert len(said(result)) == 1


CHANNELS = """
          const %w: f32[12,8,1] #
          %p = conv(%x, %w) strides=[1] pads_begin=[0] pads_end=[0] dilations=[1] // "p"
          %t = transpose(%p) perm=[0,2,1] // "t"
          %l = slice(%t) begin=[0,0,0] count=[2,5,6] step=[1,1,1] // "l"
          %r = slice(%t) begin=[0,0,6] count=[2,5,6] step=[1,1,1] // "r"
          %y = mul(%l, %r) // "y"
"""


def test_channels_that_are_moved_last_are_split_before() -> None:
    assert body(run(GATE_COLUMNS, gated(CHANNELS, x="f32[2,8,5]")).graph).splitlines() == [
        '%p = conv(%x, %w) strides=[1] pads_begin=[0] pads_end=[0] dilations=[1]  // "p"',
        "%'y.side = slice(%p) begin=[0,0,0] count=[2,6,5] step=[1,1,1] @y.side.0",
        "%'y.side.2 = slice(%p) begin=[0,6,0] count=[2,6,5] step=[1,1,1] @y.side.1",
        '%\'y.gated = mul(%\'y.side, %\'y.side.2) @y  // "t", "l", "r", "y"',
        "%y = transpose(%'y.gated) perm=[0,2,1] @y.moved.1",
    ]


def test_another_reader_keeps_sides_as_they_are() -> None:
    before = gated(FLAT + '%z = exp(%q) // "z"', "%y, %z")
    result = run(GATE_COLUMNS, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", "'z' reads 'q' as well")]


LEFT = {
    "slices as they are": ONE + """
          %l = slice(%p) begin=[0,0,0] count=[2,5,6] step=[1,1,1]
          %r = slice(%p) begin=[0,0,6] count=[2,5,6] step=[1,1,1]
          %y = mul(%l, %r)""",
    "products as they are": "const %w: f32[8,6] #\nconst %v: f32[8,6] #\n"
    "%p = matmul(%x, %w)\n%q = matmul(%x, %v)\n%y = mul(%p, %q)",
    "sides that are moved in different ways": FLAT.replace(
        "%t = reshape(%r) shape=[2,5,6]", "%b = reshape(%r) shape=[5,2,6]\n%t = transpose(%b) perm=[1,0,2]"
    ),
    "columns that are no halves": ONE + """
          %q = reshape(%p) shape=[2,5,3,4]
          %l = slice(%q) begin=[0,0,0,0] count=[2,5,1,4] step=[1,1,1,1]
          %r = slice(%q) begin=[0,0,1,0] count=[2,5,1,4] step=[1,1,1,1]
          %y = mul(%l, %r)""",
    "rows of an image": CHANNELS.replace("begin=[0,0,6] count=[2,5,6]", "begin=[0,0,0] count=[2,5,6]"),
}  # fmt: skip


@pytest.mark.parametrize("form", LEFT)
def test_other_products_are_left_as_they_are(form: str) -> None:
    before = gated(LEFT[form], x="f32[2,8,5]" if form == "rows of an image" else "f32[2,5,8]")
    assert run(GATE_COLUMNS, before).graph is before
