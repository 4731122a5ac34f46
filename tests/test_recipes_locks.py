"""The locks beside the bundled recipes cover every kernel of their engines, with the weights left out."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bolt_build.families import load
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.zoo import (
    bert,
    convnext_tiny,
    densenet121,
    efficientnet_b0,
    mobilenet_v2,
    mobilenet_v3_small,
    repvgg,
    resnet18,
    resnet50,
    vgg16,
    vit,
    whisper,
)
from bolt_build.lockfile.reading import load_lock
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named

RECIPES = Path(__file__).parents[1] / "recipes"
GRAPHS = {
    "bert_base": lambda: bert.build_base().zeros(),
    "bert_base_384": lambda: bert.build_base().zeros(),
    "bert_base_40": lambda: bert.build_base().zeros(),
    "bert_large": lambda: bert.build_large().zeros(),
    "clip_vision": lambda: vit.build_clip().zeros(),
    "convnext_tiny": convnext_tiny.build,
    "densenet121": densenet121.build,
    "distilbert": lambda: bert.build_distil().zeros(),
    "efficientnet_b0": efficientnet_b0.build,
    "mobilenet_v2": mobilenet_v2.build,
    "mobilenet_v3_small": mobilenet_v3_small.build,
    "repvgg_a0": repvgg.build_a0,
    "repvgg_a1": repvgg.build_a1,
    "repvgg_b0": repvgg.build_b0,
    "resnet18": resnet18.build,
    "resnet50": resnet50.build,
    "resnext50_32x4d": resnet50.build_resnext,
    "vgg16": vgg16.build,
    "vit_b16": lambda: vit.build_b16().zeros(),
    "whisper_tiny_encoder": lambda: whisper.build_tiny().zeros(),
}
_LARGE = (
    "bert_base", "bert_base_384", "bert_base_40", "bert_large", "clip_vision", "distilbert", "repvgg_a1", "vgg16",
    "vit_b16",
)  # fmt: skip
HEAVY = {name: [pytest.mark.large] for name in _LARGE}
UNTUNED = {"bert_base_masked", "vgg19"}
"""Recipes that name the lock they are to have: until it is there, their kernels are predicted, and builds say so."""


def test_every_recipe_that_is_tuned_is_here() -> None:
    named = {path.stem for path in RECIPES.glob("*.yaml") if f"lock: {path.stem}.lock" in path.read_text()}
    assert named == set(GRAPHS) | UNTUNED == {path.stem for path in RECIPES.glob("*.yaml")}
    assert {path.name for path in RECIPES.glob("*.lock")} == {f"{name}.lock" for name in GRAPHS}


@pytest.mark.parametrize("name", [pytest.param(name, marks=HEAVY.get(name, [])) for name in GRAPHS])
def test_every_kernel_and_every_cover_comes_from_the_lock(name: str, tmp_path: Path) -> None:
    recipe, target = load_recipe(RECIPES / f"{name}.yaml"), target_named("h200")
    (spec,) = [spec for spec in recipe.targets if spec.name == target.name]
    assert recipe.tuning.lock is not None
    part = load_lock(Path(recipe.tuning.lock)).target(target.name)
    assert part is not None
    onnx.save(GRAPHS[name](), str(tmp_path / f"{name}.onnx"))
    model = load_model(tmp_path / f"{name}.onnx")
    graphs = [model.bind(batch, recipe.model.dims) for batch in recipe.batches(spec)]
    planned = plan_engine(graphs, recipe, spec, target, load(target), part.selection("the lock"))
    locked = {entry.problem: entry.winner for entry in part.entries}
    for plan in planned.plan.plans:
        swapped = {
            problem: candidate
            for engine in part.engines
            if engine.batch == plan.batch
            for problem, candidate, _ in engine.swaps
        }
        for step in [step for step in plan.steps if not step.view]:
            assert step.candidate == swapped.get(step.problem.digest, locked[step.problem.digest])
    assert {(cover.graph, cover.batch) for cover in part.covers} == {(c.graph, c.batch) for c in planned.covers}
    assert set(part.covers) == set(planned.covers)
