"""What repeats itself is computed once, and its result is repeated."""

from __future__ import annotations

from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.tidy.duplicates import MERGE_DUPLICATES
from bolt_build.planner.passes.tidy.late_expands import EXPAND_LATE


def masked(seen: str) -> Graph:
    """Keys that are there as the newest transformers say it: for every query, then as numbers."""
    return graph(f"""
    graph g batch=2 (%there: bool[2,1,1,2]) -> (%y) {{
      const %seen: bool[1,1,2,2] {{{seen}}}
      const %zero: f32[] {{0}}
      const %none: f32[] {{-1e30}}
      %b = logic(%seen, %there) function=and
      %y = where(%b, %zero, %none)
    }}
    """)


def test_booleans_that_change_nothing_are_gone_and_numbers_follow_once() -> None:
    result = run(EXPAND_LATE, masked("true, true, true, true"))
    assert body(result.graph).splitlines() == [
        "%'y.once = where(%there, %zero, %none) @y", "%y = expand(%'y.once) shape=[2,1,2,2] @y.expand",
    ]  # fmt: skip
    once = ("computed once", "[2, 1, 1, 2], which [2, 1, 2, 2] repeats")
    assert said(result) == [("b", *once), ("y", *once)]


def test_so_are_those_that_hide_some_keys_of_all_queries() -> None:
    result = run(EXPAND_LATE, masked("true, false, true, false"))
    assert body(result.graph).splitlines() == [
        "%'b.once = logic(%'seen.once, %there) function=and @b",
        "%'y.once = where(%'b.once, %zero, %none) @y",
        "%y = expand(%'y.once) shape=[2,1,2,2] @y.expand",
    ]


def test_booleans_that_differ_along_queries_stay() -> None:
    before = masked("true, true, false, true")
    result = run(EXPAND_LATE, before)
    assert (body(result.graph), said(result)) == (body(before), [])


def test_masks_of_all_layers_are_one_where_their_numbers_only_hide_keys() -> None:
    """A number that is no such one may be a weight."""
    text = """
    graph g batch=2 (%there: bool[2,1,1,2]) -> (%y) {
      const %zero: f32[] {0}
      const %none: f32[] {-1e30}
      const %nought: f32[] {0}
      const %least: f32[] {-1e30}
      %a = where(%there, %zero, %none)
      %b = where(%there, %nought, %least)
      %y = add(%a, %b)
    }
    """
    assert body(run(MERGE_DUPLICATES, graph(text)).graph).splitlines()[1:] == ["%y = add(%a, %a)"]
    assert said(run(MERGE_DUPLICATES, graph(text.replace("-1e30", "-2")))) == []
