"""Integers that are known, whatever the inputs are."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.tidy.known_integers import KNOWN_INTEGERS
from bolt_build.planner.pipeline import optimize
from bolt_build.planner.ranges import ranges

PLACES = """
    graph g batch=1 (%x: f32[8,6], %n: i64[8,2]) -> (%y) {{
      const %two: i64[] {{2}}
      const %zero: i64[] {{0}}
      const %width: f32[] {{{width}}}
      const %five: i64[] {{5}}
      %p = places(%x) axis=1 count=2 // "p"
      {nodes}
    }}"""


def places(nodes: str, width: str = "0.5") -> Graph:
    return graph(PLACES.format(nodes=nodes, width=width))


FLOOR = """
      %q = div(%p, %two) // "q"
      %m = mod(%p, %two) // "m"
      %l = compare(%p, %zero) question=less // "l"
      %s = compare(%two, %zero) question=less // "s"
      %e = compare(%l, %s) question=equal // "e"
      %d = ask(%e) question=not // "d"
      %r = cast(%m) to=bool // "r"
      %a = logic(%d, %r) function=and // "a"
      %c = cast(%a) to=i64 // "c"
      %f = sub(%q, %c) // "f"
      %y = mul(%f, %n) // "y"
"""
"""Floor division, as exporters write it."""


def test_floor_division_of_places_is_their_quotient() -> None:
    before = places(FLOOR)
    after = run(KNOWN_INTEGERS, before).graph
    same_values(before, after)
    assert [node.name for node in optimize(after, POLICY).graph.nodes] == ["p", "q", "y"]
    assert ("f", "removed", "it is 'q', whatever the inputs are") in said(run(KNOWN_INTEGERS, before))


def test_other_integers_may_be_negative() -> None:
    before = places(FLOOR.replace("%p", "%n").replace("%n = places", "%p = places"))
    assert [each[0] for each in said(run(KNOWN_INTEGERS, before))] == ["s"]  # two is never less than zero


HISTOGRAM = """
      %c = cast(%p) to=f32 // "c"
      %d = div(%c, %width) // "d"
      %i = cast(%d) to=i64 // "i"
      %k = clip(%i) alpha=0 beta=5 // "k"
      %y = add(%k, %n) // "y"
"""


@pytest.mark.parametrize(("width", "same"), [("0.8333333", True), ("0.75", False)])
def test_a_histogram_with_a_bin_for_each_number_gives_the_numbers(width: str, same: bool) -> None:
    """0 to 5 in six bins between 0 and 5; and in fewer."""
    before = places(HISTOGRAM, width)
    after = run(KNOWN_INTEGERS, before).graph
    same_values(before, after)
    assert ("div" not in body(after)) is same


def test_an_output_stays_what_it_is_called() -> None:
    before = places("%y = compare(%p, %zero) question=less")
    assert run(KNOWN_INTEGERS, before).graph == before


RANGES = """
    graph g batch=1 (%x: f32[8,6], %b: bool[8], %n: i64[8]) -> (%y) {{
      const %c: i64[3] {{-4,2,9}}
      const %two: i64[] {{2}}
      const %minus: i64[] {{-2}}
      const %ten: i64[] {{10}}
      const %indices: i64[2] {{0,1}}
      %p = places(%x) axis=1 count=1
      {node}
      %y = identity(%v)
    }}"""


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("%v = identity(%p)", (0, 5)),
        ("%v = identity(%n)", None),
        ("%v = identity(%c)", (-4, 9)),
        ("%v = gather(%c, %indices) axis=0", (-4, 9)),
        ("%v = concat(%p, %p) axis=0", (0, 5)),
        ("%v = cast(%b) to=i64", (0, 1)),
        ("%v = cast(%p) to=bool", (0, 1)),
        ("%v = cast(%ten) to=bool", (1, 1)),
        ("%v = ask(%b) question=not", (0, 1)),
        ("%v = add(%p, %c)", (-4, 14)),
        ("%v = sub(%p, %c)", (-9, 9)),
        ("%v = mul(%p, %c)", (-20, 45)),
        ("%v = div(%p, %two)", (0, 2)),
        ("%v = div(%p, %minus)", None),
        ("%v = mod(%c, %two)", (0, 1)),
        ("%v = mod(%p, %ten)", (0, 5)),
        ("%v = max(%p, %two)", (2, 5)),
        ("%v = min(%p, %two)", (0, 2)),
        ("%v = mul(%n, %two)", None),
        ("%v = compare(%p, %ten) question=less", (1, 1)),
        ("%v = compare(%p, %ten) question=greater_equal", (0, 0)),
        ("%v = compare(%p, %two) question=less_equal", (0, 1)),
        ("%v = compare(%p, %ten) question=equal", (0, 0)),
        ("%v = compare(%two, %two) question=equal", (1, 1)),
        ("%v = logic(%b, %b) function=and", (0, 1)),
        ("%v = logic(%b, %b) function=xor", (0, 1)),
        ("%v = where(%b, %two, %ten)", (2, 10)),
    ],
)
def test_between_which_numbers_a_value_lies(node: str, expected: tuple[int, int] | None) -> None:
    assert ranges(graph(RANGES.format(node=node))).get("v") == expected


def test_numbers_that_would_wrap_around_have_no_range() -> None:
    text = RANGES.format(node="%s = cast(%p) to=u8\n      %t = cast(%two) to=u8\n      %v = sub(%s, %t)")
    found = ranges(graph(text))
    assert found["s"] == (0, 5)
    assert "v" not in found
