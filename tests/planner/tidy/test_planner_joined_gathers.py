"""Two gathers along neighbouring axes and the transpose behind them are one gather."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.tidy import joined_gathers
from bolt_build.planner.passes.tidy.joined_gathers import JOIN_GATHERS

PERM = "perm=[0,1,2,4,3,5]"


def unfolded(perm: str = PERM, axes: tuple[int, int] = (2, 4), outputs: str = "%y", last: int = 2) -> Graph:
    """Windows of two by three of an image of four by five, as torch's unfold is exported."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,4,5]) -> ({outputs}) {{
          const %r: i64[2,3] {{0,1,2,1,2,3}}
          const %c: i64[3,3] {{0,1,{last},1,2,3,-3,-2,-1}}
          %a = gather(%x, %r) axis={axes[0]} // "a"
          %b = gather(%a, %c) axis={axes[1]} // "b"
          %y = transpose(%b) {perm} // "y"
        }}""")


def test_windows_are_taken_at_once() -> None:
    result = run(JOIN_GATHERS, unfolded())
    assert [node.op.kind for node in result.graph.nodes] == ["reshape", "gather"]
    places = result.graph.constant("y.places")
    assert places is not None
    assert places.shape == (2, 3, 3, 3)
    np.testing.assert_array_equal(places[1, 2], [[7, 8, 9], [12, 13, 14], [17, 18, 19]])
    assert said(result) == [("y", "gathered at once", "what 'a' and 'b' took")]


@pytest.mark.parametrize(("perm", "axes"), [("perm=[0,1,5,3,2,4]", (2, 4)), ("perm=[0,1,4,2,3,5]", (3, 2))])
def test_other_orders_of_axes_and_gathers(perm: str, axes: tuple[int, int]) -> None:
    assert [node.op.kind for node in run(JOIN_GATHERS, unfolded(perm, axes)).graph.nodes] == ["reshape", "gather"]


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ({"outputs": "%y, %b"}, "'b' is a graph output"),
        ({"perm": "perm=[1,0,2,4,3,5]"}, "the transpose moves other axes too"),
        ({"axes": (1, 4)}, "they take along axes that are no neighbours"),
    ],
)
def test_what_keeps_gathers_apart(before: dict[str, str], reason: str) -> None:
    kept = unfolded(**before)  # type: ignore[arg-type]
    result = run(JOIN_GATHERS, kept)
    assert (result.graph, said(result)) == (kept, [("y", "declined", f"'a' and 'b' stay apart: {reason}")])


def test_indices_outside_and_large_tables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    apart, whole = "'a' and 'b' stay apart: ", unfolded()
    assert said(JOIN_GATHERS.run(unfolded(last=5), POLICY)) == [
        ("y", "declined", f"{apart}an index lies outside of an axis of 5")
    ]
    monkeypatch.setattr(joined_gathers, "_MOST", 53)
    assert said(run(JOIN_GATHERS, whole)) == [("y", "declined", f"{apart}they name 54 places, over 53")]


def test_a_gather_inside_of_what_another_took_stays() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,4,5]) -> (%y) {
          const %i: i64[2,2] {0,1,1,0}
          %a = gather(%x, %i) axis=1 // "a"
          %b = gather(%a, %i) axis=2 // "b"
          %y = transpose(%b) perm=[0,2,1,3,4] // "y"
        }""")
    assert (said(run(JOIN_GATHERS, before)), run(JOIN_GATHERS, before).graph) == ([], before)
