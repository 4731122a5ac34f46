"""A recipe that a verb was given, checked as far as that goes without reading the model."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bolt_build.cli.verbs import VERBS
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.values import Items, Scalar, Table, shorten, text_at, value_at
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
        recipe = load_recipe(Path(file), settings, _unknown_names)
    except BoltError as error:
        raise BoltError([_with_hint(each, file) for each in error.diagnostics], error.exit_code) from error
    return recipe if variant is None else with_variant(recipe, variant)


def _unknown_names(table: Table) -> Iterator[Diagnostic]:
    """Zoo models and passes that there are none of."""
    named = text_at(table, "model", "zoo")
    if named is not None:
        # Recipes of zoo models alone ask for the zoo.
        from bolt_build.graph import zoo

        name, mark = named
        if name not in zoo.names():
            hint = suggest(name, zoo.names()) or f"known models: {', '.join(zoo.names())}"
            yield Diagnostic("unknown-zoo-model", f"unknown zoo model '{shorten(name)}'", mark, hint)
    skip = value_at(table, "policy", "skip")
    items = skip.items if isinstance(skip, Items) else ()
    marks = {each.value: each.mark for each in items if isinstance(each, Scalar) and isinstance(each.value, str)}
    if marks:
        # Recipes that skip passes alone ask the planner.
        from bolt_build.planner.pipeline import unknown_passes

        for name, hint in unknown_passes([*marks]):
            yield Diagnostic("unknown-pass", f"there is no pass '{shorten(name)}'", marks[name], hint)


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
