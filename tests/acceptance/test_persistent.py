"""A recipe that wants products in one kernel wherever that is possible, on a target where no family can."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from engine_builds import Built, Silence
from nets import Growing

from bolt_build.build.builder import BuildOptions, build
from bolt_build.schema.load import load_recipe


def chains(channels: int, seed: int) -> onnx.ModelProto:
    """A 3x3 convolution, a 1x1 one behind it, and a classifier of two matrix products."""
    g = Growing()
    x = g.node("Relu", "relu1", g.conv("conv1", "image", 3, channels))
    w = g.weight("conv2.w", 2 * channels, channels, 1, 1)
    parts = [g.weight(f"conv2.{what}", 2 * channels, value=1.0) for what in ("scale", "bias", "mean", "var")]
    x = g.node("Relu", "relu2", g.node("BatchNormalization", "conv2/bn", g.node("Conv", "conv2", x, w), *parts))
    x = g.node("Tanh", "tanh", g.node("ReduceMean", "mean", x, axes=[2, 3], keepdims=0))
    hidden = g.node("Gemm", "fc1", x, g.weight("fc1.w", 12, 2 * channels), g.weight("fc1.b", 12), transB=1)
    x = g.node("Relu", "relu3", hidden)
    scores = g.node("Gemm", "scores", x, g.weight("fc2.w", 7, 12), g.weight("fc2.b", 7), transB=1)
    return g.model(["N", 3, 11, 9], scores, ["N", 7], seed)


@pytest.mark.parametrize("channels", [pytest.param(8, marks=pytest.mark.large), 13])
def test_the_host_fuses_no_products_and_says_so(channels: int, tmp_path: Path, cache: Path) -> None:
    onnx.save(chains(channels, seed=channels), str(tmp_path / "chains.onnx"))
    recipe = tmp_path / "chains.yaml"
    recipe.write_text(
        "bolt: 1\nmodel: {onnx: chains.onnx, batch: [2]}\ntargets: {host: {precision: fp32}}\n"
        "policy: {fusion: {persistent: always}}\nlayers: {/fc*: {persistent: never}}\nverify: {samples: 1}\n",
        encoding="utf-8",
    )
    options = BuildOptions(output=tmp_path / "generated", cache=cache)
    built = Built("chains", build(load_recipe(recipe), options, Silence()))
    assert built.complaints == ["'/fc*' matches no layer of the engine for host"]
    assert built.report.ok
    said = [d for d in built.plan.decisions if d.stage == "persistent"]
    why = "no kernel family of 'host' computes both in one kernel"
    assert [(d.subject, d.action, d.reason) for d in said] == [
        ("layers[0]", "declined", "'/fc*' matches no node of the optimised graph"),
        ("relu2", "declined", f"behind 'relu1', policy.fusion.persistent is always: {why}"),
        ("scores", "declined", f"behind 'relu3', policy.fusion.persistent is always: {why}"),
    ]
    assert [step.problem.op.kind for step in built.plan.plans[0].steps].count("conv") == 2
