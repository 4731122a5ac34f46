"""Output that no recipe makes any more: its recipe is gone, or has another name, or no such target or variant. Models
that were only planned with, as `explore --predict` does, are output too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.cleaning import emulated
from bolt_build.build.layout import TUNING, RecipeDirectory, TargetDirectory
from bolt_build.build.planning.origin import Origin, model_origin, origin
from bolt_build.errors import BoltError, ExitCode
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import with_variant


@dataclass(frozen=True)
class Orphan:
    """A target's directory, or a recipe's with its model alone (`target` is None), and the sentence that says why
    nothing makes it any more."""

    recipe: RecipeDirectory
    target: TargetDirectory | None
    reason: str


def orphans(output: Path) -> tuple[Orphan, ...]:
    """Every orphan below `output`, the emulated GPU's too. A recipe that cannot be read still makes what it made."""
    found = []
    for place in (Path(os.path.abspath(output)), emulated(output)):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            directory = RecipeDirectory(path)
            targets = directory.targets
            for target in targets:
                reason = _why(origin(target), target.path.name.removesuffix(TUNING))
                if reason is not None:
                    found.append(Orphan(directory, target, reason))
            reason = None if targets else _why(model_origin(directory), None)
            if reason is not None:
                found.append(Orphan(directory, None, reason))
    return tuple(found)


def _why(made: Origin | None, target: str | None) -> str | None:
    """Why no recipe makes what it made of a target, or its model alone; None where one does, or where that cannot be
    told."""
    if made is None:
        return None
    if made.place is None:
        return f"{made.file} is not there any more"
    try:
        recipe = load_recipe(made.place)
        recipe = recipe if made.variant is None else with_variant(recipe, made.variant)
    except BoltError as error:
        return f"{made.file} has no variant '{made.variant}' any more" if error.exit_code is ExitCode.USAGE else None
    return _departed(recipe, made.name, target)


def _departed(recipe: Recipe, name: str, target: str | None) -> str | None:
    if recipe.name != name:
        return f"{recipe.path} is called '{recipe.name}' now"
    if target is not None and target not in [spec.name for spec in recipe.targets]:
        return f"{recipe.path} has no target '{target}' any more"
    return None
