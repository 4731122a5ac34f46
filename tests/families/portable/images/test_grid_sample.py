"""GridSample: the reference against onnxruntime, and its kernels against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from families_harness import Input, Layer, Library, kernels_of
from graph_models import bound, model, node, refusals, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from bolt_build.families.portable.family import Portable
from bolt_build.graph.ops.images.grid_sample import MODES, PADDINGS, GridSample
from bolt_build.graph.reference import evaluate

LAYERS = [
    Layer(f"grid-{mode}-{padding}-{align}", GridSample(mode, padding, align),
          (Input((2, 3, 5, 4)), Input((2, 3, 6, 2), low=-1.6, high=1.6)), tolerance=1e-4)
    for mode, padding, align in (
        ("nearest", "zeros", False), ("linear", "reflection", False), ("cubic", "border", True),
    )
] + [
    Layer("grid-line", GridSample("linear", "border"), (Input((1, 2, 9)), Input((1, 5, 1))), tolerance=1e-4),
    Layer("grid-volume", GridSample(), (Input((2, 2, 3, 4, 5)), Input((2, 2, 3, 2, 3), low=-1.2, high=1.2)),
          tolerance=1e-4),
    Layer("grid-infinite-in-one-row", GridSample(align_corners=True),
          (Input((2, 3, 1, 4)), Input((2, 3, 6, 2), low=-1.6, high=1.6, hidden=1)), tolerance=1e-4),
]  # fmt: skip
KERNELS = kernels_of(LAYERS, [Portable()])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(KERNELS, tmp_path_factory.mktemp("grids"))


@pytest.mark.parametrize("index", range(len(KERNELS)), ids=lambda index: KERNELS[index].label)
def test_kernels_agree_with_the_reference(library: Library, index: int) -> None:
    result, wanted = library.run(index, 2)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def sampled(x: tuple[int, ...], grid: tuple[int, ...], **attributes: object) -> ModelProto:
    return model([node("GridSample", "x grid", "y", **attributes)], [tensor("x", x), tensor("grid", grid)], opset=16)


@given(
    mode=st.sampled_from(["nearest", "bilinear", "bicubic"]), padding=st.sampled_from(PADDINGS), align=st.booleans(),
    height=st.integers(1, 6), width=st.integers(1, 6),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_agrees_with_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory, mode: str, padding: str, align: bool, height: int, width: int
) -> None:
    proto = sampled((2, 3, height, width), (2, 4, 5, 2), mode=mode, padding_mode=padding, align_corners=int(align))
    random = np.random.RandomState(3)
    inputs = {
        "x": random.uniform(-1, 1, (2, 3, height, width)).astype(np.float32),
        "grid": random.uniform(-1.7, 1.7, (2, 4, 5, 2)).astype(np.float32),
    }
    graph = bound(tmp_path_factory.mktemp("grid"), proto, 2)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, inputs)
    np.testing.assert_allclose(evaluate(graph, inputs)["y"], wanted, rtol=1e-4, atol=1e-4)


STRANGE = np.asarray([np.nan, np.inf, -np.inf, 1e30, 3e9, 0], np.float32)


def at_strange_places(align: bool, padding: str, width: int) -> list[float]:
    """What lies at the places of `STRANGE` in a row of 1, 2, ..."""
    x = np.arange(1, width + 1, dtype=np.float32).reshape(1, 1, width)
    (found,) = GridSample("linear", padding, align).evaluate([x, STRANGE.reshape(1, -1, 1)])
    return found.ravel().tolist()


def test_every_place_of_one_aligned_element_is_this_element() -> None:
    """RAFT divides by an extent less one: the last level of its pyramid may have an extent of one."""
    assert at_strange_places(align=True, padding="zeros", width=1) == [1, 1, 1, 1, 1, 1]


def test_what_is_no_number_lies_in_front_of_everything() -> None:
    assert at_strange_places(align=True, padding="zeros", width=3) == [0, 0, 0, 0, 0, 2]
    assert at_strange_places(align=False, padding="border", width=3) == [1, 3, 1, 3, 3, 2]


def test_every_mode_has_a_kernel() -> None:
    assert {layer.op.mode for layer in LAYERS if isinstance(layer.op, GridSample)} == set(MODES)


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (sampled((1, 3, 4, 4), (1, 4, 5, 3)), "shape-mismatch",
         "GridSample 'GridSample_0': the grid [1, 4, 5, 3] has no places in [1, 3, 4, 4]"),
        (sampled((1, 3, 4, 4), (1, 4, 5, 2), mode="area"), "unsupported-attribute",
         "GridSample 'GridSample_0': mode 'area' is none of bilinear, bicubic, linear, cubic, nearest"),
        (sampled((1, 3, 4, 4), (1, 4, 5, 2), padding_mode="wrap"), "unsupported-attribute",
         "GridSample 'GridSample_0': padding_mode 'wrap' is none of zeros, border, reflection"),
    ],
    ids=["grid", "mode", "padding"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, proto: ModelProto, code: str, said: str) -> None:
    assert refusals(tmp_path, proto) == [(code, said)]
