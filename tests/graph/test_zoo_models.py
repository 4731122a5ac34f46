"""The zoo's other models: the published graphs, the same bytes everywhere, and outputs that depend on the input."""

from __future__ import annotations

import hashlib
from collections import Counter
from math import prod
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper
from planner_fakes import POLICY
from zoo_checks import assert_depends_on_its_input

from bolt_build.graph import zoo
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.zoo.convnext_tiny import build as build_convnext_tiny
from bolt_build.graph.zoo.densenet121 import build as build_densenet121
from bolt_build.graph.zoo.efficientnet_b0 import build as build_efficientnet_b0
from bolt_build.graph.zoo.mobilenet_v2 import build as build_mobilenet_v2
from bolt_build.graph.zoo.mobilenet_v3_small import build as build_mobilenet_v3_small
from bolt_build.graph.zoo.repvgg import build_a0, build_a1, build_b0
from bolt_build.graph.zoo.resnet18 import build as build_resnet18
from bolt_build.graph.zoo.resnet50 import build_resnext
from bolt_build.graph.zoo.vgg16 import build as build_vgg16
from bolt_build.graph.zoo.vgg16 import build_19 as build_vgg19
from bolt_build.planner.pipeline import optimize
from bolt_build.schema.load import load_recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
CONTENTS = {
    "resnet18": "61cbe3a82cbbb4dbee5457f383e98c6a72752ff8638eb98e3bf6d4c457366a72",
    "repvgg_a0": "62257b335928b1f4c3d500e97816fa5d70c1c978dc8398599cdf4885eb4f10a3",
}
"""Of every initializer with its name: what a machine that rounds otherwise would change."""


def parameters(model: onnx.ModelProto) -> int:
    """Numbers in weights, BatchNorm's statistics left out as they are elsewhere."""
    running = ("running_mean", "running_var")
    return sum(prod(item.dims) for item in model.graph.initializer if not item.name.endswith(running))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.large) for name in ("resnet18", "repvgg_a0")])
def test_it_is_the_same_on_every_machine_and_depends_on_its_input(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    zoo.write(name, path)
    found = hashlib.sha256()
    for item in onnx.load(path).graph.initializer:
        found.update(item.name.encode() + numpy_helper.to_array(item).tobytes())
    assert found.hexdigest() == CONTENTS[name]
    assert_depends_on_its_input(path)


@pytest.mark.large
def test_vgg16_is_torchvisions_and_depends_on_its_input(tmp_path: Path) -> None:
    model = build_vgg16()
    assert parameters(model) == 138_357_544
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 13, "Relu": 15, "MaxPool": 5, "Flatten": 1, "Gemm": 3,
    }  # fmt: skip
    zoo.write("vgg16", tmp_path / "vgg16.onnx")
    assert_depends_on_its_input(tmp_path / "vgg16.onnx")


@pytest.mark.large
def test_vgg19_has_three_convolutions_more() -> None:
    model = build_vgg19()
    assert parameters(model) == 143_667_240
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 16, "Relu": 18, "MaxPool": 5, "Flatten": 1, "Gemm": 3,
    }  # fmt: skip


def test_resnet18_is_torchvisions_graph_with_batch_norm_left_in_place() -> None:
    model = build_resnet18()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 11_689_512
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 20, "BatchNormalization": 20, "Relu": 17, "Add": 8, "MaxPool": 1, "GlobalAveragePool": 1, "Flatten": 1,
        "Gemm": 1,
    }  # fmt: skip
    (second,) = (node for node in model.graph.node if node.name == "/layer2/0/downsample/0/Conv")
    assert list(second.input) == ["/layer1/1/relu_1/Relu_output_0", "layer2.0.downsample.0.weight"]


def groups(model: onnx.ModelProto) -> Counter[int]:
    """How many convolutions have so many groups."""
    return Counter(
        next(a.i for a in node.attribute if a.name == "group") for node in model.graph.node if node.op_type == "Conv"
    )


def test_mobilenet_v2_is_torchvisions() -> None:
    model = build_mobilenet_v2()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 3_504_872
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 52, "BatchNormalization": 52, "Clip": 35, "Constant": 70, "Add": 10, "GlobalAveragePool": 1,
        "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    assert groups(model) == {1: 35, 32: 1, 96: 1, 144: 2, 192: 3, 384: 4, 576: 3, 960: 3}


def test_efficientnet_b0_is_torchvisions() -> None:
    model = build_efficientnet_b0()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 5_288_548
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 81, "BatchNormalization": 49, "Sigmoid": 65, "Mul": 65, "Add": 9, "GlobalAveragePool": 17, "Flatten": 1,
        "Gemm": 1,
    }  # fmt: skip
    assert groups(model) == {1: 65, 32: 1, 96: 1, 144: 2, 240: 2, 480: 3, 672: 3, 1152: 4}


def test_resnext50_is_torchvisions() -> None:
    model = build_resnext()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 25_028_904
    assert groups(model) == {1: 37, 32: 16}


def test_mobilenet_v3_small_is_torchvisions() -> None:
    model = build_mobilenet_v3_small()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 2_542_856
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 52, "BatchNormalization": 34, "HardSwish": 19, "Relu": 14, "HardSigmoid": 9, "Mul": 9, "Add": 6,
        "GlobalAveragePool": 10, "Flatten": 1, "Gemm": 2,
    }  # fmt: skip
    assert groups(model) == {1: 41, 16: 1, 72: 1, 88: 1, 96: 1, 120: 1, 144: 1, 240: 2, 288: 1, 576: 2}


def test_densenet121_is_torchvisions() -> None:
    model = build_densenet121()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 7_978_856
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 120, "BatchNormalization": 121, "Relu": 121, "Concat": 62, "MaxPool": 1, "AveragePool": 3,
        "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    last = next(node for node in model.graph.node if node.name == "/features/denseblock3/Concat")
    assert len(last.input) == 25  # what the block begins with, and 24 layers


def test_convnext_tiny_is_torchvisions() -> None:
    model = build_convnext_tiny()
    onnx.checker.check_model(model, full_check=True)
    assert parameters(model) == 28_589_128
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 22, "Transpose": 46, "LayerNormalization": 23, "MatMul": 36, "Add": 72, "Constant": 54, "Div": 18,
        "Erf": 18, "Mul": 54, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    assert groups(model) == {1: 4, 96: 3, 192: 3, 384: 9, 768: 3}


def test_mobilenets_inverted_residuals_are_three_kernels_each(tmp_path: Path) -> None:
    onnx.save(build_mobilenet_v2(), tmp_path / "mobilenet.onnx")
    graph = optimize(load_model(tmp_path / "mobilenet.onnx").bind(1, ()), POLICY).graph
    kinds = Counter(node.op.kind for node in graph.nodes)
    assert kinds["conv"] == 52
    assert sum(kinds.values()) - kinds["conv"] <= 3  # the mean, its shape, the classifier


@pytest.mark.large
@pytest.mark.parametrize(
    "name",
    ["convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "resnext50_32x4d"],
)
def test_it_depends_on_its_input(name: str, tmp_path: Path) -> None:
    zoo.write(name, tmp_path / "model.onnx")
    # DenseNet's layers see noise through the statistics of images in every one before: its outputs for noise are alike.
    assert_depends_on_its_input(tmp_path / "model.onnx", noise_too=name != "densenet121")


def test_repvgg_is_the_three_branch_graph_of_the_paper() -> None:
    model = build_a0()
    onnx.checker.check_model(model, full_check=True)
    blocks, with_identity = 22, 17
    assert Counter(node.op_type for node in model.graph.node) == {
        "Conv": 2 * blocks, "BatchNormalization": 2 * blocks + with_identity, "Add": blocks + with_identity,
        "Relu": blocks, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1,
    }  # fmt: skip
    # In millions, as published for training.
    published = {build_a0: 9.11, build_a1: 14.09, build_b0: 15.82}
    assert {build: round(parameters(build()) / 1e6, 2) for build in published} == published


def test_repvggs_blocks_become_one_3x3_each(tmp_path: Path) -> None:
    onnx.save(build_a0(), tmp_path / "repvgg.onnx")
    graph = optimize(load_model(tmp_path / "repvgg.onnx").bind(1, ()), POLICY).graph
    convs = [node for node in graph.nodes if isinstance(node.op, Conv)]
    assert len(convs) == 22
    assert {graph.type(node.inputs[1]).shape[2:] for node in convs} == {(3, 3)}
    assert [[stage.op.kind for stage in node.epilogue] for node in convs] == [["activation"]] * 22
    assert sum(stage.op.kind == "binary" for node in graph.nodes for stage in node.epilogue) == 0
    assert sum(prod(graph.type(name).shape) for node in convs for name in node.inputs[1:]) == 8_309_384 - 1_281_000


@pytest.mark.parametrize(
    "name",
    [
        "convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "repvgg_a0",
        "repvgg_a1", "repvgg_b0", "resnet18", "resnet50", "resnext50_32x4d", "vgg16", "vgg19",
    ],
)  # fmt: skip
def test_its_recipe_builds_for_the_gpu_and_a_small_batch_here(name: str) -> None:
    recipe = load_recipe(RECIPES / f"{name}.yaml")
    assert (recipe.name, recipe.model.zoo) == (name, name)
    h200, host = recipe.targets
    assert (h200.name, h200.precision, host.name, host.precision) == ("h200", "fp16", "host", "fp32")
    assert max(recipe.batches(host)) <= 32
