"""Assignments to slices, which exporters write as scatters, become slices and concatenations."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.tidy.slice_scatters import SLICE_SCATTERS


def scatter(indices: np.ndarray, data: str = "4,3,5", updates: str = "2,3,2") -> Graph:
    """The scatter of rows of `indices`, the last of whose axes names a place."""
    shape = ",".join(map(str, indices.shape))
    numbers = ", ".join(map(str, indices.ravel().tolist()))
    return graph(f"""
        graph g batch=4 (%x: f32[{data}], %u: f32[{updates}]) -> (%y) {{
          const %i: i64[{shape}] {{{numbers}}}
          %y = scatter_nd(%x, %i, %u) // "y"
        }}""")


def places(*axes: tuple[int, int]) -> np.ndarray:
    """Every place of a box, row by row."""
    ranges = [np.arange(begin, end) for begin, end in axes]
    return np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1)


def lines(of: Graph) -> list[str]:
    return [line.split("  //")[0].split(" @")[0] for line in body(of).splitlines()]


def test_what_lies_around_a_box_is_sliced() -> None:
    result = run(SLICE_SCATTERS, scatter(places((1, 3), (0, 3), (3, 5))))
    assert said(result) == [("y", "made slices", "its indices are all of [1:3, 0:3, 3:5]")]
    assert lines(result.graph) == [
        "%'y.slices = slice(%x) begin=[1,0,0] count=[2,3,3] step=[1,1,1]",
        "%'y.slices.1 = concat(%'y.slices, %u) axis=2",
        "%'y.slices.2 = slice(%x) begin=[0,0,0] count=[1,3,5] step=[1,1,1]",
        "%'y.slices.3 = slice(%x) begin=[3,0,0] count=[1,3,5] step=[1,1,1]",
        "%y = concat(%'y.slices.2, %'y.slices.1, %'y.slices.3) axis=0",
    ]


def test_whole_rows_and_places_from_the_end_are_boxes() -> None:
    result = run(SLICE_SCATTERS, scatter(places((-3, -1)), updates="2,3,5"))
    assert said(result) == [("y", "made slices", "its indices are all of [1:3, 0:3, 0:5]")]
    assert len(lines(result.graph)) == 3


def test_all_of_the_data_is_the_updates() -> None:
    result = run(SLICE_SCATTERS, scatter(places((0, 4), (0, 3))[None], updates="1,4,3,5"))
    assert lines(result.graph) == ["%y = reshape(%u) shape=[4,3,5]"]


@pytest.mark.parametrize(
    "indices",
    [
        places((1, 3), (0, 3), (3, 5))[::-1],
        places((1, 3), (0, 3), (3, 4)).repeat(2, axis=2),
        places((1, 4))[::2][:, None].repeat(6, axis=1).reshape(2, 6, 1)[:, :3, None, :].repeat(2, axis=2),
    ],
    ids=["another order", "twice", "every second"],
)
def test_others_stay(indices: np.ndarray) -> None:
    depth = indices.shape[-1]
    updates = ",".join(map(str, (*indices.shape[:-1], *(4, 3, 5)[depth:])))
    before = scatter(indices, updates=updates)
    result = run(SLICE_SCATTERS, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", "'i' names no box of 'x' in its order")]


def test_indices_that_a_kernel_would_repeat_are_followed_to_their_aranges() -> None:
    """So many are no constants: each axis has its own, expanded to all places."""
    result = run(
        SLICE_SCATTERS,
        graph("""
        graph g batch=4 (%x: f32[4,3,5], %u: f32[2,3,2]) -> (%y) {
          const %a: i64[2,1,1] {1, 2}
          const %b: i64[3,1] {0, 1, 2}
          const %c: i64[2] {-2, -1}
          %ae = expand(%a) shape=[2,3,2] // "ae"
          %be = expand(%b) shape=[2,3,2] // "be"
          %ce = expand(%c) shape=[2,3,2] // "ce"
          %ar = reshape(%ae) shape=[2,3,2,1] // "ar"
          %br = reshape(%be) shape=[2,3,2,1] // "br"
          %cr = reshape(%ce) shape=[2,3,2,1] // "cr"
          %i = concat(%ar, %br, %cr) axis=3 // "i"
          %y = scatter_nd(%x, %i, %u) // "y"
        }"""),
    )
    assert said(result) == [("y", "made slices", "its indices are all of [1:3, 0:3, 3:5]")]
    assert [each.op.kind for each in result.graph.nodes][-5:] == ["slice", "concat", "slice", "slice", "concat"]


def test_indices_of_data_stay() -> None:
    before = graph("""
        graph g batch=4 (%x: f32[4,3], %i: i64[2,1], %u: f32[2,3]) -> (%y) {
          %y = scatter_nd(%x, %i, %u) // "y"
        }""")
    result = SLICE_SCATTERS.run(before, POLICY)
    assert (result.graph, said(result)) == (before, [])


def elements(index: str, updates: str = "4,1,5", more: str = "") -> Graph:
    return graph(f"""
        graph g batch=4 (%x: f32[4,3,5], %u: f32[{updates}]) -> (%y) {{
          {index}
          {more}
          %y = scatter_elements(%x, %i, %u) axis=1 // "y"
        }}""")


def constant(shape: str, *numbers: int) -> str:
    return f"const %i: i64[{shape}] {{{', '.join(map(str, numbers))}}}"


@pytest.mark.parametrize("place", [1, -2])
def test_one_place_of_an_axis_is_a_box_as_torch_export_assigns_it(place: int) -> None:
    result = run(SLICE_SCATTERS, elements(constant("4,1,5", *[place] * 20)))
    assert said(result) == [("y", "made slices", "its indices are all of [0:4, 1:2, 0:5]")]
    assert lines(result.graph)[-1] == "%y = concat(%'y.slices, %u, %'y.slices.1) axis=1"


def test_its_index_may_be_expanded() -> None:
    more = '%i = expand(%one) shape=[4,1,5] // "i"'
    result = run(SLICE_SCATTERS, elements("const %one: i64[1] {2}", more=more))
    assert said(result) == [("y", "made slices", "its indices are all of [0:4, 2:3, 0:5]")]


def test_the_first_rows_of_a_place_are_a_box_too() -> None:
    result = run(SLICE_SCATTERS, elements(constant("2,1,5", *[0] * 10), "2,1,5"))
    assert said(result) == [("y", "made slices", "its indices are all of [0:2, 0:1, 0:5]")]


@pytest.mark.parametrize("numbers", [[0] * 19 + [1], [1, 0] * 10])
def test_elements_at_several_places_are_none(numbers: list[int]) -> None:
    before = elements(constant("4,1,5", *numbers))
    assert run(SLICE_SCATTERS, before).graph is before


def test_elements_at_the_same_place_twice_are_none() -> None:
    before = elements(constant("4,2,5", *[1] * 40), "4,2,5")
    assert run(SLICE_SCATTERS, before).graph is before
