"""Images whose channels a model has last between its convolutions, as TensorFlow, Keras and Flax have them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.planner.passes.images.turned_images import TURN_IMAGES


def between(*lines: str, outputs: str = "(%y)", last: str = "%d") -> Graph:
    """A convolution of %x whose result %a has channels last, these nodes, and a convolution of `last` turned back."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,5,6]) -> {outputs} {{
          const %w: f32[4,4,1,1]
          const %one: f32[1]
          const %column: f32[4]
          const %row: f32[1,5,1,1]
          %c = conv(%x, %w) // "c"
          %a = transpose(%c) perm=[0,2,3,1] // "a"
          {made}
          %e = transpose({last}) perm=[0,3,1,2] // "e"
          %y = conv(%e, %w) // "y"
        }}""")


def short(after: Graph) -> list[str]:
    """The nodes as text, without the attributes of convolutions."""
    return re.sub(r" strides=\[1,1\] pads_\S+ \S+ \S+", "", body(after)).splitlines()


SAVED = "channels are second, as convolutions have them: {} fewer"


def test_what_is_computed_between_two_convolutions_has_channels_second() -> None:
    before = between("%b = mul(%a, %column)", "%d = add(%b, %row)")
    result = run(TURN_IMAGES, before)
    assert short(result.graph) == [
        """%c = conv(%x, %w)  // "c\"""",
        """%'b.turned = mul(%c, %'column.turned)  // "b\"""",
        """%e = add(%'b.turned, %'row.turned)  // "d", "e\"""",
        """%y = conv(%e, %w)  // "y\"""",
    ]
    assert said(result) == [("b", "turned with 1 other", SAVED.format("2 transposes"))]
    assert result.graph.type("column.turned").shape == (4, 1, 1)
    assert result.graph.type("row.turned").shape == (5, 1)


def test_numbers_of_the_whole_image_stay_as_they_are() -> None:
    after = run(TURN_IMAGES, between("%b = mul(%a, %one)", "%d = relu(%b)")).graph
    assert short(after)[1:3] == [
        """%'b.turned = mul(%c, %one)  // "b\"""",
        """%e = relu(%'b.turned)  // "d", "e\"""",
    ]


@pytest.mark.parametrize(
    ("lines", "turned"),
    [
        ("%d = pad(%a) begin=[0,1,2,0] end=[0,3,0,1]", "pad(%c) begin=[0,0,1,2] end=[0,1,3,0]"),
        ("%d = slice(%a) begin=[0,1,0,0] count=[2,4,3,4] step=[1,1,2,1]",
         "slice(%c) begin=[0,0,1,0] count=[2,4,4,3] step=[1,1,1,2]"),
        ("%d = concat(%a, %a) axis=2", "concat(%c, %c) axis=3"),
        ("%d = where(%yes, %a, %column)", "where(%'yes.turned, %c, %'column.turned)"),
    ],
)  # fmt: skip
def test_operators_with_axes_have_them_in_the_other_order(lines: str, turned: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,5,6]) -> (%y) {{
          const %w: f32[4,4,1,1]
          const %column: f32[4]
          const %yes: bool[5,6,1]
          %c = conv(%x, %w) // "c"
          %a = transpose(%c) perm=[0,2,3,1] // "a"
          {lines} // "d"
          %e = transpose(%d) perm=[0,3,1,2] // "e"
          %y = relu(%e) // "y"
        }}""")
    assert turned in body(run(TURN_IMAGES, before).graph)


def test_a_constant_beside_an_image_of_a_batch_of_one_keeps_all_axes() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,6]) -> (%y) {
          const %w: f32[4,4,1,1]
          const %v: f32[4,6,1,1]
          const %places: f32[1,5,6,2]
          %c = conv(%x, %w) // "c"
          %a = transpose(%c) perm=[0,2,3,1] // "a"
          %s = concat(%a, %a, %places) axis=3 // "s"
          %t = slice(%s) begin=[0,0,0,4] count=[1,5,6,6] step=[1,1,1,1] // "t"
          %e = transpose(%t) perm=[0,3,1,2] // "e"
          %y = conv(%e, %v) // "y"
        }""")
    after = run(TURN_IMAGES, before).graph
    assert short(after)[1] == """%'s.turned = concat(%c, %c, %'places.turned) axis=1  // "s\""""
    assert after.type("places.turned").shape == (1, 2, 5, 6)


def test_of_two_transposes_of_one_image_an_output_keeps_its_name() -> None:
    before = between(
        "%b = relu(%a)", "%d = neg(%b)", "%f = transpose(%b) perm=[0,3,1,2]", "%g = transpose(%b) perm=[0,3,1,2]",
        "%s = sigmoid(%f)", outputs="(%y, %s, %g)",
    )  # fmt: skip
    assert short(run(TURN_IMAGES, before).graph)[1:4] == [
        """%g = relu(%c)  // "b", "f\"""",
        """%e = neg(%g)  // "d", "e\"""",
        """%s = sigmoid(%g)  // "s\"""",
    ]


def test_a_gate_of_means_over_pixels_is_turned_with_the_reshapes_around_its_products() -> None:
    before = between(
        "%m = reduce(%a) mode=mean axes=[1,2] keepdims=true", "%r = reshape(%m) shape=[2,4,1,1]",
        "%f = conv(%r, %w)", "%g = reshape(%f) shape=[2,1,1,4]", "%s = sigmoid(%g)", "%d = mul(%a, %s)",
    )  # fmt: skip
    assert short(run(TURN_IMAGES, before).graph) == [
        """%c = conv(%x, %w)  // "c\"""",
        """%r = reduce(%c) mode=mean axes=[2,3]  // "m", "r\"""",
        """%f = conv(%r, %w)  // "f\"""",
        """%'s.turned = sigmoid(%f)  // "s\"""",
        """%e = mul(%c, %'s.turned)  // "d", "e\"""",
        """%y = conv(%e, %w)  // "y\"""",
    ]


def test_a_mean_that_leaves_rows_needs_no_other_order() -> None:
    after = run(
        TURN_IMAGES,
        between("%d = relu(%a)", "%m = reduce(%d) mode=mean axes=[1,2] keepdims=false", outputs="(%y, %m)"),
    ).graph
    assert "%m = reduce(%e) mode=mean axes=[2,3] keepdims=false" in body(after)


def test_what_else_reads_the_image_finds_it_behind_one_transpose() -> None:
    before = between("%b = relu(%a)", "%d = neg(%b)", "%z = softmax(%b) axis=3", outputs="(%y, %z)")
    result = run(TURN_IMAGES, before)
    assert [line for line in body(result.graph).splitlines() if "transpose" in line] == [
        "%b = transpose(%'b.turned) perm=[0,2,3,1] @b.turn"
    ]
    assert said(result) == [("b", "turned with 1 other", SAVED.format("1 transpose"))]


def test_another_image_that_is_added_is_turned_where_that_pays() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,4,5,6], %other: f32[2,5,6,4]) -> (%y) {
          const %w: f32[4,4,1,1]
          %c = conv(%x, %w) // "c"
          %a = transpose(%c) perm=[0,2,3,1] // "a"
          %d = add(%a, %other) // "d"
          %e = transpose(%d) perm=[0,3,1,2] // "e"
          %y = conv(%e, %w) // "y"
        }""")
    result = run(TURN_IMAGES, before)
    assert short(result.graph)[1] == """%'other.turned = transpose(%other) perm=[0,3,1,2] @other.turn"""
    assert said(result) == [("d", "turned with 0 others", SAVED.format("1 transpose"))]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        # Keys of attention: no convolution is beside them.
        (
            """
        graph g batch=2 (%x: f32[2,4,5,6]) -> (%y) {
          %a = transpose(%x) perm=[0,2,3,1] // "a"
          %d = relu(%a) // "d"
          %e = transpose(%d) perm=[0,3,1,2] // "e"
          %y = softmax(%e) axis=3 // "y"
        }""",
            [],
        ),
        # As many transposes would come as go.
        (
            """
        graph g batch=2 (%x: f32[2,4,5,6]) -> (%d) {
          const %w: f32[4,4,1,1]
          %c = conv(%x, %w) // "c"
          %a = transpose(%c) perm=[0,2,3,1] // "a"
          %d = relu(%a) // "d"
        }""",
            [("d", "declined", "with channels second there would be as many transposes")],
        ),
        # Channels are normalised where they lie side by side.
        (
            """
        graph g batch=2 (%x: f32[2,4,5,6]) -> (%y) {
          const %w: f32[4,4,1,1]
          %c = conv(%x, %w) // "c"
          %a = transpose(%c) perm=[0,2,3,1] // "a"
          %d = norm(%a) statistic=variance axes=[3] // "d"
          %e = transpose(%d) perm=[0,3,1,2] // "e"
          %y = conv(%e, %w) // "y"
        }""",
            [],
        ),
    ],
)
def test_what_gains_nothing_stays(before: str, expected: list[tuple[str, str, str]]) -> None:
    result = run(TURN_IMAGES, graph(before))
    assert result.graph == graph(before)
    assert said(result) == expected


def drawn(data: st.DataObject) -> Graph:
    """Convolutions with channels last around them, and between them whatever works on images of one shape."""
    lines, images = ["%c = conv(%x, %w)", "%a = transpose(%c) perm=[0,2,3,1]"], ["a"]
    for index in range(data.draw(st.integers(2, 10))):
        x, y = (data.draw(st.sampled_from(images[-3:])) for _ in range(2))
        made, column = f"v{index}", data.draw(st.sampled_from(["one", "column", "row"]))
        lines += data.draw(st.sampled_from([
            [f"%{made} = relu(%{x})"], [f"%{made} = mul(%{x}, %{column})"], [f"%{made} = add(%{x}, %{y})"],
            [f"%{made} = norm(%{x}) statistic=variance axes=[3]"],
            [f"%{made}t = transpose(%{x}) perm=[0,3,1,2]", f"%{made}c = conv(%{made}t, %w)",
             f"%{made} = transpose(%{made}c) perm=[0,2,3,1]"],
            [f"%{made}m = reduce(%{x}) mode=mean axes=[1,2]", f"%{made}s = sigmoid(%{made}m)",
             f"%{made} = mul(%{x}, %{made}s)"],
            [f"%{made}j = concat(%{x}, %{y}) axis=3",
             f"%{made} = slice(%{made}j) begin=[0,0,0,1] count=[2,5,6,4] step=[1,1,1,1]"],
        ]))  # fmt: skip
        images.append(made)
    read = set(re.findall(r"%(\w+)", " ".join(line.partition("=")[2] for line in lines)))
    unread = [name for name in (line.split()[0][1:] for line in lines) if name not in read]
    nodes = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,5,6]) -> ({", ".join(f"%{name}" for name in unread)}) {{
          const %w: f32[4,4,1,1]
          const %one: f32[1]
          const %column: f32[4]
          const %row: f32[5,1,1]
          {nodes}
        }}""")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_values_stay_and_as_many_transposes_go_as_is_said(data: st.DataObject) -> None:
    before = drawn(data)
    result = run(TURN_IMAGES, before)

    def moves(of: Graph) -> int:
        return sum(
            isinstance(node.op, Transpose) and of.type(node.inputs[0]).shape != (2, 1, 1, 4) for node in of.nodes
        )

    turned = [reason for _, action, reason in said(result) if action != "declined"]
    counted = [int(reason.split(": ")[1].split()[0]) for reason in turned]
    assert moves(before) - moves(result.graph) == sum(counted)
