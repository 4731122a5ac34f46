"""The zoo's ResNet-50: the same bytes everywhere, torchvision's graph, and outputs that depend on the input."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper
from zoo_checks import assert_depends_on_its_input

from bolt_build.errors import BoltError
from bolt_build.graph import zoo

STATISTICS = "e0c081b6f1818fbeb5c042ca6f9f716d8ec7fe21b47e1a2d2ba075d44e3e7439"
"""Of every BatchNorm mean and variance and the classifier's bias: what a machine that rounds otherwise would change."""
WEIGHTS = "34db853614350edcda8d0b06c20b5b552082f1a4894a2339920325b5ae64e799"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zoo") / "made" / "resnet50.onnx"
    zoo.write("resnet50", path)
    return path


@pytest.fixture(scope="module")
def model(path: Path) -> onnx.ModelProto:
    return onnx.load(path)


def content(model: onnx.ModelProto, *, statistics: bool) -> str:
    """Digest of the calibrated initializers, or of the drawn ones."""
    found = hashlib.sha256()
    for item in model.graph.initializer:
        if statistics == item.name.endswith(("running_mean", "running_var", "fc.bias", "fc.weight")):
            found.update(item.name.encode() + numpy_helper.to_array(item).tobytes())
    return found.hexdigest()


def test_a_model_is_written_the_same_again_and_nothing_else_is_left(tmp_path: Path) -> None:
    """The smallest one: of others the digests say so."""
    for name in ("again.onnx", "once.onnx"):
        zoo.write("mobilenet_v3_small", tmp_path / name)
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "once.onnx").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["again.onnx", "once.onnx"]


@pytest.mark.large
def test_weights_and_statistics_are_those_of_every_machine(model: onnx.ModelProto) -> None:
    assert content(model, statistics=False) == WEIGHTS
    assert content(model, statistics=True) == STATISTICS


def test_outputs_depend_on_the_input(path: Path) -> None:
    assert_depends_on_its_input(path)


def test_it_is_torchvisions_graph_with_batch_norm_left_in_place(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    graph = model.graph
    assert Counter(node.op_type for node in graph.node) == {
        "Conv": 53, "BatchNormalization": 53, "Relu": 49, "Add": 16, "MaxPool": 1, "GlobalAveragePool": 1, "Flatten": 1,
        "Gemm": 1,
    }  # fmt: skip
    assert sum(numpy_helper.to_array(item).size for item in graph.initializer) == 25_557_032 + 2 * 26_560
    assert [dim.dim_param or dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == ["N", 3, 224, 224]
    assert (graph.input[0].name, graph.output[0].name) == ("input", "logits")
    (second,) = (node for node in graph.node if node.name == "/layer2/0/conv2/Conv")
    assert list(second.input) == ["/layer2/0/relu/Relu_output_0", "layer2.0.conv2.weight"]
    assert {item.name: list(item.ints) for item in second.attribute}["strides"] == [2, 2]
    assert len({node.name for node in graph.node}) == len(graph.node)


def test_the_module_of_a_model_needs_neither_numpy_nor_onnx() -> None:
    code = (
        "import sys; from bolt_build.graph import zoo; print(zoo.module('wide_resnet50_2'));"
        "assert not {'numpy', 'onnx'} & set(sys.modules), 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "bolt_build.graph.zoo.resnet50"


MODELS = (
    "bert_base", "bert_base_masked", "bert_large", "clip_vision", "convnext_tiny", "densenet121", "distilbert",
    "efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "repvgg_a0", "repvgg_a1", "repvgg_b0", "resnet18",
    "resnet50", "resnext50_32x4d", "vgg16", "vgg19", "vit_b16", "whisper_tiny_encoder", "wide_resnet50_2",
)  # fmt: skip


def test_an_unknown_model_is_a_diagnostic(tmp_path: Path) -> None:
    for call in (lambda: zoo.write("resnet51", tmp_path / "x.onnx"), lambda: zoo.module("resnet51")):
        with pytest.raises(BoltError) as caught:
            call()
        (diagnostic,) = caught.value.diagnostics
        hint = f"known models: {', '.join(MODELS)}"
        assert (diagnostic.message, diagnostic.hint) == ("unknown zoo model 'resnet51'", hint)
    assert zoo.names() == MODELS


def test_a_failed_write_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: onnx.ModelProto) -> None:
    monkeypatch.setattr("bolt_build.graph.zoo.calibrate.calibrate", lambda graph, seed: model)

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        zoo.write("resnet50", tmp_path / "resnet50.onnx")
    assert os.listdir(tmp_path) == []
