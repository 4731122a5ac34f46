"""Where in the recipe that stands which a complaint about its model is about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.schema.recipe import Recipe

_KEYS = {"unbound-dimension": "model.dims", "unused-dimension": "model.dims", "fixed-batch": "model.batch"}
"""The keys that mend what is wrong, by the codes of diagnostics; all others are about the model itself."""


@contextlib.contextmanager
def marked(recipe: Recipe) -> Iterator[None]:
    """Diagnostics about the recipe's model that leave this block point to the line of the recipe that names it, or that
    has its dimensions or batches. Those that have a place keep it.
    """
    try:
        yield
    except BoltError as error:
        found = (each if each.mark else replace(each, mark=_mark(recipe, each)) for each in error.diagnostics)
        raise BoltError(found, error.exit_code) from error.__cause__


def _mark(recipe: Recipe, diagnostic: Diagnostic) -> Mark | None:
    return recipe.mark(_KEYS.get(diagnostic.code, "model.onnx" if recipe.model.onnx is not None else "model.zoo"))
