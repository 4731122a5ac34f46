"""Windows over spatial axes: which cells of the input any of them reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, of
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.graph.ir import TensorType
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.reference import evaluate
from bolt_build.graph.windows import Steps, Windows


def test_a_1x1_with_a_stride_reads_every_second_row_and_column() -> None:
    conv = Conv((2, 2), (0, 0), (0, 0), (1, 1))
    x, w = TensorType(DType.F16, (2, 8, 5, 6)), TensorType(DType.F16, (4, 8, 1, 1))
    assert x.elements - conv.unread([x, w]) == 2 * 8 * 3 * 3


def test_windows_that_touch_each_other_read_everything() -> None:
    conv = Conv((2, 2), (1, 1), (1, 1), (1, 1))
    assert conv.unread([TensorType(DType.F16, (1, 8, 7, 7)), TensorType(DType.F16, (4, 8, 3, 3))]) == 0


def test_where_maxima_are_found_reads_what_the_maxima_do() -> None:
    window, x = ((1, 1), (2, 2), (0, 0), (0, 0), (1, 1)), TensorType(DType.F32, (2, 8, 5, 6))
    for op in (Pool("max", *window), PoolPlaces(*window), LpPool(2, *window)):
        assert x.elements - op.unread([x]) == 2 * 8 * 3 * 3


@given(
    extent=st.integers(1, 12), kernel=st.integers(1, 4), stride=st.integers(1, 5), begin=st.integers(0, 3),
    end=st.integers(0, 3), dilation=st.integers(1, 3), ceil_mode=st.booleans(),
)  # fmt: skip
def test_cells_are_those_that_the_windows_show(
    extent: int, kernel: int, stride: int, begin: int, end: int, dilation: int, ceil_mode: bool
) -> None:
    windows = Windows((kernel,), (stride,), (begin,), (end,), (dilation,), ceil_mode)
    if extent + begin + end < windows.reach[0]:
        return
    out = windows.output_shape((extent,))
    cells = np.arange(1, extent + 1, dtype=np.float32).reshape(1, 1, extent)
    seen = set(windows.view(windows.pad(cells, out, 0.0), out).ravel().tolist()) - {0.0}
    assert windows.touched((extent,)) == len(seen)


@given(
    count=st.integers(0, 12), stride=st.integers(1, 9), taps=st.integers(0, 12), dilation=st.integers(1, 9),
    limit=st.integers(-5, 200),
)  # fmt: skip
def test_places_of_windows_are_counted_once(count: int, stride: int, taps: int, dilation: int, limit: int) -> None:
    places = {i * stride + j * dilation for i in range(count) for j in range(taps)}
    assert Steps(count, stride, taps, dilation).places_below(limit) == sum(place < limit for place in places)


def test_cells_of_an_axis_that_nobody_could_visit() -> None:
    """Every second of 2^50 cells, and all that padding beyond them leaves."""
    assert Windows((1,), (2,), (0,), (0,), (1,)).touched((1 << 50,)) == 1 << 49
    assert Windows((3,), (1,), (1 << 40,), (1 << 40,), (1,)).touched((1 << 50,)) == 1 << 50
    assert Windows((1 << 30,), (1,), (0,), (0,), (1 << 10,)).touched((1 << 50,)) == 1 << 50


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool", "LpPool"])
def test_one_window_that_is_larger_than_the_image_sees_all_of_it(operator: str, tmp_path: Path) -> None:
    """EfficientNet of transformers ends with windows of as many cells as there are channels, by ceil_mode."""
    opset = 22
    pool = node(operator, "x", "y", kernel_shape=[2560, 9], strides=[2560, 4], ceil_mode=1)
    graph = bound(tmp_path, model([pool], opset=opset))
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    whole = {"AveragePool": x.mean((2, 3)), "MaxPool": x.max((2, 3)), "LpPool": np.sqrt(np.square(x).sum((2, 3)))}
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"][:, :, 0, 0], whole[operator], rtol=1e-6)
    far = node(operator, "x", "y", kernel_shape=[20, 20], strides=[1, 1], ceil_mode=1)
    reason = "a window of 20 does not fit the 8 cells of spatial axis 0 (padding included)"
    assert of(tmp_path, model([far], opset=opset)) == [("shape-mismatch", f"{operator} '{operator}_0': {reason}")]
