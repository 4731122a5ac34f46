"""Writes the weights file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bolt_build.build.engine_file import ENGINE, engine_here
from bolt_build.build.engine_planning import parse, plan_parsed
from bolt_build.digest import decode
from bolt_build.emit.weights import write_weights
from bolt_build.planner.selection import Selection
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named

_RECIPE, _SELECTION = Path("recipe.json"), Path("selection.json")


def run(model: str, out: str) -> None:
    """Write it to `out`: the constants are found again, and must fit the plan that the engine is built from."""
    plan = engine_here()
    recipe = decode(Recipe, json.loads(_RECIPE.read_text(encoding="utf-8")))
    spec = next(spec for spec in recipe.targets if spec.name == plan.target)
    selection = decode(Selection, json.loads(_SELECTION.read_text(encoding="utf-8")))
    planned = plan_parsed(parse(Path(model)), recipe, spec, target_named(plan.target), selection)
    if planned.plan.layout_digest != plan.layout_digest or planned.plan.weights != plan.weights:
        sys.exit(f"{ENGINE} is not what the model and the recipe give now: build again")
    write_weights(Path(out), plan, planned.constants)
