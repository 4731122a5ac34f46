"""Depthwise convolutions with very large windows become ones with groups of eight, over blocks of columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.images.fold_columns import FOLD_BEYOND_BANDS, FOLD_COLUMNS
from bolt_build.targets import target_named


def depthwise(
    kernel: str = "9,9", x: str = "2,3,16,16", pads: str = "4,4", strides: str = "1,1", dilations: str = "1,1",
    ends: str = "",
) -> Graph:  # fmt: skip
    sides = f"strides=[{strides}] dilations=[{dilations}] pads_begin=[{pads}] pads_end=[{ends or pads}]"
    return graph(f"""
        graph g batch=2 (%x: f32[{x}]) -> (%y) {{
          const %w: f32[3,1,{kernel}]
          const %b: f32[3]
          %y = conv(%x, %w, %b) {sides} groups=3 | relu // "c"
        }}""")


def agrees(before: Graph, after: Graph) -> None:
    random = np.random.default_rng(1)
    x = {name: random.standard_normal(before.type(name).shape).astype(np.float32) for name in before.inputs}
    np.testing.assert_allclose(evaluate(after, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-5)


def test_columns_become_channels() -> None:
    before = depthwise()
    result = run(FOLD_COLUMNS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["rearrange", "conv", "rearrange"]
    assert said(result) == [
        ("c", "folded columns into channels", "a window of 9 columns is one of 3 blocks of 8"),
    ]
    agrees(before, result.graph)


def test_rows_of_a_high_window_become_channels() -> None:
    """SLaK's strips of 51 rows and 5 columns are blocks of rows: those of columns would have more zeros than taps."""
    before = depthwise("51,5", "2,3,40,13", "25,2")
    result = run(FOLD_COLUMNS, before)
    assert [node.op.kind for node in result.graph.nodes] == ["rearrange", "conv", "rearrange"]
    assert said(result) == [("c", "folded rows into channels", "a window of 51 rows is one of 9 blocks of 8")]
    assert result.graph.nodes[0].op.infer([before.type("x")])[0].shape == (2, 24, 5, 13)
    agrees(before, result.graph)


def test_a_residual_goes_with_it() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,12,13]) -> (%y) {
          const %w: f32[3,1,9,9]
          %y = conv(%x, %w, %x) pads_begin=[4,4] pads_end=[4,4] groups=3 | add(%x@2) | relu // "c"
        }""")
    result = run(FOLD_COLUMNS, before)
    assert [node.op.kind for node in result.graph.nodes] == [
        "pad", "rearrange", "pad", "rearrange", "conv", "rearrange", "slice",
    ]  # fmt: skip
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("taps", "columns", "folded"),
    [
        (41, 1 << 19, True), (39, 1 << 19, False), (41, 4096, False),
        (31, 3 << 19, True), (29, 3 << 19, False), (31, (3 << 19) + 1, False),
    ],
)  # fmt: skip
def test_fewer_taps_do_along_one_axis_of_large_images(taps: int, columns: int, folded: bool) -> None:
    """As in encoders of speech. The blocks of a window of rows and columns have more zeros."""
    pads = f"pads_begin=[{taps // 2}] pads_end=[{taps // 2}]"
    before = graph(f"""
        graph g batch=1 (%x: f32[1,3,{columns}]) -> (%y) {{
          const %w: f32[3,1,{taps}]
          %y = conv(%x, %w) groups=3 strides=[1] dilations=[1] {pads} // "c"
        }}""")
    assert (FOLD_COLUMNS.run(before, POLICY).graph != before) is folded


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (depthwise(strides="1,2"), "its window moves by 2 columns"),
        (depthwise(kernel="11,9", pads="5,4", strides="2,1"), "its window moves by 2 rows"),
        (depthwise(x="2,3,9,90", pads="0,0", ends="0,0", kernel="9,9", dilations="1,1"), None),
        (depthwise(kernel="7,7", pads="3,3"), None),
    ],
)
def test_others(before: Graph, why: str | None) -> None:
    result = run(FOLD_COLUMNS, before)
    if why is not None:
        assert said(result) == [("c", "declined", why)]
        assert result.graph == before
    agrees(before, result.graph)


@settings(max_examples=40, deadline=None)
@given(
    taps=st.integers(9, 40), rows=st.sampled_from((0, 9)), dilation=st.integers(1, 3), begin=st.integers(0, 20),
    end=st.integers(0, 20), width=st.integers(1, 30), down=st.integers(1, 2), high=st.booleans(),
)  # fmt: skip
def test_any_window_gives_the_same(
    taps: int, rows: int, dilation: int, begin: int, end: int, width: int, down: int, high: bool
) -> None:
    """Over a line, where `rows` is 0, and over an image, along which the window is wide or high."""
    reach = (taps - 1) * dilation + 1
    end = max(end, reach - width - begin)
    if rows:
        pairs = ((rows, taps), (11, width), (2, begin), (down, 1), (1, dilation), (3, end))
        kernel, x, begins, strides, dilations, ends = (
            ",".join(map(str, pair[::-1] if high else pair)) for pair in pairs
        )
        before = depthwise(kernel, f"2,3,{x}", begins, strides, dilations, ends)
    else:
        taps, end = taps + 71, max(end, (taps + 70) * dilation + 1 - width - begin)
        before = depthwise(f"{taps}", f"2,3,{width}", f"{begin}", "1", f"{dilation}", f"{end}")
    after = run(FOLD_COLUMNS, before).graph
    (conv,) = (node.op for node in after.nodes if isinstance(node.op, Conv))
    assert conv.groups == 3
    agrees(before, after)


@pytest.mark.parametrize(("window", "channels", "sides", "stays"), [
    ((9, 9), 4, {}, True), ((13, 13), 4, {}, True), ((11, 17), 4, {}, True), ((13, 13), 3, {}, False),
    ((15, 9), 4, {}, False), ((9, 19), 4, {}, False), ((9, 9), 4, {"dilations": "2,2"}, True),
    ((9, 10), 4, {"dilations": "1,2"}, False),
    ((1, 81), 4, {}, False),
])  # fmt: skip
def test_windows_that_kernels_in_bands_take_stay_where_there_are_some(
    window: tuple[int, int], channels: int, sides: dict[str, str], stays: bool
) -> None:
    high, wide = window
    dilations = sides.get("dilations", "1,1")
    pads = ",".join(str((taps - 1) * int(gap) // 2) for taps, gap in zip(window, dilations.split(","), strict=True))
    before = graph(f"""
        graph g batch=2 (%x: f32[2,{channels},24,88]) -> (%y) {{
          const %w: f32[{channels},1,{high},{wide}]
          %y = conv(%x, %w) dilations=[{dilations}] pads_begin=[{pads}] pads_end=[{pads}] groups={channels} // "c"
        }}""")
    result = run(FOLD_BEYOND_BANDS, before)
    assert (result.graph == before) is stays
    if stays:
        assert said(result) == [("c", "declined", f"a kernel in bands takes its window of {high} by {wide}")]
    assert run(FOLD_COLUMNS, before).graph != before


def test_bands_come_with_ampere_and_with_half_precision() -> None:
    kinds = [("t4", "fp16"), ("a100", "fp16"), ("h200", "bf16"), ("host", "fp32")]
    targets = [(target_named(name), precision) for name, precision in kinds]
    assert [FOLD_BEYOND_BANDS.pays_on(*each) for each in targets] == [False, True, True, False]
    assert [FOLD_COLUMNS.pays_on(*each) for each in targets] == [True, False, False, False]
