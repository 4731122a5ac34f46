"""Moves of whole rows become one gather."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows import gather_rows
from bolt_build.planner.passes.rows.gather_rows import GATHER_ROWS

ROLLED = """
          %a = slice(%x) begin=[0,1,0,0] count=[2,3,4,8] step=[1,1,1,1] // "a"
          %b = slice(%x) begin=[0,0,0,0] count=[2,1,4,8] step=[1,1,1,1] // "b"
          %rolled = concat(%a, %b) axis=1 // "rolled"
"""
MERGED = """
          %a = slice(%x) begin=[0,0,0,0] count=[2,2,2,8] step=[1,2,2,1] // "a"
          %b = slice(%x) begin=[0,1,0,0] count=[2,2,2,8] step=[1,2,2,1] // "b"
          %y = concat(%a, %b) axis=3 // "y"
"""


def moved(statements: str, outputs: str = "%y", shape: str = "[2,4,4,8]") -> Graph:
    return graph(f"graph g batch=2 (%x: f32{shape}) -> ({outputs}) {{\n{statements}\n}}")


def test_shifted_windows_are_one_gather() -> None:
    before = moved(
        ROLLED
        + """
          %cut = reshape(%rolled) shape=[2,2,2,2,2,8] // "cut"
          %turned = transpose(%cut) perm=[0,1,3,2,4,5] // "turned"
          %y = reshape(%turned) shape=[8,4,8] // "y"
    """
    )
    result = run(GATHER_ROWS, before)
    assert body(result.graph) == (
        "%'y.2 = reshape(%x) shape=[2,16,8]\n"
        "%'y.1 = gather(%'y.2, %'y.places) axis=1\n"
        '%y = reshape(%\'y.1) shape=[8,4,8] @y  // "b", "a", "rolled", "cut", "turned", "y"'
    )
    places = next(value.constant for value in result.graph.values if value.name == "y.places")
    assert places is not None
    expected = np.roll(np.arange(16).reshape(4, 4), -1, 0).reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(-1)
    np.testing.assert_array_equal(places.array, expected)
    assert said(result) == [("y", "made a gather", "4 moves of whole rows of 'x'")]


def test_rows_side_by_side_are_one_gather() -> None:
    result = run(GATHER_ROWS, moved(MERGED))
    assert [node.op.kind for node in result.graph.nodes] == ["reshape", "gather", "reshape"]
    assert said(result) == [("y", "made a gather", "3 moves of whole rows of 'x'")]


def test_moves_that_undo_each_other_go() -> None:
    before = moved(
        ROLLED
        + """
          %c = slice(%rolled) begin=[0,3,0,0] count=[2,1,4,8] step=[1,1,1,1] // "c"
          %d = slice(%rolled) begin=[0,0,0,0] count=[2,3,4,8] step=[1,1,1,1] // "d"
          %y = concat(%c, %d) axis=1 // "y"
    """
    )
    result = run(GATHER_ROWS, before)
    assert body(result.graph) == '%y = reshape(%x) shape=[2,4,4,8] @y  // "b", "a", "rolled", "d", "c", "y"'


def test_a_chain_begins_behind_the_last_value_that_others_read() -> None:
    before = moved(
        ROLLED
        + """
          %z = relu(%rolled) // "z"
          %turned = transpose(%rolled) perm=[0,2,1,3] // "turned"
          %y = slice(%turned) begin=[0,0,1,0] count=[2,4,3,8] step=[1,1,1,1] // "y"
    """,
        "%y, %z",
    )
    result = run(GATHER_ROWS, before)
    assert said(result) == [
        ("y", "made a gather", "2 moves of whole rows of 'rolled'"),
        ("rolled", "made a gather", "3 moves of whole rows of 'x'"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        moved('%y = transpose(%x) perm=[0,2,1,3] // "y"'),  # one step already
        moved(ROLLED + '%y = relu(%rolled) // "y"', "%y, %a"),
        moved(MERGED.replace("8]", "2]"), shape="[2,4,4,2]"),  # narrow rows
        moved("""
          %a = slice(%x) begin=[0,0,0,2] count=[2,4,4,4] step=[1,1,1,1] // "a"
          %b = slice(%x) begin=[0,0,0,4] count=[2,4,4,4] step=[1,1,1,1] // "b"
          %y = concat(%a, %b) axis=3 // "y"
        """),  # parts of rows
        moved("""
          %a = slice(%x) begin=[1,0,0,0] count=[1,4,4,8] step=[1,1,1,1] // "a"
          %b = slice(%x) begin=[0,0,0,0] count=[1,4,4,8] step=[1,1,1,1] // "b"
          %y = concat(%a, %b) axis=0 // "y"
        """),  # images change places
        moved("""
          %a = transpose(%x) perm=[0,3,1,2] // "a"
          %y = slice(%a) begin=[0,0,1,0] count=[2,8,3,4] step=[1,1,1,1] // "y"
        """),  # channels do not stay last
        moved("""
          %a = relu(%x) // "a"
          %b = slice(%x) begin=[0,0,1,0] count=[2,4,3,8] step=[1,1,1,1] // "b"
          %c = slice(%a) begin=[0,0,1,0] count=[2,4,3,8] step=[1,1,1,1] // "c"
          %y = concat(%b, %c) axis=1 // "y"
        """),  # of two tensors
    ],
)
def test_other_moves_stay(before: Graph) -> None:
    assert run(GATHER_ROWS, before).graph == before


def test_places_of_huge_images_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = moved(MERGED)
    monkeypatch.setattr(gather_rows, "_MOST", 31)
    result = run(GATHER_ROWS, before)
    reason = "'x' has 32 rows, and places of at most 31 are kept with the weights"
    assert (result.graph, said(result)) == (before, [("y", "declined", reason)])
    monkeypatch.setattr(gather_rows, "_MOST", 32)
    assert run(GATHER_ROWS, before).graph != before
