"""The locks beside the bundled recipes cover every kernel of their engines, with the weights left out."""

from __future__ import annotations

from math import prod
from pathlib import Path

import onnx
import pytest

from bolt_build.families import load
from bolt_build.graph import zoo
from bolt_build.graph.onnx_import import load_model
from bolt_build.lockfile.reading import load_lock
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named

RECIPES = Path(__file__).parents[2] / "recipes"
TUNED = sorted(path.stem for path in RECIPES.glob("*.lock"))
_ZEROS, _SMALL = "zeros.bin", 1 << 16
"""Constants that shapes follow from are smaller."""
LOCKED = [
    *(("h200", name) for name in TUNED),
    *(("h100", name) for name in ("bert_base", "bert_base_384", "bert_large")),
]
LARGE = {
    *(("h100", name) for name in ("bert_base_384", "bert_large")),
    *(("h200", name) for name in ("bert_base", "bert_base_40", "bert_base_384", "bert_base_masked", "bert_large")),
    *(("h200", name) for name in ("clip_vision", "densenet121", "distilbert", "efficientnet_b0", "mobilenet_v2")),
    *(("h200", name) for name in ("mobilenet_v3_small", "repvgg_a0", "repvgg_a1", "repvgg_b0", "resnet18")),
    *(("h200", name) for name in ("resnext50_32x4d", "convnext_tiny")),
    *(("h200", name) for name in ("vgg16", "vgg19", "vit_b16")),
}
"""Locks of networks like another one's here, or of many plans: `pytest -m large` plans them."""


def test_every_recipe_that_is_tuned_is_here() -> None:
    named = {path.stem for path in RECIPES.glob("*.yaml") if f"lock: {path.stem}.lock" in path.read_text()}
    assert named == {*TUNED} == {path.stem for path in RECIPES.glob("*.yaml")}


def _saved(blank: onnx.ModelProto, path: Path) -> Path:
    """The model with its weights beside it, in a file of zeros that takes no room: of some there are 500 MB."""
    end = 0
    for tensor in blank.graph.initializer:
        size = prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        if size < _SMALL:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", _ZEROS), ("offset", end), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        end += size
    with (path.parent / _ZEROS).open("wb") as file:
        file.truncate(end)
    path.write_bytes(blank.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("gpu", "name"), [pytest.param(*each, marks=[pytest.mark.large] if each in LARGE else []) for each in LOCKED]
)
def test_every_kernel_and_every_cover_comes_from_the_lock(gpu: str, name: str, tmp_path: Path) -> None:
    recipe, target = load_recipe(RECIPES / f"{name}.yaml"), target_named(gpu)
    (spec,) = [spec for spec in recipe.targets if spec.name == target.name]
    assert recipe.tuning.lock is not None
    part = load_lock(Path(recipe.tuning.lock)).target(target.name)
    assert part is not None
    assert recipe.model.zoo is not None
    model = load_model(_saved(zoo.blank(recipe.model.zoo), tmp_path / f"{name}.onnx"))
    graphs = model.graphs(recipe.batches(spec), recipe.model.dims, recipe.model.lengths)
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
