"""Convolutions whose filters are data are products of windows and filters."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Pad, Reshape, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.rows.multiply_windows import MULTIPLY_WINDOWS
from bolt_build.targets import target_named

AS_IT_IS = "dilations=[1,1] pads_begin=[0,0] pads_end=[0,0] strides=[1,1]"
DID = ("made a product of windows and filters", "its filters are data")


def multiplied(before: str) -> list[Op]:
    """The operators behind the pass."""
    result = run(MULTIPLY_WINDOWS, graph(before))
    assert [each[1:] for each in said(result)] == [DID]
    return [node.op for node in result.graph.nodes]


def test_images_with_filters_of_their_own_are_matrices_of_a_batch() -> None:
    """Dynamic convolution: a batch of two is one image with groups."""
    ops = multiplied("""
        graph g batch=2 (%x: f32[1,16,5,6], %w: f32[16,8,3,3]) -> (%y) {
          %y = conv(%x, %w) dilations=[1,1] groups=2 pads_begin=[1,1] pads_end=[1,1] strides=[1,1] // "y"
        }""")
    assert ops == [
        Pad((0, 0, 1, 1), (0, 0, 1, 1)), Reshape((1, 16, 56)), Gather(2), Reshape((1, 2, 72, 30)),
        Reshape((1, 2, 8, 72)), MatMul(), Reshape((1, 16, 5, 6)),
    ]  # fmt: skip


def test_a_window_of_one_pixel_reads_the_image_as_it_lies() -> None:
    ops = multiplied("""
        graph g batch=1 (%x: f32[2,16,5,6], %w: f32[3,16,1,1], %b: f32[3]) -> (%y) {
          %y = conv(%x, %w, %b) dilations=[1,1] groups=1 pads_begin=[0,0] pads_end=[0,0] strides=[1,1] // "y"
        }""")
    assert [type(op).__name__ for op in ops] == ["Reshape", "Reshape", "MatMul", "Reshape", "Reshape", "Binary"]


@pytest.mark.parametrize(
    ("shape", "window", "how"),
    [
        ("2,4,19", "8,4,5", "dilations=[2] groups=1 pads_begin=[3] pads_end=[0] strides=[3]"),
        ("1,8,9,7", "16,4,1,1", "dilations=[1,1] groups=2 pads_begin=[0,0] pads_end=[0,0] strides=[2,2]"),
        ("1,4,5,4,3", "8,4,3,1,2", "dilations=[1,2,1] groups=1 pads_begin=[1,0,1] pads_end=[0,0,2] strides=[1,2,1]"),
    ],
)
def test_strides_dilations_and_lopsided_pads_of_lines_images_and_volumes(
    shape: str, window: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.rows.multiply_windows._DEPTH", 1)
    multiplied(f"""
        graph g batch=1 (%x: f32[{shape}], %w: f32[{window}]) -> (%y) {{
          %y = conv(%x, %w) {how} // "y"
        }}""")


def test_one_filter_of_few_elements_weighs_columns() -> None:
    """A tracker's template of each channel: a row is no work for a product."""
    ops = multiplied(f"""
        graph g batch=1 (%x: f32[1,16,9,9], %w: f32[16,1,4,4]) -> (%y) {{
          %y = conv(%x, %w) {AS_IT_IS} groups=16 // "y"
        }}""")
    assert ops == [
        Reshape((1, 16, 81)), Gather(2), Reshape((1, 16, 16, 36)), Reshape((1, 16, 16, 1)), Binary("mul"),
        Reduce("sum", (2,), True), Reshape((1, 16, 6, 6)),
    ]  # fmt: skip


def test_few_filters_of_many_channels_multiply_pixels_tap_by_tap() -> None:
    """A tracker's template of all channels: windows would be 16 times the image."""
    ops = multiplied(f"""
        graph g batch=2 (%x: f32[2,64,9,9], %w: f32[2,32,4,4]) -> (%y) {{
          %y = conv(%x, %w) {AS_IT_IS} groups=2 // "y"
        }}""")
    assert ops == [
        Reshape((2, 2, 32, 81)), Reshape((2, 1, 32, 16)), Transpose((0, 1, 3, 2)), Reshape((1, 2, 16, 32)), MatMul(),
        Reshape((2, 2, 1296)), Gather(2), Reduce("sum", (2,), False), Reshape((2, 2, 6, 6)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "window", "how"),
    [
        ("2,40,19", "2,20,5", "dilations=[2] groups=2 pads_begin=[3] pads_end=[1] strides=[1]"),
        ("1,64,9,7", "8,64,3,2", "dilations=[1,2] groups=1 pads_begin=[1,0] pads_end=[0,2] strides=[1,1]"),
        ("1,128,9,8", "2,64,2,3", "dilations=[1,1] groups=2 pads_begin=[0,1] pads_end=[0,1] strides=[2,1]"),
    ],
)
def test_taps_of_strides_dilations_and_pads_are_added_up(
    shape: str, window: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.rows.multiply_windows._DEEP", 20)
    ops = multiplied(f"""
        graph g batch=1 (%x: f32[{shape}], %w: f32[{window}], %b: f32[{window.split(",")[0]}]) -> (%y) {{
          %y = conv(%x, %w, %b) {how} // "y"
        }}""")
    assert Reduce("sum", (2,), False) in ops


def test_many_filters_of_as_many_channels_multiply_windows() -> None:
    ops = multiplied("""
        graph g batch=1 (%x: f32[1,32,9,9], %w: f32[32,32,3,3]) -> (%y) {
          %y = conv(%x, %w) dilations=[1,1] groups=1 pads_begin=[1,1] pads_end=[1,1] strides=[1,1] // "y"
        }""")
    assert not any(isinstance(op, Reduce) for op in ops)


def test_few_filters_and_small_windows_stay_with_their_reasons() -> None:
    """Heads that mix a few channels."""
    result = run(
        MULTIPLY_WINDOWS,
        graph(f"""
        graph g batch=1 (%x: f32[1,16,9,9], %w: f32[4,16,2,2], %v: f32[8,4,1,1]) -> (%y, %z) {{
          %y = conv(%x, %w) {AS_IT_IS} groups=1 // "y"
          %s = slice(%x) begin=[0,0,0,0] count=[1,4,9,9] step=[1,1,1,1] // "s"
          %z = conv(%s, %v) {AS_IT_IS} groups=1 // "z"
        }}"""),
    )
    assert said(result) == [
        ("y", "declined", "its filters are data, but a group has 4 of them, columns are stored for one, or 8 and more"),
        ("z", "declined", "its filters are data, but a window has 4 elements, products are for 16 and more"),
    ]


def test_an_image_with_too_large_a_table_stays() -> None:
    result = run(
        MULTIPLY_WINDOWS,
        graph("""
        graph g batch=1 (%x: f32[1,4,1024,1024], %w: f32[8,4,3,3]) -> (%y) {
          %y = conv(%x, %w) dilations=[1,1] groups=1 pads_begin=[1,1] pads_end=[1,1] strides=[1,1] // "y"
        }"""),
    )
    assert said(result) == [
        ("y", "declined", "its filters are data, but windows have 9437184 elements a channel, tables name 4194304")
    ]


def test_doubles_and_constant_filters_stay() -> None:
    how = "dilations=[1] groups=1 pads_begin=[0] pads_end=[0] strides=[1]"
    result = run(
        MULTIPLY_WINDOWS,
        graph(f"""
        graph g batch=1 (%x: f64[1,16,9], %w: f64[8,16,3]) -> (%y) {{
          %y = conv(%x, %w) {how} // "y"
        }}"""),
    )
    assert said(result) == [("y", "declined", "its filters are data, but products are not for f64")]
    constant = run(
        MULTIPLY_WINDOWS,
        graph(f"""
        graph g batch=1 (%x: f32[1,16,9]) -> (%y) {{
          const %w: f32[8,16,3]
          %y = conv(%x, %w) {how} // "y"
        }}"""),
    )
    assert said(constant) == []


def test_hosts_keep_the_convolution() -> None:
    assert MULTIPLY_WINDOWS.pays_on is not None
    assert [MULTIPLY_WINDOWS.pays_on(target_named(name), "fp16") for name in ("h200", "t4")] == [True, True]
    assert not MULTIPLY_WINDOWS.pays_on(target_named("host"), "fp32")
