"""`bolt-build plan`: what would be built, step by step, without building it."""

from __future__ import annotations

import argparse
import json
import sys

from bolt_build.build.builder import chosen
from bolt_build.build.preparing import Preparer
from bolt_build.cli.common_arguments import add_format, add_place, add_recipes, options_of, read_recipes
from bolt_build.digest import encode
from bolt_build.errors import ExitCode
from bolt_build.report.mermaid import plan_chart
from bolt_build.report.plan import render
from bolt_build.report.tables import terminal_width

NAME = "plan"
HELP = "print the steps, kernels and memory of an engine, and what the planner decided and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    add_format(parser, "plan", ("text", "json", "mermaid"))


def run(args: argparse.Namespace) -> int:
    """Prints the plan of every target. Raises BoltError."""
    options, found = options_of(args), []
    for recipe in read_recipes(args):
        preparer = Preparer(recipe, options.directory(recipe), lambda text: print(text, file=sys.stderr))
        found += [preparer.plan_engine(spec).plan for spec in chosen(recipe, options.targets)]
    if args.format == "json":
        sys.stdout.write(json.dumps([encode(plan) for plan in found], indent=1) + "\n")
    elif args.format == "mermaid":
        sys.stdout.write(plan_chart(found))
    else:
        sys.stdout.write("\n".join(render(plan, width=terminal_width(sys.stdout)) for plan in found))
    return int(ExitCode.OK)
