"""Pads become the padding of windows behind them."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fold.pads import FOLD_PADS


def test_a_pad_with_zeros_becomes_the_convolutions_own() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,2,5,5]) -> (%y) {
          const %w: f32[3,2,3,3] #
          %a = pad(%x) begin=[0,0,1,2] end=[0,0,0,1] // "a"
          %y = conv(%a, %w) strides=[1,1] pads_begin=[1,0] pads_end=[1,0] dilations=[1,1] // "y"
        }""")
    result = run(FOLD_PADS, before)
    assert body(result.graph) == (
        '%y = conv(%x, %w) strides=[1,1] pads_begin=[2,2] pads_end=[1,1] dilations=[1,1] @y  // "a", "y"'
    )
    assert said(result) == [("a", "folded", "into the padding of 'y'")]


def test_a_pad_before_average_pooling_is_counted() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,2,5,5]) -> (%y) {
          %a = pad(%x) begin=[0,0,1,1] end=[0,0,1,1] // "a"
          %y = pool(%a) mode=average kernel=[3,3] strides=[2,2] // "y"
        }""")
    result = run(FOLD_PADS, before)
    assert "count_include_pad=true" in body(result.graph).lower()
    assert said(result) == [("a", "folded", "into the padding of 'y'")]


def test_a_pad_before_the_maximum_of_what_is_not_negative_becomes_padding() -> None:
    """The stem of HGNet V2: windows of two by two that keep the image's extents."""
    before = graph("""
        graph g batch=1 (%x: f32[1,2,5,5]) -> (%y) {
          %r = relu(%x) // "r"
          %a = pad(%r) begin=[0,0,0,0] end=[0,0,1,1] // "a"
          %y = pool(%a) mode=max kernel=[2,2] ceil_mode=true // "y"
        }""")
    result = run(FOLD_PADS, before)
    (line,) = body(result.graph).splitlines()[1:]
    assert line == (
        "%y = pool(%r) mode=max kernel=[2,2] strides=[1,1] pads_begin=[0,0] pads_end=[1,1] dilations=[1,1] "
        'ceil_mode=true @y  // "a", "y"'
    )
    assert said(result) == [("a", "folded", "into the padding of 'y'")]


@pytest.mark.parametrize(
    ("activation", "pad", "window", "reason"),
    [
        (
            "tanh",
            "end=[0,0,1,1]",
            "kernel=[2,2]",
            "max pooling pads with minus infinity, not with zeros, of which none is negative",
        ),
        ("relu", "end=[0,0,2,2]", "kernel=[2,2]", "the pad is as wide as the window"),
        (
            "relu",
            "end=[0,0,1,1]",
            "kernel=[2,2] strides=[5,5] ceil_mode=true",
            "with ceil_mode windows may start in the pad, but not in padding",
        ),
        (
            "relu",
            "end=[0,0,1,1]",
            "kernel=[2,2] dilations=[2,2]",
            "dilated windows may have no element of the image",
        ),
        (
            "clip",
            "end=[0,0,1,1]",
            "kernel=[2,2]",
            "max pooling pads with minus infinity, not with zeros, of which none is negative",
        ),
    ],
)
def test_zeros_that_count_for_a_maximum_stay(activation: str, pad: str, window: str, reason: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[1,2,5,5]) -> (%y) {{
          %r = {activation}(%x){" alpha=-1.0 beta=1.0" if activation == "clip" else ""} // "r"
          %a = pad(%r) begin=[0,0,0,0] {pad} // "a"
          %y = pool(%a) mode=max {window} // "y"
        }}""")
    result = run(FOLD_PADS, before)
    assert (result.graph, said(result)) == (before, [("a", "declined", f"{reason}: 'y'")])


@pytest.mark.parametrize(
    ("pad", "reader", "reason"),
    [
        ("begin=[0,0,1,1] end=[0,0,1,1] value=1.0", "conv(%a, %w)", "the pad is not with zeros: 'y'"),
        ("begin=[0,0,1,1] end=[0,0,1,1] mode=edge", "conv(%a, %w)", "the pad is not with zeros: 'y'"),
        ("begin=[0,0,1,1] end=[0,0,-1,1]", "conv(%a, %w)", "the pad crops: 'y'"),
        ("begin=[1,0,1,1] end=[0,0,0,0]", "conv(%a, %w)", "the pad reaches beyond the spatial axes: 'y'"),
        (
            "begin=[0,0,1,1] end=[0,0,1,1]", "pool(%a) mode=max kernel=[3,3]",
            "max pooling pads with minus infinity, not with zeros, of which none is negative: 'y'",
        ),
        (
            "begin=[0,0,1,1] end=[0,0,1,1]", "pool(%a) mode=average kernel=[3,3] pads_begin=[1,1]",
            "average pooling would count these zeros and not its own padding: 'y'",
        ),
        (
            "begin=[0,0,1,1] end=[0,0,1,1]", "pool(%a) mode=average kernel=[2,2] strides=[2,2] ceil_mode=true",
            "with ceil_mode windows may start in the pad, but not in padding: 'y'",
        ),
        (
            "begin=[0,0,2,0] end=[0,0,0,0]", "pool(%a) mode=average kernel=[2,2]",
            "the pad is as wide as the window: 'y'",
        ),
    ],
)  # fmt: skip
def test_a_pad_that_means_something_else_stays(pad: str, reader: str, reason: str) -> None:
    weight = "const %w: f32[3,2,3,3] #" if "%w" in reader else ""
    before = graph(f"""
        graph g batch=1 (%x: f32[1,2,5,5]) -> (%y) {{
          {weight}
          %a = pad(%x) {pad} // "a"
          %y = {reader} // "y"
        }}""")
    result = run(FOLD_PADS, before)
    assert result.graph == before
    assert said(result) == [("a", "declined", reason)]
