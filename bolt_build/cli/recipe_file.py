"""A recipe that a verb was given, checked as far as that goes without reading the model."""

from __future__ import annotations

from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.schema import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import split_variant, with_variant


def checked_recipe(path: Path) -> Recipe:
    """The recipe at `path`, which may end in @VARIANT.

    Raises BoltError with all that is wrong with it; the zoo is asked here, as the schema does not know it."""
    file, variant = split_variant(str(path))
    recipe = load_recipe(Path(file))
    if variant is not None:
        recipe = with_variant(recipe, variant)
    name = recipe.model.zoo
    if name is not None:
        from bolt_build.graph import zoo
        from bolt_build.schema.validate import suggest

        if name not in zoo.names():
            hint = suggest(name, zoo.names()) or f"known models: {', '.join(zoo.names())}"
            mark = recipe.mark("model.zoo")
            raise BoltError([Diagnostic("unknown-zoo-model", f"unknown zoo model '{name}'", mark, hint)])
    return recipe
