"""Taps of a window that read nothing but padding are left out."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.align.trim_windows import TRIM_WINDOWS
from bolt_build.planner.passes.images.fold_columns import FOLD_COLUMNS


def convolution(image: str, pads: int, dilation: int = 1, stride: int = 1, computed: bool = False) -> Graph:
    """One of a window of 3 x 3."""
    weight = "%w: f32[8,8,3,3]"
    head = f"graph g batch=1 (%x: f32[1,8,{image}]{', ' + weight if computed else ''}) -> (%y) {{"
    window = f"pads_begin=[{pads},{pads}] pads_end=[{pads},{pads}] dilations=[{dilation},{dilation}]"
    return graph(f"""
        {head}
          {"" if computed else "const " + weight}
          %y = conv(%x, %w) {window} strides=[{stride},{stride}] | relu // "c"
        }}""")


@pytest.mark.parametrize(
    ("before", "window"),
    [
        (convolution("1,1", pads=1), "1x1"),
        (convolution("9,9", pads=12, dilation=12), "1x1"),
        (convolution("2,1", pads=1), "3x1"),
        (convolution("1,2", pads=1, stride=2), "1x2"),
    ],
    ids=["one pixel", "dilated", "one column", "stride"],
)  # fmt: skip
def test_taps_that_read_padding_alone_are_left_out(before: Graph, window: str) -> None:
    result = run(TRIM_WINDOWS, before)
    ((subject, action, reason),) = said(result)
    assert (subject, action, reason) == ("c", f"trimmed its 3x3 window to {window}", "other taps read padding")
    (node,) = result.graph.nodes
    assert result.graph.type(node.inputs[1]).shape == (8, 8, *map(int, window.split("x")))


def test_a_window_whose_taps_all_read_the_image_stays() -> None:
    before = convolution("7,7", pads=1)
    assert said(run(TRIM_WINDOWS, before)) == []


def test_computed_weights_are_left_whole_and_the_pass_says_so() -> None:
    before = convolution("1,1", pads=1, computed=True)
    reason = "taps of its 3x3 window read padding alone, but its weights are computed"
    assert said(run(TRIM_WINDOWS, before)) == [("c", "declined", reason)]


def test_blocks_of_columns_that_a_narrow_image_has_not_are_left_out() -> None:
    """Nine columns are a window of three blocks of eight; seven columns are one block."""
    folded = run(FOLD_COLUMNS, graph("""
        graph g batch=1 (%x: f32[1,4,7,7]) -> (%y) {
          const %w: f32[4,1,9,9]
          %y = conv(%x, %w) groups=4 pads_begin=[4,4] pads_end=[4,4] // "c"
        }""")).graph  # fmt: skip
    assert said(run(TRIM_WINDOWS, folded)) == [("c.wide", "trimmed its 9x3 window to 9x1", "other taps read padding")]
