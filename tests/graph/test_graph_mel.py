"""MelWeightMatrix is a constant; what it cannot be made of is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model


def weights(folder: Path, bands: int, length: int, rate: int, lowest: float, highest: float, **given: int) -> Array:
    """What a product with the matrix multiplies by."""
    names = ("bands", "length", "rate", "lowest", "highest")
    arrays = [np.int64(bands), np.int64(length), np.int64(rate), np.float32(lowest), np.float32(highest)]
    constants = [numpy_helper.from_array(np.asarray(a), n) for a, n in zip(arrays, names, strict=True)]
    nodes = [
        helper.make_node("MelWeightMatrix", names, ["mel"], name="mel", **given),
        helper.make_node("MatMul", ["x", "mel"], ["y"], name="product"),
    ]
    info = helper.make_tensor_value_info
    ports = [info("x", TensorProto.FLOAT, [1, length // 2 + 1])], [info("y", TensorProto.FLOAT, [1, bands])]
    graph = helper.make_graph(nodes, "net", *ports, constants)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "net.onnx")
    (product,) = load_model(folder / "net.onnx").bind(1).nodes
    constant = load_model(folder / "net.onnx").bind(1).value(product.inputs[1]).constant
    assert constant is not None
    return constant.array


def test_bands_of_a_spectrogram_of_speech_are_triangles_that_meet(tmp_path: Path) -> None:
    made = weights(tmp_path, 40, 400, 16000, 20.0, 7600.0)
    assert made.shape == (201, 40)
    assert made.dtype == np.float32
    assert np.all(made.max(0) == 1.0)
    assert np.all(made >= 0.0)
    peaks = made.argmax(0)
    assert np.all(np.diff(peaks) >= 0)
    # Between two peaks one band falls as the next one rises.
    between = slice(peaks[0], peaks[-1] + 1)
    wide = np.flatnonzero(np.diff(peaks, prepend=-1) > 0)
    assert np.allclose(made[between][:, wide].sum(1), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (40, 400, 8000, 20.0, 7600.0),
            "MelWeightMatrix 'mel': bands from 20.0 to 7600.0 Hz reach beyond the 201 frequencies at a rate of 8000",
        ),
        (
            (0, 400, 16000, 20.0, 7600.0),
            "MelWeightMatrix 'mel': 0 bands from 20.0 to 7600.0 Hz of 400 samples at a rate of 16000",
        ),
    ],
)
def test_bands_that_cannot_be_are_refused(
    arguments: tuple[int, int, int, float, float], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BoltError) as caught:
        weights(tmp_path, *arguments)
    assert message in [each.message for each in caught.value.diagnostics]


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(BoltError) as caught:
        weights(tmp_path, 4, 16, 8000, 0.0, 4000.0, output_datatype=TensorProto.INT32)
    assert [each.message for each in caught.value.diagnostics] == [
        "MelWeightMatrix 'mel': element type i32 is not supported"
    ]
