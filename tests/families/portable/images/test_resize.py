"""Resize: the reference against onnxruntime, wherever the text of ONNX leaves them no choice."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from graph_models import bound, resize
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.images.resample import MOST_TAPS, RESAMPLE_IMAGES

EXTENT = st.integers(1, 7)
FACTOR = st.sampled_from([0.5, 1.0, 2.0, 4.0])
"""Exact in floating point: no two libraries round the place of a result differently."""
WAYS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric")
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def same_as_onnxruntime(folder: pytest.TempPathFactory, proto: ModelProto, x: object) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    found = evaluate(bound(folder.mktemp("resize"), proto), {"x": np.asarray(x)})["y"]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@given(EXTENT, EXTENT, st.sampled_from(["nearest", "linear", "cubic"]), st.sampled_from(WAYS), st.data())
@settings(max_examples=60, deadline=None)
def test_agrees_with_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory, height: int, width: int, mode: str, way: str, data: st.DataObject
) -> None:
    """By factors, and for all but the nearest by extents, whose quotients put results where rounding decides."""
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = data.draw(st.sampled_from(NEAREST))
    shape = (1, 2, height, width)
    if mode != "nearest" and data.draw(st.booleans()):
        proto = resize(shape, "sizes", [1, 2, data.draw(EXTENT), data.draw(EXTENT)], **attributes)
    else:
        factors = [1.0, 1.0, *(data.draw(FACTOR) if extent > 1 else 2.0 for extent in (height, width))]
        proto = resize(shape, "scales", np.asarray(factors, np.float32), **attributes)
    same_as_onnxruntime(tmp_path_factory, proto, np.random.RandomState(0).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("opset", [11, 17], ids=["where ONNX has it", "where files have it too"])
def test_nearest_pixels_as_tensorflow_finds_them(tmp_path_factory: pytest.TempPathFactory, opset: int) -> None:
    way = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    x = np.random.RandomState(0).normal(size=(1, 2, 7, 9)).astype(np.float32)
    proto = resize(x.shape, "sizes", [1, 2, 4, 13], opset, mode="nearest", **way)
    if opset == 11:  # nothing may be left out there
        proto.graph.node[0].input[:] = ["x", "none", "none", "asked"]
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), "none"))
    same_as_onnxruntime(tmp_path_factory, proto, x)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_one_result_of_pytorch_s_half_pixels_is_the_first_element(
    tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    """Also where a factor makes 1.5 elements, of which one is left."""
    x = np.asarray([[[[1, 2, 4], [3, 5, 9]]]], np.float32)
    for asked in (np.asarray([1, 1, 1, 0.5], np.float32), np.asarray([1, 1, 1, 0.4], np.float32)):
        proto = resize(x.shape, "scales", asked, mode=mode, coordinate_transformation_mode="pytorch_half_pixel")
        found = evaluate(bound(tmp_path_factory.mktemp("one"), proto), {"x": x})["y"]
        np.testing.assert_array_equal(found, x[..., :1])
        same_as_onnxruntime(tmp_path_factory, proto, x)


@pytest.mark.parametrize(("opset", "factors"), [(18, (0.4, 0.6, 1.3, 1.7)), (19, (1.3, 1.7))])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_aligned_corners_lie_at_the_last_result_whatever_the_factor(
    tmp_path_factory: pytest.TempPathFactory, mode: str, opset: int, factors: tuple[float, ...]
) -> None:
    """As PyTorch has them, where a factor makes no whole number. ONNX's cases of opset 19 have smaller images
    otherwise, and are followed there."""
    x = np.random.RandomState(0).normal(size=(1, 1, 10, 11)).astype(np.float32)
    for factor in factors:
        asked = np.asarray([1, 1, factor, factor], np.float32)
        proto = resize(x.shape, "scales", asked, opset, mode=mode, coordinate_transformation_mode="align_corners")
        same_as_onnxruntime(tmp_path_factory, proto, x)


@pytest.mark.parametrize("factor", [0.4, 0.6, 1.0, 1.3, 2.3])
def test_crops_have_as_many_steps_as_results_whatever_the_factor(
    tmp_path_factory: pytest.TempPathFactory, factor: float
) -> None:
    """A factor rarely makes a whole number of what is cropped."""
    x = np.random.RandomState(0).normal(size=(1, 1, 4, 5)).astype(np.float32)
    asked = np.asarray([1, 1, 2.0, factor], np.float32)
    proto = resize(x.shape, "scales", asked, coordinate_transformation_mode="tf_crop_and_resize", mode="linear")
    proto.graph.node[0].input[1] = "roi"
    proto.graph.initializer.append(numpy_helper.from_array(np.asarray([0, 0, 0.1, 0, 1, 1, 0.9, 1], np.float32), "roi"))
    same_as_onnxruntime(tmp_path_factory, proto, x)


@pytest.mark.parametrize("way", ["asymmetric", "half_pixel"])
def test_the_nearest_place_is_found_in_single_precision(tmp_path_factory: pytest.TempPathFactory, way: str) -> None:
    """Result 3 of a factor of 0.6 lies at 5, and in double precision right before it; 0.7 makes 7 of 10 elements."""
    x = np.random.RandomState(0).normal(size=(1, 1, 10, 11)).astype(np.float32)
    for factor in (0.3, 0.6, 0.7, 1.1, 1.3):
        asked = np.asarray([1, 1, factor, factor], np.float32)
        for nearest in NEAREST:
            attributes = {"mode": "nearest", "coordinate_transformation_mode": way, "nearest_mode": nearest}
            same_as_onnxruntime(tmp_path_factory, resize(x.shape, "scales", asked, **attributes), x)


ONCE = (*WAYS, "align_corners", "tf_crop_and_resize")


@given(st.tuples(EXTENT, EXTENT), st.tuples(st.integers(1, 15), st.integers(1, 15)), st.sampled_from(ONCE), st.data())
@settings(max_examples=80, deadline=None)
def test_one_step_along_both_axes_has_the_values_of_two(
    tmp_path_factory: pytest.TempPathFactory,
    extents: tuple[int, int],
    made: tuple[int, int],
    way: str,
    data: st.DataObject,
) -> None:
    """What GPUs have: in every mode, also where a region reaches beyond the image, or is turned round."""
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"]))
    attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": way}
    if mode != "nearest":
        attributes["antialias"] = data.draw(st.integers(0, 1))
        attributes["exclude_outside"] = data.draw(st.integers(0, 1))
    proto = resize((1, 3, *extents), "sizes", [1, 3, *made], **attributes)
    if way == "tf_crop_and_resize":
        region = np.asarray(
            [0, 0, *data.draw(st.tuples(*[st.sampled_from([-0.3, 0.1, 0.9, 1.4])] * 4)), 1, 1], np.float32
        )
        proto.graph.initializer.append(numpy_helper.from_array(region[[0, 1, 2, 3, 6, 7, 4, 5]], "region"))
        proto.graph.node[0].input[1] = "region"
    before = bound(tmp_path_factory.mktemp("once"), proto)
    after = RESAMPLE_IMAGES.run(before, POLICY).graph
    x = {"x": np.random.RandomState(0).normal(size=(1, 3, *extents)).astype(np.float32)}
    np.testing.assert_allclose(evaluate(after, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-5)
    kinds = [node.op.kind for node in after.nodes]
    assert kinds.count("interpolate") + kinds.count("resample") + kinds.count("gather") <= 1 or _many(before)


def _many(graph: Graph) -> bool:
    """True where a result has more neighbours than a kernel keeps, or where neighbours are taken in falling order."""
    tables = [graph.constant(node.inputs[1]) for node in graph.nodes if node.op.kind in ("interpolate", "gather")]
    assert all(table is not None for table in tables)
    wide = any(table.ndim == 2 and table.shape[1] > MOST_TAPS for table in tables if table is not None)
    return wide or any(table.ndim == 1 and (np.diff(table) < 0).any() for table in tables if table is not None)
