"""Rows of experts that were sorted, multiplied and put back are multiplied where they lie."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.unsorted_rows import UNSORTED_ROWS

SORTED = """
    graph g batch=6 (%x: f32[6,{depth}], %l: f32[12,3], %f: f32[12]) -> (%y) {{
      const %w: f32[3,{depth},16] #
      const %v: f32[3,8,8] #
      const %two: i64[] {{2}}
      const %n: i64[12] {{0,1,2,3,4,5,6,7,8,9,10,11}}
      const %zeros: i64[12] {{0,0,0,0,0,0,0,0,0,0,0,0}}
      const %rows: f32[12,8] #
      %i1 = places(%l) axis=1 count=1
      %i = reshape(%i1) shape=[12]
      %o = places(%i) axis=0 count=12 greatest=false // "o"
      %e = gather_elements(%i, %o) axis=0
      %t = div(%o, %two)
      %t1 = reshape(%t) shape=[12,1]
      %o1 = reshape(%o) shape=[12,1]
      %g = gather_nd(%x, %t1) // "g"
      %g3 = reshape(%g) shape=[1,12,{depth}]
      %g2 = reshape(%g3) shape=[12,{depth}]
      %p = chosen_matmul(%g2, %w, %e) // "p"
      %a = slice(%p) begin=[0,0] count=[12,8] step=[1,1]
      %b = slice(%p) begin=[0,8] count=[12,8] step=[1,1]
      %s = sigmoid(%a)
      %h = mul(%s, %b)
      %q = chosen_matmul(%h, %v, %e) // "q"
      %k = gather_nd(%f, %o1)
      %k1 = reshape(%k) shape=[12,1]
      %r = mul(%q, %k1)
      {end}
    }}"""
BY_INVERSE = """%u = scatter_nd(%zeros, %o1, %n)
      %u1 = reshape(%u) shape=[12,1]
      %y = gather_nd({rows}, %u1) // "y\""""
BY_ORDER = """%u = places(%o) axis=0 count=12 greatest=false
      %y = gather(%r, %u) axis=0 // "y\""""
BY_SCATTER = """%y = scatter_nd(%rows, %o1, %r) // "y\""""


def experts(end: str, depth: int = 8) -> Graph:
    return graph(SORTED.format(end=end, depth=depth))


@pytest.mark.parametrize(
    "end", [BY_INVERSE.format(rows="%r"), BY_ORDER, BY_SCATTER], ids=["inverse", "order", "scatter"]
)
def test_rows_stay_where_they_are(end: str) -> None:
    before = experts(end)
    result = run(UNSORTED_ROWS, before)
    same_values(before, result.graph)
    assert said(result) == [("y", "left rows unsorted", "'o' is their order no more")]
    kinds = [x.op.kind for x in result.graph.nodes]
    assert (kinds.count("places"), kinds.count("chosen_matmul")) == (1, 2)  # who chooses, and both products
    assert not {"scatter_nd", "gather_elements"}.intersection(kinds)


def test_nothing_is_said_of_rows_that_no_expert_multiplies() -> None:
    before = experts(BY_INVERSE.format(rows="%k1"))
    result = run(UNSORTED_ROWS, before)
    assert (result.graph, said(result)) == (before, [])


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (experts(BY_INVERSE.format(rows="%r"), depth=6), "matrices of 'p' have lines of no whole 8 numbers"),
        (experts("%c = cumsum(%r) axis=0\n%m = add(%q, %c)\n" + BY_INVERSE.format(rows="%m")), "'c' is not computed"),
    ],
    ids=["ragged", "across rows"],
)
def test_what_declines(before: Graph, reason: str) -> None:
    result = run(UNSORTED_ROWS, before)
    assert result.graph == before
    ((subject, action, why),) = said(result)
    assert (subject, action) == ("y", "declined")
    assert why.startswith(reason)


BY_PLACE = "%t0 = add(%o, %n)\n%t = div(%t0, %two)"
BACKWARDS = "const %back: i64[12] {11,10,9,8,7,6,5,4,3,2,1,0}\n%t0 = gather(%o, %back) axis=0\n%t = div(%t0, %two)"
ONE_COLUMN = "%c = gather_elements({of}, %o1) axis=0\n%m = mul(%r, %c)\n" + BY_INVERSE.format(rows="%m")


@pytest.mark.parametrize("places", [BY_PLACE, BACKWARDS], ids=["numbers of places", "another order"])
def test_rows_that_are_gathered_by_more_than_the_order_stay(places: str) -> None:
    text = SORTED.format(end=BY_SCATTER, depth=8).replace("%t = div(%o, %two)", places)
    text = text.replace("%x: f32[6,8]", "%x: f32[12,8]")
    before = graph(text)
    result = run(UNSORTED_ROWS, before)
    assert result.graph == before
    assert [(subject, action) for subject, action, _ in said(result)] == [("y", "declined")]


@pytest.mark.parametrize(
    ("end", "stay"),
    [
        (ONE_COLUMN.format(of="%q"), True),
        ("%h1 = gather(%f, %o1) axis=0\n%m = mul(%r, %h1)\n" + BY_INVERSE.format(rows="%m"), False),
    ],
    ids=["one column of each", "one number of each"],
)
def test_rows_keep_their_shapes(end: str, stay: bool) -> None:
    before = experts(end)
    assert (run(UNSORTED_ROWS, before).graph == before) is stay
