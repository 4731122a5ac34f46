"""Grids, middles, unpooled maxima and reversed sequences, made of operators that exist, against loops and NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, refusals, tensor
from onnx import ModelProto, TensorProto

from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate


def grid(theta: tuple[int, ...], size: tuple[int, ...], **attributes: object) -> ModelProto:
    nodes = [node("AffineGrid", "theta size", "y", **attributes)]
    return model(nodes, [tensor("theta", theta)], constants={"size": np.asarray(size)}, opset=20)


def centred(x: tuple[int, ...], shape: tuple[int, ...], **attributes: object) -> ModelProto:
    nodes = [node("CenterCropPad", "x shape", "y", **attributes)]
    return model(nodes, [tensor("x", x)], constants={"shape": np.asarray(shape)}, opset=18)


def unpooled(x: tuple[int, ...], shape: tuple[int, ...] | None = None, **attributes: object) -> ModelProto:
    nodes = [node("MaxUnpool", "x i" if shape is None else "x i shape", "y", **attributes)]
    inputs = [tensor("x", x), tensor("i", x, TensorProto.INT64)]
    return model(nodes, inputs, constants={} if shape is None else {"shape": np.asarray(shape)})


def reversed_(x: tuple[int, ...], lengths: list[int] | None, **attributes: int) -> ModelProto:
    nodes = [node("ReverseSequence", "x lengths", "y", **attributes)]
    inputs = [tensor("x", x)]
    if lengths is None:
        return model(nodes, [*inputs, tensor("lengths", [x[attributes["batch_axis"]]], TensorProto.INT64)])
    return model(nodes, inputs, constants={"lengths": np.asarray(lengths, np.int64)})


def uniform(*shape: int) -> Array:
    return np.random.RandomState(1).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("spatial", [(3, 5), (2, 3, 4), (1, 4)], ids=str)
@pytest.mark.parametrize("aligned", [0, 1])
def test_identity_is_the_grid_of_centres_x_first(tmp_path: Path, spatial: tuple[int, ...], aligned: int) -> None:
    axes = len(spatial)
    theta = np.eye(axes, axes + 1, dtype=np.float32)[None].repeat(2, 0)
    theta[1, :, -1] = 10
    found = evaluate(bound(tmp_path, grid(theta.shape, (2, 1, *spatial), align_corners=aligned), 2), {"theta": theta})
    for place in np.ndindex(*spatial):
        cells = list(zip(place, spatial, strict=True))
        wanted = [2 * i / (n - 1) - 1 if aligned and n > 1 else (2 * i + 1) / n - 1 for i, n in reversed(cells)]
        np.testing.assert_allclose(found["y"][(0, *place)], wanted, atol=1e-6)
        np.testing.assert_allclose(found["y"][(1, *place)], np.asarray(wanted) + 10, atol=1e-5)


def test_odd_rests_are_cut_and_padded_behind(tmp_path: Path) -> None:
    x = uniform(1, 4, 7, 3)
    graph = bound(tmp_path, centred(x.shape, (6, 4), axes=[-1, 2]))
    assert [each.op.kind for each in graph.nodes] == ["slice", "pad"]
    wanted = np.pad(x[:, :, 1:5], [(0, 0)] * 3 + [(1, 2)])
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], wanted)


@pytest.mark.parametrize(("shape", "kinds"), [((1, 3), ["slice"]), ((1, 9), ["pad"]), ((1, 5), ["identity"])], ids=str)
def test_what_is_needed_alone_is_done(tmp_path: Path, shape: tuple[int, ...], kinds: list[str]) -> None:
    assert [each.op.kind for each in bound(tmp_path, centred((1, 5), shape)).nodes] == kinds


def test_unpooling_undoes_a_pooling(tmp_path: Path) -> None:
    """Of windows beside each other: each greatest element is where it was, among zeros."""
    x = uniform(2, 3, 4, 6)
    windows = x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 2, 4, 3, 5).reshape(2, 3, 2, 3, 4)
    places = np.arange(x.size).reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 2, 4, 3, 5).reshape(windows.shape)
    at = windows.argmax(-1)[..., None]
    pooled, indices = (np.take_along_axis(each, at, -1)[..., 0] for each in (windows, places))
    for shape in (None, x.shape):
        graph = bound(tmp_path, unpooled(pooled.shape, shape, kernel_shape=[2, 2], strides=[2, 2]), 2)
        found = evaluate(graph, {"x": pooled, "i": indices})["y"]
        np.testing.assert_array_equal(found, np.where(np.isin(np.arange(x.size).reshape(x.shape), indices), x, 0))
    assert all(value.constant is None for value in graph.values if value.type.shape != (4,))


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("data", [False, True], ids=["constant", "data"])
def test_each_sequence_is_turned_by_its_length(tmp_path: Path, batch: int, data: bool) -> None:
    lengths, x = [4, 0, 1, 3], uniform(4, 4, 2)
    proto = reversed_(x.shape, None if data else lengths, batch_axis=batch, time_axis=1 - batch)
    graph = bound(tmp_path, proto, 4)
    assert data or [each.op.kind for each in graph.nodes] == ["gather_nd"]
    given = {"x": x} | ({"lengths": np.asarray(lengths, np.int64)} if data else {})
    rows = x.swapaxes(0, batch)
    wanted = np.stack([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(rows, lengths, strict=True)])
    np.testing.assert_array_equal(evaluate(graph, given)["y"], wanted.swapaxes(0, batch))


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (grid((1, 2, 3), (1, 1, 4)), "shape-mismatch",
         "AffineGrid 'AffineGrid_0': the size [1, 1, 4] is not of a batch, channels and two or three axes"),
        (grid((1, 2, 4), (1, 1, 4, 4)), "shape-mismatch",
         "AffineGrid 'AffineGrid_0': theta [1, 2, 4] must be [1, 2, 3] for the size [1, 1, 4, 4]"),
        (centred((1, 5), (3,)), "shape-mismatch",
         "CenterCropPad 'CenterCropPad_0': the shape [3] must have an extent for each of 2 axes"),
        (unpooled((1, 1, 2, 2), (1, 1, 5, 5), kernel_shape=[2, 2], strides=[2, 2]), "unsupported-op",
         ("MaxUnpool 'MaxUnpool_0': the output [1, 1, 5, 5] is not [1, 1, 4, 4]: of which the indices are, "
          "runtimes disagree")),
        (unpooled((1, 1, 2), kernel_shape=[2, 2]), "shape-mismatch",
         "MaxUnpool 'MaxUnpool_0': x [1, 1, 2] and indices [1, 1, 2] do not fit windows of 2 axes"),
        (reversed_((1, 4, 2), [5], batch_axis=0, time_axis=1), "shape-mismatch",
         "ReverseSequence 'ReverseSequence_0': a length of 5 to 5 lies outside of 4 steps"),
        (reversed_((1, 4, 2), [4], time_axis=2, batch_axis=1), "shape-mismatch",
         "ReverseSequence 'ReverseSequence_0': time_axis 2 and batch_axis 1 must be the first two axes of [1, 4, 2]"),
    ],
    ids=["size", "theta", "extents", "output", "windows", "length", "axes"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, proto: ModelProto, code: str, said: str) -> None:
    assert refusals(tmp_path, proto) == [(code, said)]


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_products_are_of_what_stands_before(tmp_path: Path, reverse: int, exclusive: int) -> None:
    nodes = [node("CumProd", "x axis", "y", reverse=reverse, exclusive=exclusive)]
    graph = bound(tmp_path, model(nodes, [tensor("x", (2, 4))], constants={"axis": np.asarray(-1)}, opset=26), 2)
    x = uniform(2, 4)
    found = evaluate(graph, {"x": x})["y"]
    for row, column in np.ndindex(2, 4):
        rest = x[row, column + exclusive :] if reverse else x[row, : column + 1 - exclusive]
        assert found[row, column] == pytest.approx(np.prod(rest))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_leave_no_bit_beyond_the_width(tmp_path: Path, direction: str) -> None:
    """As of integers without bounds, cut off at their width; by a negative number as by all bits."""
    inputs = [tensor(name, (1, 8), TensorProto.INT8) for name in ("x", "by")]
    graph = bound(tmp_path, model([node("BitShift", "x by", "y", direction=direction)], inputs))
    x = np.asarray([[1, -1, -128, 127, 5, -5, -7, 64]], np.int8)
    by = np.asarray([[7, 7, 1, 1, 8, 127, -1, 0]], np.int8)
    steps = [int(each) if each >= 0 else 8 for each in by[0]]
    wanted = [int(a) << b if direction == "LEFT" else int(a) >> b for a, b in zip(x[0], steps, strict=True)]
    found = evaluate(graph, {"x": x, "by": by})["y"]
    np.testing.assert_array_equal(found[0].astype(int), [(each + 128) % 256 - 128 for each in wanted])


def test_a_shift_has_a_direction(tmp_path: Path) -> None:
    proto = model([node("BitShift", "x x", "y", direction="UP")], [tensor("x", (1, 8), TensorProto.INT8)])
    said = "BitShift 'BitShift_0': direction 'UP' is neither LEFT nor RIGHT"
    assert refusals(tmp_path, proto) == [("invalid-node", said)]
