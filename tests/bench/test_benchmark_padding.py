"""The engines of the paper's Table 3: what the recipes and settings of `benchmarks/engines/padding.py` come to."""

from __future__ import annotations

from pathlib import Path

from bolt_build.families import load
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.load import load_recipe
from bolt_build.schema.settings import settings_table
from bolt_build.targets import target_named

ROOT = Path(__file__).resolve().parents[2]


def test_each_row_is_read_as_it_is_copied_to_padded_channels_or_stored_so(tmp_path: Path) -> None:
    from benchmarks.engines import padding

    (row, *_), target = padding.ROWS, target_named("h200")
    families = {family.name: family for family in load(target)}
    found = []
    for each in padding.engines([row]):
        padding.write_recipe(tmp_path, each, "h200")
        (_, *settings) = (word for word in each.settings(tmp_path) if word != "--set")
        recipe = load_recipe(tmp_path / each.recipe, settings_table([f"name={each.name}", *settings]))
        graph = load_model(Path(str(recipe.model.onnx))).bind(row.batch, ())
        engine = plan_engine([graph], recipe, recipe.targets[0], target, tuple(families.values()))
        (step,) = engine.plan.plans[0].steps
        expense = families[step.candidate.family].expense(step.problem, step.candidate)
        loads = dict(step.candidate.parameters).get("loads", 8)
        found.append((each.form, step.candidate.family, loads, expense.copied > 0))
    assert found == [
        ("unpadded", "cutlass", 2, False), ("padded", "cutlass", 8, True), ("folded", "cutlass", 8, False),
    ]  # fmt: skip
