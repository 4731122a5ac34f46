"""Output that no recipe makes any more: its recipe is gone, or has another name, or no such target or variant."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.cleaning import emulated
from bolt_build.build.layout import TUNING, RecipeDirectory, TargetDirectory
from bolt_build.build.origin import origin
from bolt_build.errors import BoltError, ExitCode
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import with_variant


@dataclass(frozen=True)
class Orphan:
    """A target's directory, and the sentence that says why nothing makes it any more."""

    recipe: RecipeDirectory
    target: TargetDirectory
    reason: str


def orphans(output: Path) -> tuple[Orphan, ...]:
    """Every orphan below `output`, the emulated GPU's too. A recipe that cannot be read still makes what it made."""
    found = []
    for place in (Path(os.path.abspath(output)), emulated(output)):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            directory = RecipeDirectory(path)
            for target in directory.targets:
                reason = _why(target)
                if reason is not None:
                    found.append(Orphan(directory, target, reason))
    return tuple(found)


def _why(target: TargetDirectory) -> str | None:
    """Why a target's directory is made by no recipe; None where one makes it, or where that cannot be told."""
    made = origin(target)
    if made is None:
        return None
    if made.place is None:
        return f"{made.file} is not there any more"
    try:
        recipe = load_recipe(made.place)
        recipe = recipe if made.variant is None else with_variant(recipe, made.variant)
    except BoltError as error:
        return f"{made.file} has no variant '{made.variant}' any more" if error.exit_code is ExitCode.USAGE else None
    return _departed(recipe, made.name, target.path.name.removesuffix(TUNING))


def _departed(recipe: Recipe, name: str, target: str) -> str | None:
    if recipe.name != name:
        return f"{recipe.path} is called '{recipe.name}' now"
    if target not in [spec.name for spec in recipe.targets]:
        return f"{recipe.path} has no target '{target}' any more"
    return None
