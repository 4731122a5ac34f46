"""`bolt-build why`: why tasks of a build would run, or ran last, in the recipe's words."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from bolt_build.build.why import why
from bolt_build.cli.common_arguments import add_cache, add_format, add_place, add_recipe, options_of, read_recipe
from bolt_build.errors import ExitCode
from bolt_build.report.progress import NotesTo
from bolt_build.report.why import why_data, why_text

NAME = "why"
HELP = "say why tasks would run now, or why they ran last: all, or those of a task, a file or a layer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument("what", nargs="?", metavar="TASK", help="a task, a file, a step or an ONNX node (default: all)")
    add_place(parser)
    add_cache(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Runs nothing. Raises BoltError."""
    recipe = read_recipe(args)
    options = replace(options_of(args), cache=args.cache)
    found = why(recipe, options, NotesTo(sys.stderr), args.what)
    would = [each for each in found if each.stale is not None]
    # What is up to date is of interest by name, or where there is nothing else.
    shown = found if args.what is not None or not would else would
    if args.format == "json":
        sys.stdout.write(json.dumps(why_data(recipe.name, found), indent=1) + "\n")
    else:
        sys.stdout.write(why_text(recipe.name, shown))
    return int(ExitCode.OK)
