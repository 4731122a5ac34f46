"""A convolution of an image's phases reads the image itself."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold.phases import JOIN_PHASES

PLAIN = "conv(%c, %w, %b) pads_begin=[1,1] pads_end=[1,1]"


def focused(product: str = PLAIN, parts: str = "%p, %q, %r, %s", outputs: str = "%y", height: int = 8) -> Graph:
    """As YOLOX begins."""
    half = f"count=[1,3,{height // 2},5] step=[1,1,2,2]"
    return graph(f"""
        graph g batch=1 (%x: f32[1,3,{height},10], %z: f32[1,3,4,5]) -> ({outputs}) {{
          const %w: f32[2,12,3,3] #
          const %h: f32[4,6,3,3] #
          const %b: f32[2] #
          %p = slice(%x) begin=[0,0,0,0] {half} // "p"
          %q = slice(%x) begin=[0,0,1,0] {half} // "q"
          %r = slice(%x) begin=[0,0,0,1] {half} // "r"
          %s = slice(%x) begin=[0,0,1,1] {half} // "s"
          %c = concat({parts}) axis=1 // "c"
          %y = {product} // "y"
        }}""")


def test_the_window_is_over_the_image_and_has_a_stride() -> None:
    before = focused()
    result = run(JOIN_PHASES, before)
    assert body(result.graph) == (
        "%y = conv(%x, %'w.phases, %b) strides=[2,2] pads_begin=[2,2] pads_end=[2,2] dilations=[1,1] @y  // "
        '"p", "q", "r", "s", "c", "y"'
    )
    given, made = before.constant("w"), result.graph.constant("w.phases")
    assert given is not None
    assert made is not None
    assert made.shape == (2, 3, 6, 6)
    np.testing.assert_array_equal(made[:, :, 1::2, ::2], given[:, 3:6])
    assert said(result) == [("y", "reads", "'x' itself, not its 4 phases")]


@pytest.mark.parametrize(
    "product", ["conv(%c, %w) strides=[2,1] pads_begin=[1,0] pads_end=[0,1]", "conv(%c, %w)", f"{PLAIN} strides=[3,3]"]
)
def test_strides_and_pads_of_one_side(product: str) -> None:
    assert [node.op.kind for node in run(JOIN_PHASES, focused(product)).graph.nodes] == ["conv"]


def test_a_phase_that_is_taken_twice_is_multiplied_twice() -> None:
    kinds = [node.op.kind for node in run(JOIN_PHASES, focused(parts="%p, %q, %q, %s")).graph.nodes]
    assert kinds == ["slice", "conv"]  # the one that nothing reads


@pytest.mark.parametrize(
    ("product", "outputs", "reason"),
    [
        ("conv(%c, %h) groups=2", "%y", "the convolution is grouped or dilated"),
        ("conv(%c, %w) dilations=[1,2]", "%y", "the convolution is grouped or dilated"),
        (PLAIN, "%y, %c", "'c' is a graph output"),
        (f"{PLAIN} | relu", "%y", "'y' already has an epilogue"),
    ],
)
def test_what_keeps_phases(product: str, outputs: str, reason: str) -> None:
    before = focused(product, outputs=outputs)
    result = run(JOIN_PHASES, before)
    assert (result.graph, said(result)) == (before, [("y", "declined", f"stays behind the phases of 'x': {reason}")])


@pytest.mark.parametrize(("parts", "height"), [("%p, %q, %r, %z", 8), ("%p, %q, %r, %s", 9)])
def test_other_tensors_and_rows_that_are_left_over_are_no_phases(parts: str, height: int) -> None:
    kept = focused(parts=parts, height=height)
    assert (said(run(JOIN_PHASES, kept)), run(JOIN_PHASES, kept).graph) == ([], kept)
