"""Indices that are the same for each element of a slice name slices."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.planner.passes.tidy.repeated_indices import REPEATED_INDICES


def lines(of: Graph) -> list[str]:
    return [line.split("  //")[0].split(" @")[0].strip() for line in body(of).splitlines()]


def test_edges_are_added_to_nodes_by_one_index_each() -> None:
    result = run(REPEATED_INDICES, graph("""
        graph g batch=2 (%x: f32[2,9,4], %i: i64[2,5,1], %u: f32[2,5,4]) -> (%y) {
          %e = expand(%i) shape=[2,5,4] // "e"
          %y = scatter_elements(%x, %e, %u) axis=1 reduction=add // "y"
        }"""))  # fmt: skip
    assert said(result) == [("y", "slices", "'e' has one index for each 4")]
    assert lines(result.graph) == [
        "%'y.slices = reshape(%i) shape=[2,5,1]",
        "%y = scatter_nd(%x, %'y.slices, %u) reduction=add batch_dims=1",
    ]


def test_rows_of_no_batch_are_named_through_a_cast() -> None:
    result = run(REPEATED_INDICES, graph("""
        graph g batch=1 (%x: f32[9,4], %i: i32[5,1], %u: f32[5,4]) -> (%y) {
          %e = expand(%i) shape=[5,4] // "e"
          %c = cast(%e) to=i64 // "c"
          %y = scatter_elements(%x, %c, %u) axis=0 reduction=max // "y"
        }"""))  # fmt: skip
    assert lines(result.graph)[-1] == "%y = scatter_nd(%x, %'y.slices, %u) reduction=max"


def test_one_list_of_indices_for_all_images_is_gathered_along_the_axis() -> None:
    result = run(REPEATED_INDICES, graph("""
        graph g batch=2 (%x: f32[2,9,4], %i: i64[5,1]) -> (%y) {
          %e = expand(%i) shape=[2,5,4] // "e"
          %y = gather_elements(%x, %e) axis=1 // "y"
        }"""))  # fmt: skip
    assert [type(node.op) for node in result.graph.nodes][-1] is Gather
    assert lines(result.graph)[-1].startswith("%y = gather(%x, ")


def test_best_queries_of_each_image_are_rows() -> None:
    result = run(REPEATED_INDICES, graph("""
        graph g batch=2 (%x: f32[2,9,3,4], %i: i64[2,5,1,1]) -> (%y) {
          %e = expand(%i) shape=[2,5,3,4] // "e"
          %y = gather_elements(%x, %e) axis=1 // "y"
        }"""))  # fmt: skip
    assert [type(node.op) for node in result.graph.nodes][-1] is GatherND
    assert lines(result.graph)[-1] == "%y = gather_nd(%x, %'y.slices) batch_dims=1"


def test_constants_are_looked_through() -> None:
    result = run(REPEATED_INDICES, graph("""
        graph g batch=2 (%x: f32[2,3,2], %u: f32[2,2,2]) -> (%y) {
          const %i: i64[2,2,2] {1, 1, 0, 0, 2, 2, 1, 1}
          %y = scatter_elements(%x, %i, %u) axis=1 // "y"
        }"""))  # fmt: skip
    assert lines(result.graph)[-1].endswith("batch_dims=1")
    (made,) = (node for node in result.graph.nodes if isinstance(node.op, ScatterND))
    assert result.graph.type(made.inputs[1]).shape == (2, 2, 1)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        # each column has its own index
        ("%e = expand(%i) shape=[2,5,4] // \"e\"\n%y = gather_elements(%x, %e) axis=2 // \"y\"", []),
        # the index itself is as large as what it takes
        ("%y = gather_elements(%x, %j) axis=1 // \"y\"", []),
        # columns behind the fourth are left out
        (
            "%e = expand(%i) shape=[2,5,3] // \"e\"\n%y = gather_elements(%x, %e) axis=1 // \"y\"",
            [("y", "declined", "its indices leave out elements along axis 2")],
        ),
    ],
)  # fmt: skip
def test_other_indices_stay(what: str, says: list[tuple[str, str, str]]) -> None:
    result = run(REPEATED_INDICES, graph(f"""
        graph g batch=2 (%x: f32[2,9,4], %i: i64[2,5,1], %j: i64[2,5,4]) -> (%y) {{
          {what}
        }}"""))  # fmt: skip
    assert said(result) == says
    assert "scatter_nd" not in body(result.graph)
    assert "gather_nd" not in body(result.graph)


def test_slices_of_a_batch_are_what_elements_were() -> None:
    rng = np.random.default_rng(7)
    data, updates = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 6, 5))
    index = rng.integers(-4, 4, (3, 6, 1))
    for how in ("none", "add", "max"):
        (made,) = ScatterND(how, 1).evaluate([data, index, updates])
        wanted = data.copy()
        for image in range(3):
            (wanted[image],) = ScatterND(how).evaluate([data[image], index[image], updates[image]])
        np.testing.assert_array_equal(made, wanted)
