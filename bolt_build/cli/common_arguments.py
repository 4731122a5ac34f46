"""Arguments that several verbs share, and recipes read from them."""

from __future__ import annotations

import argparse
import difflib
import math
import os
from pathlib import Path
from typing import Any

from bolt_build.build.builder import BuildOptions
from bolt_build.cli.recipe_file import checked_recipe, recipes_in
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.runtime import names
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.settings import settings_table


def add_recipes(parser: argparse.ArgumentParser, *, needed: bool = True, what: str = "") -> None:
    """`what` is done with the recipes, where that is not what the verb's own help says."""
    parser.add_argument(
        "recipes", nargs="+" if needed else "*", type=file_name, metavar="RECIPE",
        help=f"a recipe file, or a folder of them{what}",
    )  # fmt: skip
    add_settings(parser)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", type=file_name, metavar="RECIPE", help="a recipe file")
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="a value in place of the recipe's, such as policy.fusion.persistent=never (repeatable)",
    )  # fmt: skip


def add_place(parser: argparse.ArgumentParser, option: str = "--output") -> None:
    parser.add_argument(
        "--target", action="append", default=[], metavar="NAME", help="only this target of the recipe (repeatable)"
    )
    parser.add_argument(
        option, dest="generated", type=file_name, default=Path("generated"), metavar="DIR",
        help="the folder for what is built (default: generated)",
    )  # fmt: skip


def read_recipe(args: argparse.Namespace) -> Recipe:
    """The one recipe of a verb that takes one. Raises BoltError with what is wrong with it."""
    return checked_recipe(args.recipe, settings_table(args.set))


def read_recipes(args: argparse.Namespace) -> list[Recipe]:
    """Every recipe, those of folders by name, each once. Raises BoltError with what is wrong with any of them, and
    where two engines would share a directory or a symbol."""
    recipes, wrong = try_recipes(args)
    if wrong:
        raise BoltError(wrong)
    # A link to a recipe is another recipe, unless that gives its engine's name.
    by_place = {(os.path.realpath(recipe.path), recipe.name): recipe for recipe in reversed(recipes)}
    distinct = list(reversed(by_place.values()))
    by_symbol: dict[str, Recipe] = {}
    for recipe in distinct:
        other = by_symbol.setdefault(names.symbol(recipe.name), recipe)
        if other is not recipe:
            wrong.append(_collision(other, recipe))
    if wrong:
        raise BoltError(wrong)
    return distinct


def try_recipes(args: argparse.Namespace) -> tuple[list[Recipe], list[Diagnostic]]:
    """The recipes that can be read, and what is wrong with the others, each once. Raises BoltError where --set is."""
    settings = settings_table(args.set)
    recipes: list[Recipe] = []
    wrong: list[Diagnostic] = []
    for given in args.recipes:
        try:
            paths = recipes_in(given) if os.path.isdir(given) else [given]
        except BoltError as error:
            wrong += error.diagnostics
            continue
        for path in paths:
            try:
                recipes.append(checked_recipe(path, settings))
            except BoltError as error:
                # Two recipes that extend the same wrong one would both report it.
                wrong += [diagnostic for diagnostic in error.diagnostics if diagnostic not in wrong]
    return recipes, wrong


def _collision(one: Recipe, other: Recipe) -> Diagnostic:
    """Two recipes whose engines could not lie, or not be linked, beside each other."""
    if one.name == other.name:
        message = f"{one.path} and {other.path} are both called '{one.name}'"
        return Diagnostic("same-name", message, other.mark("name"), "give one of them another name")
    message = f"the engines of {one.path} and {other.path} would both export '{names.symbol(one.name)}'"
    hint = "give one of them another 'name', which differs in more than '_', '-' and '.'"
    return Diagnostic("same-symbol", message, other.mark("name"), hint)


def options_of(args: argparse.Namespace) -> BuildOptions:
    """Options of verbs that look at what was built."""
    return BuildOptions(output=args.generated, targets=tuple(args.target))


def add_cache(parser: argparse.ArgumentParser, what: str = "the local cache") -> None:
    parser.add_argument("--cache", type=file_name, metavar="DIR", help=f"{what} (default: ~/.cache/bolt-build)")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-j", "--jobs", type=count, metavar="N", help="tasks to run in parallel (default: as many as CPUs)"
    )


def add_format(
    parser: argparse.ArgumentParser, what: str = "output", forms: tuple[str, ...] = ("text", "json")
) -> None:
    parser.add_argument(
        "--format", **one_of(*forms), default="text",
        help=f"form of the {what} (default: text)",
    )  # fmt: skip


class OneOf:
    """A reader of one of `words`, which says what was meant by another."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, text: str) -> str:
        if text in self.words:
            return text
        near = difflib.get_close_matches(text.lower(), self.words, 1, 0.6)
        hint = f"did you mean '{near[0]}'?" if near else f"it is one of: {', '.join(self.words)}"
        raise argparse.ArgumentTypeError(f"'{text}' is no choice; {hint}")


def one_of(*words: str) -> dict[str, Any]:
    """What `add_argument` is told of an argument that is one of `words`: help shows {text,json}."""
    return {"type": OneOf(*words), "metavar": f"{{{','.join(words)}}}"}


def count(text: str) -> int:
    """A number of things: a whole number from 1 up, of at most nine digits."""
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is no whole number of at least 1")
    if len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' has more than nine digits")
    return int(text)


def add_dims(parser: argparse.ArgumentParser) -> None:
    """The option for one extent of a dimension of which the recipe has several."""
    parser.add_argument(
        "--dim", type=extent, action="append", default=[], metavar="NAME=N",
        help="only this extent of a dimension that has several in the recipe, such as sequence=128 (repeatable)",
    )  # fmt: skip


def extent(text: str) -> tuple[str, int]:
    """A dimension and its extent; the name may hold "=" itself."""
    name, equals, number = text.rpartition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is not of the form NAME=N")
    return name, count(number)


def seconds(text: str) -> float:
    """A time above 0, at most a day."""
    return above_zero(text, 86400, "seconds above 0, at most a day")


def above_zero(text: str, most: float, what: str) -> float:
    """A number above 0 and at most `most`. Raises ArgumentTypeError: that the text is no number of `what`."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= most:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is no number of {what}")
    return found


def file_name(text: str) -> Path:
    """A path. The empty one, which a shell makes of a variable that is not set, would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return Path(text)
