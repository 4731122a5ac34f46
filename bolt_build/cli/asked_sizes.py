"""The sizes of a recipe that `plan`, `graph` and `explain` may be asked for: a batch, and extents of dimensions."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.sizes import Dims, all_sizes


def check_batch(recipe: Recipe, batches: Iterable[int], asked: int | None) -> None:
    """Raises BoltError ("unknown-batch") where the recipe has no such batch."""
    known = list(dict.fromkeys(batches))
    if asked is not None and asked not in known:
        hint = f"its batches: {', '.join(map(str, known))}"
        message = f"{recipe.path} has no batch {asked}"
        raise BoltError([Diagnostic("unknown-batch", message, recipe.mark("model.batch"), hint)], ExitCode.USAGE)


def check_extents(recipe: Recipe, asked: Dims) -> None:
    """Raises BoltError ("unknown-extent") where the recipe has no such extents of dimensions with several."""
    have = all_sizes((1,), recipe.model.lengths)
    if asked and not any(each.has(asked) for each in have):
        known = "; ".join(f"{name} {', '.join(map(str, extents))}" for name, extents in recipe.model.lengths)
        said = ", ".join(f"{name} {extent}" for name, extent in asked)
        hint = f"it has: {known}" if known else "each of its dimensions has one extent"
        wrong = Diagnostic("unknown-extent", f"{recipe.path} has no plan for {said}", recipe.mark("model.dims"), hint)
        raise BoltError([wrong], ExitCode.USAGE)
