"""Architectures that people know become engines that agree with onnxruntime: those of the onnx package, and one that
PyTorch exported. Their weights are seeded and calibrated; as they come they are constants, with one answer to anything.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from engine_builds import build_engine, passing_engine
from lifetimes import most_alive, overlaps

from bolt_build.build.planning.engine_from_model import parse, plan_parsed
from bolt_build.dtypes import DType
from bolt_build.graph import zoo
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.graph.zoo.resnet50 import build as build_resnet50
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named
from bolt_build.verify.tolerance import DEPENDENCE

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
EXPORTED = Path(__file__).resolve().parents[1] / "data" / "models" / "resnet50_transformers.onnx"
MODELS = {"squeezenet": LIGHT / "light_squeezenet.onnx"}
LARGE = {
    "inception_v1": LIGHT / "light_inception_v1.onnx",
    "vgg19": LIGHT / "light_vgg19.onnx",
    "resnet50_transformers": EXPORTED,
}


def assert_becomes_a_right_engine(name: str, path: Path, folder: Path, cache: Path) -> None:
    """At the batch that the file fixes or, where it is symbolic, one."""
    given = onnx.load(str(path))
    model = calibrate(given, seed=1)
    assert list(model.graph.node) == [node for node in given.graph.node if node.op_type != "ConstantOfShape"]
    assert list(model.graph.output) == list(given.graph.output)
    with passing_engine(folder / "p", name, model, cache, samples=2, shipped=True) as built:
        (batch,) = built.report.batches
        assert batch.repeatable
        (output,) = batch.outputs
        assert output.cosine > 0.99999
        assert output.dependence is not None
        assert output.dependence < DEPENDENCE
        covered = {tap.onnx for step in built.plan.plans[0].steps for tap in step.outputs if tap.onnx is not None}
        assert {layer.tensor for layer in batch.layers} == covered


@pytest.mark.parametrize("name", MODELS)
def test_a_known_model_becomes_a_right_engine(name: str, tmp_path: Path, cache: Path) -> None:
    assert_becomes_a_right_engine(name, MODELS[name], tmp_path, cache)


@pytest.mark.large
@pytest.mark.parametrize("name", LARGE)
def test_a_large_known_model_becomes_a_right_engine(name: str, tmp_path: Path, cache: Path) -> None:
    assert_becomes_a_right_engine(name, LARGE[name], tmp_path, cache)


def has_bf16() -> bool:
    return "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()


@pytest.mark.large
@pytest.mark.skipif(not has_bf16(), reason="this CPU has no avx512_bf16: oneDNN emulates bf16")
def test_resnet18_in_bf16(tmp_path: Path, cache: Path) -> None:
    model = tmp_path / "resnet18.onnx"
    zoo.write("resnet18", model)
    built = build_engine(tmp_path, "resnet18_bf16", model, cache, precision="bf16", samples=2, shipped=True)
    assert built.complaints == []
    (batch,) = built.report.batches
    assert batch.ok
    assert {layer.precision for layer in batch.layers} == {DType.BF16.value}
    stored = {
        step.outputs[0].operand.format.dtype for step in built.plan.plans[0].steps if step.problem.op.kind == "conv"
    }
    assert stored == {DType.BF16}
    assert os.path.getsize(built.weights) < 0.55 * os.path.getsize(model)


def test_the_arena_is_hardly_larger_than_what_is_alive_at_once(tmp_path: Path) -> None:
    """ResNet-50, batch 1, where nothing runs in micro-batches: at most a tenth more than the most bytes that are alive
    during one step.

    Counted are the tensors between kernels, each from the step that makes it to the last that reads it; not the
    caller's inputs and outputs, the weights, nor the kernels' scratch memory.
    """
    path = tmp_path / "resnet50.onnx"
    onnx.save(build_resnet50(), str(path))
    (tmp_path / "resnet50.yaml").write_text(
        "bolt: 1\nmodel: {onnx: resnet50.onnx, batch: 1}\ntargets: {host: {precision: fp32}}\n"
    )
    recipe = load_recipe(tmp_path / "resnet50.yaml")
    (plan,) = plan_parsed(parse(path), recipe, recipe.targets[0], target_named("host")).plan.plans
    alive = most_alive(plan)
    assert overlaps(plan) == []
    # In the first block of the second stage: its input, which the shortcut reads later, and both sides of the 3x3.
    assert alive == 4 * (256 * 56 * 56 + 128 * 56 * 56 + 128 * 28 * 28)
    assert plan.live_peak == alive
    assert plan.arena_bytes <= 1.1 * alive
