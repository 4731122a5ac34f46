"""Which recipe made a target's directory, as the copy that planning left in it says, or the model of a recipe that
none was planned for."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import read_text
from bolt_build.build.layout import RecipeDirectory, TargetDirectory
from bolt_build.build.planning.written_model import wanted_by
from bolt_build.errors import Diagnostic
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import split_variant


@dataclass(frozen=True)
class Origin:
    """`file` is the recipe's path as it was given, `variant` the one that was built, `name` the engine's. `place` is
    where that file is now, None where it is no more."""

    file: str
    variant: str | None
    name: str
    place: Path | None


def origin(target: TargetDirectory) -> Origin | None:
    """What made the directory; None where that cannot be told. A path was relative to where a build was begun: here, or
    where the output lies."""
    try:
        planned = json.loads(read_text(target.recipe))
        path, name = str(planned["path"]), str(planned["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _origin(path, name, Path(os.path.abspath(target.path)).parents[2])


def model_origin(directory: RecipeDirectory) -> Origin | None:
    """What had the model in a recipe's directory written; None where there is none, or where that cannot be told."""
    path = wanted_by(directory)
    return (
        None if path is None else _origin(path, directory.path.name, Path(os.path.abspath(directory.path)).parents[1])
    )


def _origin(path: str, name: str, beside: Path) -> Origin:
    """`beside` is the folder where the output lies."""
    file, variant = split_variant(path)
    places = (place for place in (Path(file), beside / file) if os.path.lexists(place))
    return Origin(file, variant, name, next(places, None))


def rival(target: TargetDirectory, recipe: Recipe) -> tuple[Diagnostic, ...]:
    """A warning where another recipe, which is there too, made what lies in the directory."""
    made = origin(target)
    file, _ = split_variant(recipe.path)
    if made is None or made.place is None or os.path.realpath(made.place) == os.path.realpath(file):
        return ()
    message = f"{os.path.relpath(target.path)} was made by {made.file}, and builds of the two replace each other"
    hint = f"give one of them another 'name', or build {recipe.path} with --output DIR"
    return (Diagnostic("shared-output", message, recipe.mark("name"), hint, severity="warning"),)
