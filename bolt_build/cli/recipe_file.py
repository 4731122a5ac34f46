"""A recipe that a verb was given, checked as far as that goes without reading the model."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

from bolt_build.cli.verbs import VERBS
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.values import Table
from bolt_build.schema.variants import split_variant, with_variant
from bolt_build.user_files import read_regular
from bolt_build.wording import nearest, suggest

_MOST_BYTES = 1 << 20
_VERSION_KEY = re.compile(rb"""^[ \t]*\{?[ \t]*["']?bolt["']?[ \t]*:""", re.MULTILINE)


def checked_recipe(path: Path, settings: Table | None = None) -> Recipe:
    """The recipe at `path`, which may end in @VARIANT, with `settings` over it.

    Raises BoltError with all that is wrong with it; the zoo and the planner are asked here, as the schema does
    not know them."""
    file, variant = split_variant(str(path))
    try:
        recipe = load_recipe(Path(file), settings)
    except BoltError as error:
        raise BoltError([_with_hint(each, file) for each in error.diagnostics], error.exit_code) from error
    if variant is not None:
        recipe = with_variant(recipe, variant)
    name = recipe.model.zoo
    if name is not None:
        # Recipes of zoo models alone ask for the zoo.
        from bolt_build.graph import zoo

        if name not in zoo.names():
            hint = suggest(name, zoo.names()) or f"known models: {', '.join(zoo.names())}"
            mark = recipe.mark("model.zoo")
            raise BoltError([Diagnostic("unknown-zoo-model", f"unknown zoo model '{name}'", mark, hint)])
    if recipe.policy.skip:
        # Recipes that skip passes alone ask the planner.
        from bolt_build.planner.pipeline import unknown_passes

        if unknown := unknown_passes(recipe.policy.skip):
            mark = recipe.mark("policy.skip")
            raise BoltError(
                Diagnostic("unknown-pass", f"there is no pass '{name}'", mark, hint) for name, hint in unknown
            )
    return recipe


def _with_hint(diagnostic: Diagnostic, file: str) -> Diagnostic:
    """What could have been meant by a recipe that is not there."""
    if diagnostic.code != "no-such-file" or diagnostic.subject != file or diagnostic.hint is not None:
        return diagnostic
    if file == "-":
        return replace(diagnostic, hint="standard input is not read: what a recipe names is relative to its file")
    if file in VERBS:
        return replace(diagnostic, hint=f"'{file}' is a verb, and stands first: bolt-build {file} RECIPE")

    path = Path(file)
    with contextlib.suppress(OSError):
        beside = {each.stem: each for each in sorted(path.parent.iterdir()) if each.suffix in (".yaml", ".yml")}
        near = nearest(path.name.removesuffix(path.suffix), beside)
        if near is not None:
            return replace(diagnostic, hint=f"did you mean '{beside[near]}'?")
    return diagnostic


def recipes_in(folder: Path) -> list[Path]:
    """The recipes of a folder, by name: YAML files that say which version of a recipe they are. Other files of a folder
    are none of bolt-build's business.

    Raises BoltError where there is none.
    """
    try:
        files = [path for path in sorted(folder.iterdir()) if path.suffix in (".yaml", ".yml") and _says_recipe(path)]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BoltError([Diagnostic("unreadable", f"cannot be read: {reason}", subject=str(folder))]) from error
    if not files:
        message, hint = "there is no recipe in this folder", "a recipe is a .yaml file that begins with 'bolt: 1'"
        raise BoltError([Diagnostic("no-recipe", message, hint=hint, subject=str(folder))])
    return files


def _says_recipe(path: Path) -> bool:
    try:
        return _VERSION_KEY.search(read_regular(path, _MOST_BYTES)) is not None
    except OSError:
        return False
