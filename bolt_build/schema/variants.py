"""One variant of a recipe as a recipe of its own: what RECIPE@VARIANT means on a command line."""

from __future__ import annotations

import os
from dataclasses import replace

from bolt_build.errors import BoltError, ExitCode
from bolt_build.schema.load import unknown_variant
from bolt_build.schema.recipe import Recipe

SEPARATOR = "@"


def with_variant(recipe: Recipe, name: str) -> Recipe:
    """`recipe` with its variant `name` for a model.

    The engine is called RECIPE_VARIANT, so that it lies in a directory of its own and links beside the others. So is
    the lock, which stands beside the recipe's: kernels that were measured for one model are not all that another has.

    Raises BoltError ("unknown-variant", exit code 2).
    """
    known = [variant.name for variant in recipe.variants]
    if name not in known:
        raise BoltError([replace(unknown_variant(name, known, None), subject=recipe.path)], ExitCode.USAGE)
    tuning = recipe.tuning
    if tuning.lock is not None:
        stem, suffix = os.path.splitext(tuning.lock)
        tuning = replace(tuning, lock=f"{stem}_{name}{suffix}")
    return replace(
        recipe, path=f"{recipe.path}{SEPARATOR}{name}", name=f"{recipe.name}_{name}",
        model=replace(recipe.model, variant=name), tuning=tuning,
    )  # fmt: skip


def split_variant(text: str) -> tuple[str, str | None]:
    """(recipe's file, variant) of "net.yaml@gelu"; (`text`, None) where a file of that very name is there."""
    if os.path.exists(text) or SEPARATOR not in text:
        return text, None
    file, _, name = text.rpartition(SEPARATOR)
    return (file, name) if file and name and os.sep not in name else (text, None)
