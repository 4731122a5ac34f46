"""`bolt-build why`: why tasks of a build would run, or ran last, in the recipe's words."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bolt_build.build.why import why
from bolt_build.cli.common_arguments import (
    add_cache,
    add_format,
    add_place,
    add_settings,
    file_name,
    options_of,
    read_recipes,
)
from bolt_build.cli.recipe_file import recipes_in
from bolt_build.cli.streams import wants_color
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.report.progress import NotesTo
from bolt_build.report.why import why_data, why_text
from bolt_build.schema.variants import split_variant


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipes", nargs=1, type=file_name, metavar="RECIPE", help="a recipe file, or a folder of them")
    parser.add_argument(
        "words", nargs="*", metavar="WORD",
        help="more of them; and tasks, files, steps or ONNX nodes to say it of (default: all tasks)",
    )  # fmt: skip
    add_settings(parser)
    add_place(parser)
    add_cache(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Runs nothing. Where nothing can be said of some recipes, what is in the way follows. Raises BoltError."""
    more, asked = _split(args.words)
    args.recipes += more
    recipes = read_recipes(args)
    options = replace(options_of(args), cache=args.cache)
    answer = why(recipes, options, NotesTo(sys.stderr), asked)
    found = answer.tasks
    would = [each for each in found if each.stale is not None]
    # What is up to date is of interest by name, or where there is nothing else.
    shown = found if asked or not would else would
    if args.format == "json":
        sys.stdout.write(json.dumps(why_data(found), indent=1) + "\n")
    else:
        sys.stdout.write(why_text(shown))
    sys.stdout.flush()
    troubles = [each for error in answer.troubles for each in error.diagnostics]
    sys.stderr.write(render(list(dict.fromkeys(troubles)), color=wants_color(sys.stderr)))
    return max((int(error.exit_code) for error in answer.troubles), default=int(ExitCode.OK))


def _split(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Recipes, and what is asked of them. A recipe ends in .yaml or .yml, with a variant or without, or is a folder
    that holds one: other folders are often called as layers are."""
    recipes = [word for word in words if _is_recipe(word)]
    return [Path(word) for word in recipes], [word for word in words if word not in recipes]


def _is_recipe(word: str) -> bool:
    if split_variant(word)[0].endswith((".yaml", ".yml")):
        return True
    try:
        return bool(recipes_in(Path(word)))
    except BoltError:
        return False
