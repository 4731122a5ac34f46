"""Elementwise steps behind poolings, which their kernels compute on GPUs. Every run also compares all values."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fuse.window_epilogues import FUSE_WINDOWS

WINDOW = "mode=average kernel=[3,3] strides=[1,1] pads_begin=[1,1] pads_end=[1,1]"
SCALED = f"""
    graph g batch=2 (%x: f32[2,8,9,9]) -> (%y) {{
      const %s: f32[1,8,1,1] #
      %z = abs(%x) // "z"
      %p = pool(%z) {WINDOW} // "p"
      %y = mul(%p, %s) | relu // "y"
    }}"""


def test_constants_of_channels_and_activations_are_part_of_the_pooling() -> None:
    result = run(FUSE_WINDOWS, graph(SCALED))
    assert body(result.graph).splitlines()[1] == (
        f'%y = pool(%z, %s) {WINDOW} dilations=[1,1] | mul(%s) | relu @y  // "p", "y"'
    )
    assert said(result) == [("y", "fused", "into the epilogue of 'p'")]


def test_a_difference_may_have_the_means_on_its_right() -> None:
    before = graph(SCALED.replace("mul(%p, %s)", "sub(%s, %p)"))
    result = run(FUSE_WINDOWS, before)
    assert "| sub(%s) swapped | relu" in body(result.graph)


def test_an_activation_is_computed_too() -> None:
    before = graph(SCALED.replace("mul(%p, %s) | relu", "relu(%p)"))
    result = run(FUSE_WINDOWS, before)
    assert "| relu" in body(result.graph)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("%z = abs(%x)", "const %w: f32[8,8,1,1]\n %z = conv(%x, %w)",
         "stays out of 'p': 'z' and the pooling of its maxima may be one kernel"),
        ("[2,8,9,9]", "[2,3,9,9]",
         "stays out of 'p': 3 channels are no whole loads, and kernels of planes pool alone"),
        ("-> (%y)", "-> (%y, %p)", "stays out of 'p': 'p' is a graph output"),
        ("| relu", "| relu | tanh | relu | tanh", "stays out of 'p': its epilogue would have more than 4 stages"),
        ("%s: f32[1,8,1,1]", "%s: f32[1,1,9,9]",
         "stays out of 'p': 's' is no constant of each channel: a step of its own reads it faster"),
        ("mul(%p, %s)", "sub(%p, %x)",
         "stays out of 'p': 'x' is no constant of each channel: a step of its own reads it faster"),
    ],
)  # fmt: skip
def test_others_stay_apart(old: str, new: str, reason: str) -> None:
    text = SCALED.replace(old, new)
    text = text.replace("f32[1,8,1,1]", "f32[1,3,1,1]") if "[2,3,9,9]" in new else text
    before = graph(text.replace("average", "max") if "conv" in new else text)
    result = run(FUSE_WINDOWS, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", reason)]
