"""Arguments that several verbs share, and recipes read from them."""

from __future__ import annotations

import argparse
from pathlib import Path

from bolt_build.build.builder import BuildOptions
from bolt_build.cli.recipe_file import checked_recipe
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe


def add_recipes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE", help="a recipe file")


def add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="a recipe file")


def add_place(parser: argparse.ArgumentParser, option: str = "--output") -> None:
    parser.add_argument(
        "--target", action="append", default=[], metavar="NAME", help="only this target of the recipe (repeatable)"
    )
    parser.add_argument(
        option, dest="generated", type=Path, default=Path("generated"), metavar="DIR",
        help="where what is built lies (default: generated)",
    )  # fmt: skip


def read_recipes(paths: list[Path]) -> list[Recipe]:
    """Every recipe. Raises BoltError with what is wrong with any of them, and where two would share one directory."""
    recipes: list[Recipe] = []
    wrong: list[Diagnostic] = []
    for path in paths:
        try:
            recipes.append(checked_recipe(path))
        except BoltError as error:
            wrong += [diagnostic for diagnostic in error.diagnostics if diagnostic not in wrong]
    if wrong:
        raise BoltError(wrong)
    by_name: dict[str, Recipe] = {}
    for recipe in recipes:
        other = by_name.setdefault(recipe.name, recipe)
        if other.path != recipe.path:
            message = f"{other.path} and {recipe.path} are both called '{recipe.name}'"
            raise BoltError([Diagnostic("same-name", message, recipe.mark("name"), "give one of them another name")])
    return list(by_name.values())


def options_of(args: argparse.Namespace) -> BuildOptions:
    """Options of verbs that look at what was built."""
    return BuildOptions(output=args.generated, targets=tuple(args.target))


def jobs(text: str) -> int:
    """A number of tasks that may run at once."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def need_one(targets: tuple[str, ...], recipe: Recipe) -> str:
    """The one target that a verb is to use. Raises BoltError where the recipe has several and none was named."""
    names = targets or tuple(spec.name for spec in recipe.targets)
    if len(names) > 1:
        hint = f"choose one with --target: {', '.join(names)}"
        message = f"{recipe.path} has several targets"
        raise BoltError([Diagnostic("several-targets", message, hint=hint)], ExitCode.USAGE)
    return names[0]
