"""Col2Im as a sum of patches, a move, or a gather and a sum, against the onnx package's reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, refusals, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate


def fold(shape: tuple[int, ...], image: tuple[int, ...], block: tuple[int, ...], **attributes: object) -> ModelProto:
    constants = {"image": np.asarray(image, np.int64), "block": np.asarray(block, np.int64)}
    return model([node("Col2Im", "x image block", "y", **attributes)], [tensor("x", shape)], ["y"], constants, 18)


def added(x: Array, image: tuple[int, int], block: int, stride: int, spacing: int, pad: int) -> Array:
    """Every patch added at its place in a padded image, which then loses its pads."""
    batch, rows, _ = x.shape
    wide = np.zeros((batch, rows // block**2, image[0] + 2 * pad, image[1] + 2 * pad), np.float32)
    down, across = ((extent - spacing * (block - 1) - 1) // stride + 1 for extent in wide.shape[2:])
    patches = x.reshape(batch, -1, block, block, down, across)
    for i in range(block):
        for j in range(block):
            top, left = i * spacing, j * spacing
            end = top + (down - 1) * stride + 1, left + (across - 1) * stride + 1
            wide[:, :, top : end[0] : stride, left : end[1] : stride] += patches[:, :, i, j]
    return wide[:, :, pad : pad + image[0], pad : pad + image[1]]


@given(
    image=st.tuples(st.integers(4, 9), st.integers(4, 9)), block=st.integers(1, 3), stride=st.integers(1, 3),
    spacing=st.integers(1, 2), pad=st.integers(0, 2),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_overlaps_are_added(
    tmp_path_factory: pytest.TempPathFactory, image: tuple[int, int], block: int, stride: int, spacing: int, pad: int
) -> None:
    counts = [(extent + 2 * pad - spacing * (block - 1) - 1) // stride + 1 for extent in image]
    if min(counts) < 1:
        return
    x = np.random.RandomState(1).randint(-9, 9, (2, 3 * block**2, counts[0] * counts[1])).astype(np.float32)
    proto = fold(
        x.shape, image, (block, block), strides=[stride] * 2, dilations=[spacing] * 2, pads=[pad] * 4
    )  # fmt: skip
    graph = bound(tmp_path_factory.mktemp("fold"), proto, 2)
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], added(x, image, block, stride, spacing, pad))


def test_patches_beside_each_other_are_moved_alone(tmp_path: Path) -> None:
    """And one axis is enough."""
    graph = bound(tmp_path, fold((1, 6, 4), (8,), (2,), strides=[2]))
    assert [each.op.kind for each in graph.nodes] == ["reshape", "transpose", "reshape"]
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    wanted = x.reshape(1, 3, 2, 4).transpose(0, 1, 3, 2).reshape(1, 3, 8)
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], wanted)


@pytest.mark.parametrize(
    ("proto", "said"),
    [
        (fold((1, 8, 9), (4, 4), (2,)),
         "an image of 2 axes has other numbers of patches' axes, strides, dilations or pads"),
        (fold((1, 8, 9), (4, 4), (2, 2), strides=[0, 1]),
         "extents, strides and dilations must be at least 1, pads at least 0"),
        (fold((1, 9, 9), (4, 4), (2, 2)), "[1, 9, 9] are no patches [2, 2] at [3, 3] places"),
        (fold((1, 8, 8), (4, 4), (2, 2)), "[1, 8, 8] are no patches [2, 2] at [3, 3] places"),
    ],
    ids=["axes", "stride", "channels", "places"],
)  # fmt: skip
def test_what_does_not_fit_is_said(proto: ModelProto, said: str, tmp_path: Path) -> None:
    assert refusals(tmp_path, proto) == [("shape-mismatch", f"Col2Im 'Col2Im_0': {said}")]


def test_overlaps_are_one_node_and_integers_are_gathered(tmp_path: Path) -> None:
    graph = bound(tmp_path, fold((1, 18, 9), (3, 3), (3, 3), pads=[1] * 4))
    assert [each.op.kind for each in graph.nodes] == ["patch_sum"]
    (tmp_path / "integers").mkdir()
    shapes = {"image": np.asarray((3, 3), np.int64), "block": np.asarray((3, 3), np.int64)}
    given = tensor("x", (1, 18, 9), TensorProto.INT32)
    proto = model([node("Col2Im", "x image block", "y", pads=[1] * 4)], [given], ["y"], shapes, 18)
    graph = bound(tmp_path / "integers", proto)
    assert [each.op.kind for each in graph.nodes] == ["reshape", "pad", "gather", "reshape", "reduce", "reshape"]
    x = np.arange(162, dtype=np.int32).reshape(1, 18, 9)
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], added(x, (3, 3), 3, 1, 1, 1))


def test_tables_have_a_limit(tmp_path: Path) -> None:
    said = "Col2Im 'Col2Im_0': 33554432 elements of patches are more than can be put back"
    proto = fold((1, 2, 1 << 24), (64, 64, 64, 65), (1, 1, 1, 2))
    assert refusals(tmp_path, proto) == [("model-too-large", said)]
