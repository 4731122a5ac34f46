"""Slices behind convolutions that cut off what padding added. Every run also compares all values."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fold.crops import FOLD_CROPS


def test_what_a_slice_cuts_off_of_a_convolution_is_not_computed() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,4,9]) -> (%y) {
          const %w: f32[3,4,3] #
          const %scale: f32[3] positive
          %c = conv(%x, %w) strides=[1] pads_begin=[4] pads_end=[4] dilations=[2] // "c"
          %n = batch_norm(%c, %scale, %scale, %scale, %scale) epsilon=1e-05 // "n"
          %r = relu(%n) // "r"
          %y = slice(%r) begin=[0,0,0] count=[2,3,9] step=[1,1,1] // "y"
        }""")
    result = run(FOLD_CROPS, before)
    assert body(result.graph).splitlines() == [
        """%'c.cropped = conv(%x, %w) strides=[1] pads_begin=[4] pads_end=[0] dilations=[2]  // "c\"""",
        """%'n.cropped = batch_norm(%'c.cropped, %scale, %scale, %scale, %scale) epsilon=1e-05  // "n\"""",
        """%y = relu(%'n.cropped)  // "r", "y\"""",
    ]
    assert said(result) == [("y", "folded", "'c' computes none of what it cuts off")]


def test_a_slice_takes_off_both_ends_of_a_stride() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,2,9,9]) -> (%y) {
          const %w: f32[3,2,4,4] #
          %c = conv(%x, %w) strides=[2,2] pads_begin=[3,2] pads_end=[3,3] // "c"
          %y = slice(%c) begin=[0,0,1,0] count=[1,3,4,5] step=[1,1,1,1] // "y"
        }""")
    result = run(FOLD_CROPS, before)
    assert body(result.graph) == (
        '%y = conv(%x, %w) strides=[2,2] pads_begin=[1,2] pads_end=[0,1] dilations=[1,1]  // "c", "y"'
    )


@pytest.mark.parametrize(
    ("cut", "reads", "reason"),
    [
        ("begin=[0,0,2] count=[1,3,6]", "%y", "it cuts off more than padding adds"),
        ("begin=[0,0,0] count=[1,3,6]", "%y", "it cuts off more than padding adds"),
        ("begin=[0,1,0] count=[1,2,7]", "%y", "it takes images or channels"),
        ("begin=[0,0,0] count=[1,3,7]", "%y, %c", "'c' is a graph output"),
    ],
)
def test_a_slice_of_more_than_a_border_stays(cut: str, reads: str, reason: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[1,2,8]) -> ({reads}) {{
          const %w: f32[3,2,3] #
          %c = conv(%x, %w) pads_begin=[1] pads_end=[1] // "c"
          %y = slice(%c) {cut} step=[1,1,1] // "y"
        }}""")
    result = run(FOLD_CROPS, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", f"cannot be part of 'c': {reason}")]
