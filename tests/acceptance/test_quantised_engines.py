"""Quantised models built from short recipes: right ones agree with onnxruntime, and a kernel's wrong rounding is named.

One model has what exporters write for a network of each kind, side by side: a convolution between pairs that quantise
and go back, convolutions of integers, and a product whose input's range is found while it runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from engine_builds import build_engine, edited, passing_engine
from graph_models import model, node, tensor
from onnx import TensorProto

from bolt_build.errors import ExitCode
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array
from bolt_build.runtime.loader import Engine

CHANNELS, DEPTH, COLUMNS = 8, 24, 10


def quantised_net() -> onnx.ModelProto:
    """Outputs "scores" of the image, in float, and "product" of the words, in float."""
    draw = np.random.RandomState(3)

    def whole(*shape: int) -> Array:
        return draw.randint(-127, 128, shape).astype(np.int8)

    constants: dict[str, Array] = {
        "image.s": np.float32(0.03), "image.z": np.uint8(120), "conv.s": np.float32(0.05), "conv.z": np.uint8(0),
        "w1": whole(CHANNELS, 3, 3, 3), "w1.s": np.linspace(0.002, 0.004, CHANNELS, dtype=np.float32),
        "w1.z": np.zeros(CHANNELS, np.int8), "b1": draw.randn(CHANNELS).astype(np.float32),
        "w2": whole(CHANNELS, 1, 3, 3), "w2.s": np.linspace(0.003, 0.005, CHANNELS, dtype=np.float32),
        "b2": draw.randint(-900, 900, CHANNELS).astype(np.int32), "each.s": np.float32(0.04), "each.z": np.uint8(131),
        "w3": whole(12, CHANNELS, 1, 1), "w3.s": np.float32(0.006), "w3.z": np.int8(2), "mix.s": np.float32(0.06),
        "mix.z": np.uint8(125), "w4": whole(DEPTH, COLUMNS), "w4.s": np.float32(0.01), "w4.z": np.int8(0),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "image image.s image.z", "image.q", "image/round"),
        node("DequantizeLinear", "image.q image.s image.z", "image.r", "image/back"),
        node("DequantizeLinear", "w1 w1.s w1.z", "w1.r", "w1/back", axis=0),
        node("Conv", "image.r w1.r b1", "conv.y", "conv", pads=[1, 1, 1, 1]),
        node("Relu", "conv.y", "relu.y", "relu"),
        node("QuantizeLinear", "relu.y conv.s conv.z", "conv.q", "relu/round"),
        node("QLinearConv", "conv.q conv.s conv.z w2 w2.s w1.z each.s each.z b2", "each.q", "each",
             pads=[1, 1, 1, 1], group=CHANNELS, strides=[2, 2]),
        node("QLinearConv", "each.q each.s each.z w3 w3.s w3.z mix.s mix.z", "mix.q", "mix"),
        node("DequantizeLinear", "mix.q mix.s mix.z", "scores", "mix/back"),
        node("DynamicQuantizeLinear", "words", "words.q words.s words.z", "words/round"),
        node("MatMulInteger", "words.q w4 words.z w4.z", "sums", "sums"),
        node("Cast", "sums", "sums.f", "sums/float", to=TensorProto.FLOAT),
        node("Mul", "words.s w4.s", "both.s", "scales"),
        node("Mul", "sums.f both.s", "product", "product"),
    ]  # fmt: skip
    inputs = [tensor("image", ["N", 3, 9, 7]), tensor("words", ["N", 5, DEPTH])]
    return model(nodes, inputs, ("scores", "product"), constants)


def test_a_quantised_model_becomes_a_right_engine(tmp_path: Path, cache: Path) -> None:
    with passing_engine(tmp_path / "p", "quantised", quantised_net(), cache, batch=[1, 3]) as built:
        assert [batch.batch for batch in built.report.batches] == [1, 3]
        checked = {layer.name for layer in built.report.batches[0].layers}
        assert {"each", "mix", "product"} <= checked, checked
        feeds = {
            "image": np.linspace(-3, 3, 3 * 3 * 9 * 7, dtype=np.float32).reshape(3, 3, 9, 7),
            "words": np.sin(np.arange(3 * 5 * DEPTH, dtype=np.float32)).reshape(3, 5, DEPTH),
        }
        with Engine(built.library) as engine, engine.create(built.weights) as loaded, loaded.context(3) as context:
            found = context.run(feeds)
        steps = found["scores"] / np.float32(0.06)
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)  # scores are whole steps, of which many differ
        assert len(np.unique(np.rint(steps))) > 20
        exact = feeds["words"].astype(np.float64) @ weights_of_the_product()
        error = np.abs(found["product"] - exact)
        assert 0 < error.max() < 0.004 * np.abs(weights_of_the_product()).sum(0).max()  # half a step of the words


def weights_of_the_product() -> Array:
    stored = next(each for each in quantised_net().graph.initializer if each.name == "w4")
    return np.asarray(onnx.numpy_helper.to_array(stored).astype(np.float64) * 0.01)


RESCALED = "static_cast<float>(sum) * (a * b / y)"


@pytest.mark.large
@pytest.mark.parametrize(
    ("right", "wrong", "layer"),
    [
        pytest.param("std::rint(quotient)", "std::trunc(quotient)", "image/round", id="towards-zero"),
        pytest.param(RESCALED, f"{RESCALED} + 0.3f", "mix", id="sums-upwards", marks=pytest.mark.large),
    ],
)
def test_a_kernel_that_rounds_wrongly(
    right: str, wrong: str, layer: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = edited(Portable().include_dir, tmp_path / "include", ("bolt_portable/quantize.h", right, wrong))
    monkeypatch.setattr(Portable, "include_dir", property(lambda self: folder))
    built = build_engine(tmp_path / "p", "quantised", quantised_net(), cache)
    assert built.result.exit_code is ExitCode.VERIFY_FAILED
    assert built.first_departures == [layer]
