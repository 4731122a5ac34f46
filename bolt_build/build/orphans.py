"""Output that no recipe makes any more: its recipe is gone, or has another name, or no such target or variant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.cleaning import emulated
from bolt_build.build.layout import TUNING, RecipeDirectory, TargetDirectory
from bolt_build.errors import BoltError, ExitCode
from bolt_build.schema import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import split_variant, with_variant


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
                reason = _why(target, output)
                if reason is not None:
                    found.append(Orphan(directory, target, reason))
    return tuple(found)


def _why(target: TargetDirectory, output: Path) -> str | None:
    """Why a target's directory is made by no recipe; None where one makes it, or where that cannot be told."""
    try:
        planned = json.loads(target.recipe.read_text(encoding="utf-8"))
        path, name = str(planned["path"]), str(planned["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    file, variant = split_variant(path)
    places = [place for place in _places(file, output) if os.path.lexists(place)]
    if not places:
        return f"{file} is not there any more"
    try:
        recipe = load_recipe(places[0])
        recipe = recipe if variant is None else with_variant(recipe, variant)
    except BoltError as error:
        return f"{file} has no variant '{variant}' any more" if error.exit_code is ExitCode.USAGE else None
    return _departed(recipe, name, target.path.name.removesuffix(TUNING))


def _places(file: str, output: Path) -> Iterator[Path]:
    """Where the recipe can be, whose path was relative to where a build was begun: here, or where the output lies."""
    yield Path(file)
    yield Path(os.path.abspath(output)).parent / file


def _departed(recipe: Recipe, name: str, target: str) -> str | None:
    if recipe.name != name:
        return f"{recipe.path} is called '{recipe.name}' now"
    if target not in [spec.name for spec in recipe.targets]:
        return f"{recipe.path} has no target '{target}' any more"
    return None
