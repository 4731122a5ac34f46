"""RoiAlign, MaxRoiPool and DeformConv against onnxruntime. `test_families_portable.py` tries their kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from graph_models import bound, model, node, refusals, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate


def compared(folder: Path, proto: ModelProto, inputs: dict[str, Array], batch: int = 2) -> None:
    graph = bound(folder, proto, batch)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, inputs)
    np.testing.assert_allclose(evaluate(graph, inputs)["y"], wanted, rtol=1e-4, atol=1e-4)


def aligned(
    x: tuple[int, ...], regions: tuple[int, ...], images: int, opset: int = 16, **attributes: object
) -> ModelProto:
    ports = [tensor("x", x), tensor("rois", regions), tensor("of", [images], TensorProto.INT64)]
    return model([node("RoiAlign", "x rois of", "y", "align", **attributes)], ports, opset=opset)


@given(
    seed=st.integers(0, 1 << 20), ratio=st.sampled_from([0, 1, 2, 4]),
    cells=st.tuples(*[st.sampled_from([1, 2, 4])] * 2),
    extents=st.tuples(st.integers(1, 9), st.integers(1, 9)), scale=st.sampled_from([0.25, 0.5, 1.0, 4.0]),
    mode=st.sampled_from(["avg", "max"]), pixels=st.sampled_from(["half_pixel", "output_half_pixel"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_regions_agree_with_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ratio: int, cells: tuple[int, int], extents: tuple[int, int],
    scale: float, mode: str, pixels: str,
) -> None:  # fmt: skip
    """Regions in eighths of pixels, whose samples lie exactly where both compute them."""
    random = np.random.RandomState(seed)
    corners = np.sort(random.randint(-40, 120, (5, 2, 2)), 1) / 8
    regions = corners.reshape(5, 4).astype(np.float32)
    attributes = {
        "output_height": cells[0], "output_width": cells[1], "sampling_ratio": ratio, "spatial_scale": scale,
        "mode": mode, "coordinate_transformation_mode": pixels,
    }  # fmt: skip
    inputs = {
        "x": random.uniform(-1, 1, (2, 3, *extents)).astype(np.float32), "rois": regions,
        "of": random.randint(0, 2, 5),
    }  # fmt: skip
    compared(tmp_path_factory.mktemp("regions"), aligned((2, 3, *extents), (5, 4), 5, **attributes), inputs)


def pooled(x: tuple[int, ...], regions: tuple[int, ...], cells: tuple[int, ...], scale: float = 1.0) -> ModelProto:
    ports = [tensor("x", x), tensor("rois", regions)]
    return model([node("MaxRoiPool", "x rois", "y", "pool", pooled_shape=cells, spatial_scale=scale)], ports)


@given(
    seed=st.integers(0, 1 << 20), cells=st.tuples(*[st.integers(1, 5)] * 2),
    extents=st.tuples(st.integers(1, 12), st.integers(1, 12)), scale=st.sampled_from([0.0625, 0.25, 0.5, 1.0]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_cells_of_regions_agree_with_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cells: tuple[int, int], extents: tuple[int, int], scale: float
) -> None:
    """Corners in halves of pixels, inside of the image and outside."""
    random = np.random.RandomState(seed)
    corners = np.sort(random.randint(-10, 40, (5, 2, 2)), 1).reshape(5, 4) / 2 / scale
    rois = np.concatenate([random.randint(0, 3, (5, 1)), corners], 1).astype(np.float32)
    inputs = {"x": random.uniform(-1, 1, (3, 2, *extents)).astype(np.float32), "rois": rois}
    compared(tmp_path_factory.mktemp("cells"), pooled((3, 2, *extents), (5, 5), cells, scale), inputs, 3)


@given(
    seed=st.integers(0, 1 << 20), kernel=st.tuples(*[st.integers(1, 3)] * 2),
    strides=st.tuples(*[st.integers(1, 2)] * 2),
    dilations=st.tuples(*[st.integers(1, 2)] * 2), pads=st.tuples(*[st.integers(0, 2)] * 4),
    groups=st.sampled_from([1, 2]), own=st.sampled_from([1, 2, 4]), masked=st.booleans(), bias=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_deformed_convolutions_agree_with_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kernel: tuple[int, int], strides: tuple[int, int],
    dilations: tuple[int, int], pads: tuple[int, ...], groups: int, own: int, masked: bool, bias: bool,
) -> None:  # fmt: skip
    random = np.random.RandomState(seed)
    extents, taps = (7, 6), own * kernel[0] * kernel[1]
    places = [
        (extents[a] + pads[a] + pads[2 + a] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1 for a in range(2)
    ]
    shapes = {"x": (2, 4, *extents), "w": (6, 4 // groups, *kernel), "offset": (2, 2 * taps, *places)}
    shapes |= {"b": (6,)} if bias else {}
    shapes |= {"mask": (2, taps, *places)} if masked else {}
    inputs = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["offset"] *= 3
    names = f"x w offset {'b' if bias else '-'} {'mask' if masked else '-'}"
    attributes = {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads, "group": groups,
        "offset_group": own,
    }  # fmt: skip
    ports = [tensor(name, shape) for name, shape in shapes.items() if name not in ("w", "b")]
    constants = {name: inputs.pop(name) for name in ("w", "b") if name in inputs}
    deformed = node("DeformConv", names, "y", **attributes)
    compared(tmp_path_factory.mktemp("deformed"), model([deformed], ports, constants=constants, opset=19), inputs)


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (aligned((1, 3, 4, 4), (5, 4), 4), "shape-mismatch",
         "RoiAlign 'align': regions [5, 4] of images [4] are no [R, 4] and [R] in [1, 3, 4, 4]"),
        (aligned((1, 3, 4, 4), (5, 4), 5, mode="sum"), "unsupported-attribute",
         "RoiAlign 'align': mode 'sum' is none of avg, max"),
        (aligned((1, 3, 4, 4), (5, 4), 5, sampling_ratio=65), "shape-mismatch",
         "RoiAlign 'align': 1 by 1 cells of 65 samples are not supported"),
        (pooled((1, 3, 4, 4), (5, 4), (2, 2)), "shape-mismatch",
         "MaxRoiPool 'pool': regions [5, 4] are no [R, 5], or [2, 2] no rows and columns of cells"),
        (model([node("DeformConv", "x w o", "y", "deform")],
               [tensor("x", [1, 4, 5, 5]), tensor("w", [2, 4, 3, 3]), tensor("o", [1, 18, 4, 3])], opset=19),
         "shape-mismatch", "DeformConv 'deform': offsets [1, 18, 4, 3] must be of [3, 3] places"),
        (model([node("DeformConv", "x w o", "y", "deform", offset_group=2)],
               [tensor("x", [1, 4, 5, 5]), tensor("w", [2, 4, 3, 3]), tensor("o", [1, 18, 3, 3])], opset=19),
         "shape-mismatch", "DeformConv 'deform': offsets [1, 18, 3, 3] must be [1, 36, 3, 3]"),
    ],
    ids=["images", "mode", "samples", "cells", "places", "groups"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, proto: ModelProto, code: str, said: str) -> None:
    assert refusals(tmp_path, proto) == [(code, said)]
