"""Interpolations along two axes beside each other become one step."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.images.resample import RESAMPLE_IMAGES, beginnings
from bolt_build.planner.pipeline import PIPELINE
from bolt_build.targets import HOST, target_named

TWICE = "i64[6,2] {0,0,0,1,0,1,1,2,1,2,2,2}"
"""Three elements made six, linearly."""
WIDE = "i64[4,9] {" + ",".join(str(min(max(first + tap, 0), 2)) for first in range(-4, 0) for tap in range(9)) + "}"
ALONG = {
    2: '%a = interpolate(%x, %places, %weights) axis=2 // "a"',
    3: '%y = interpolate(%a, %places, %weights) axis=3 // "y"',
}
NEAREST = (
    "const %rows: i64[6] {0,0,1,1,2,2}\nconst %columns: i64[2] {-3,-1}",
    '%a = gather(%x, %rows) axis=2 // "a"', '%y = gather(%a, %columns) axis=3 // "y"',
)  # fmt: skip


def images(*statements: str, places: str = TWICE, outputs: str = "%y", x: str = "[2,4,3,3]") -> Graph:
    results = places.partition("]")[0] + "]"
    text = "\n".join(statements)
    return graph(
        f"graph g batch=2 (%x: f32{x}) -> ({outputs}) {{\nconst %places: {places}\n"
        f"const %weights: {results.replace('i64', 'f32')}\n{text}\n}}"
    )


def test_two_axes_are_one_step() -> None:
    result = run(RESAMPLE_IMAGES, images(*ALONG.values()))
    assert body(result.graph) == (
        '%y = resample(%x, %\'a.first, %weights, %\'y.first, %weights) axes=[2,3] @y  // "a", "y"'
    )
    assert said(result) == [("y", "resampled along axes 2 and 3 in one step", "'a' is in front")]
    first = result.graph.constant("a.first")
    assert first is not None
    assert first.tolist() == [-1, 0, 0, 1, 1, 2]


def test_whichever_comes_first() -> None:
    wide = images(ALONG[3].replace("%a", "%x").replace("%y", "%b"), ALONG[2].replace("%x", "%b").replace("%a", "%y"))
    (node,) = run(RESAMPLE_IMAGES, wide).graph.nodes
    assert node.inputs[0] == "x"
    assert node.op.kind == "resample"


def test_one_axis_is_a_step_too() -> None:
    result = run(RESAMPLE_IMAGES, images(ALONG[2], outputs="%a"))
    assert [node.op.kind for node in result.graph.nodes] == ["resample"]
    assert said(result) == [("a", "resampled along axis 2", "rows are interpolated as they are read")]


@pytest.mark.parametrize("statements", [tuple(ALONG.values()), NEAREST], ids=["linear", "nearest"])
def test_tables_ascend_as_tuning_has_them(statements: tuple[str, ...]) -> None:
    found = run(RESAMPLE_IMAGES, images(*statements)).graph
    (node,) = found.nodes
    bounds = node.op.ascending([found.type(name) for name in node.inputs])
    assert list(bounds) == [1, 3]
    for index, (first, last) in bounds.items():
        table = found.constant(node.inputs[index])
        assert table is not None
        assert (table[0], table[-1]) == (first, last)
        assert (np.diff(table) >= 0).all()


def test_interpolations_that_stay_have_tables_from_edge_to_edge() -> None:
    found = run(RESAMPLE_IMAGES, images(ALONG[2], outputs="%a", places=WIDE)).graph
    (node,) = found.nodes
    places = found.constant("places")
    assert places is not None
    assert node.op.ascending([found.type(name) for name in node.inputs]) == {1: (places[0, 0], places[-1, -1])}


def test_volumes_are_two_steps_of_which_the_second_has_the_last_axes() -> None:
    last = '%z = interpolate(%y, %places, %weights) axis=4 // "z"'
    result = run(RESAMPLE_IMAGES, images(*ALONG.values(), last, outputs="%z", x="[2,4,3,3,3]"))
    assert [text.split("axes=")[1].split(" ")[0] for text in body(result.graph).splitlines()] == ["[2]", "[3,4]"]


def test_the_nearest_pixels_are_one_neighbour_each() -> None:
    result = run(RESAMPLE_IMAGES, images(*NEAREST))
    assert [node.op.kind for node in result.graph.nodes] == ["resample"]
    weights = result.graph.constant("y.weights")
    assert weights is not None
    assert weights.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(
    "statements",
    [
        (NEAREST[0], NEAREST[1].replace("%a", "%y")),
        (NEAREST[0].replace("0,0,1", "1,0,0"), *NEAREST[1:]),
        (NEAREST[0], NEAREST[1].replace("axis=2", "axis=1"), NEAREST[2]),
    ],
    ids=["one axis alone", "an order that is no image's", "axes apart"],
)
def test_other_gathers_stay(statements: tuple[str, ...]) -> None:
    x = "[2,4,3,3]" if "axis=1" not in statements[1] else "[2,3,3,3]"
    result = run(RESAMPLE_IMAGES, images(*statements, x=x))
    assert {node.op.kind for node in result.graph.nodes} == {"gather"}
    assert said(result) == []


def test_what_is_read_between_the_axes_stays_between_two_steps() -> None:
    result = run(RESAMPLE_IMAGES, images(*ALONG.values(), outputs="%a, %y"))
    assert [node.op.kind for node in result.graph.nodes] == ["resample", "resample"]
    assert said(result)[0] == ("y", "declined", "'a' is a graph output")


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        (WIDE, "a result is made of 9 neighbours, of which a kernel keeps 8"),
        ("i64[2,2] {0,2,1,2}", "what a result is made of does not lie beside each other"),
    ],
)
def test_tables_that_no_kernel_takes_stay_with_the_reason(places: str, reason: str) -> None:
    result = run(RESAMPLE_IMAGES, images(ALONG[2], outputs="%a", places=places))
    assert [node.op.kind for node in result.graph.nodes] == ["interpolate"]
    assert said(result) == [("a", "declined", reason)]


def test_beginnings_are_those_of_neighbours_with_the_edges_going_on() -> None:
    for extent in range(1, 6):
        for taps in range(1, 7):
            first = np.arange(-taps - 1, extent + 2)
            places = np.clip(first[:, None] + np.arange(taps), 0, extent - 1)
            found = beginnings(places, extent)
            assert found is not None
            again = np.clip(found[:, None] + np.arange(taps), 0, extent - 1)
            np.testing.assert_array_equal(again, places)


def test_hosts_interpolate_one_axis_after_the_other() -> None:
    (each,) = [each for each in PIPELINE if each.name == RESAMPLE_IMAGES.name]
    assert each.pays_on is not None
    assert [each.pays_on(target, "fp16") for target in (HOST, target_named("t4"))] == [False, True]
