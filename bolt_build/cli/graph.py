"""`bolt-build graph`: the typed graph of a recipe's model as text."""

from __future__ import annotations

import argparse
import sys

from bolt_build.build.builder import chosen
from bolt_build.build.planning import Planner
from bolt_build.cli.common_arguments import add_place, add_recipe, count, need_one, one_of, options_of, read_recipes
from bolt_build.errors import BoltError, Diagnostic, ExitCode

NAME = "graph"
HELP = "print the graph of a recipe's model, as imported or as optimised"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_place(parser)
    parser.add_argument(
        "--stage",
        type=one_of("imported", "optimised"),
        default="optimised",
        metavar="{imported,optimised}",
        help="before the passes or after them",
    )
    parser.add_argument("--batch", type=count, metavar="N", help="which of the recipe's batches (default: the first)")


def run(args: argparse.Namespace) -> int:
    """Prints one graph. Raises BoltError."""
    recipe = read_recipes([args.recipe])[0]
    options = options_of(args)
    spec = chosen(recipe, (need_one(options.targets, recipe),))[0] if args.stage == "optimised" else None
    planner = Planner(recipe, options.directory(recipe), lambda text: print(text, file=sys.stderr))
    batches = planner.batches(spec)
    batch = batches[0] if args.batch is None else args.batch
    if batch not in batches:
        hint = f"its batches: {', '.join(map(str, batches))}"
        message = f"{recipe.path} has no batch {batch}"
        raise BoltError([Diagnostic("unknown-batch", message, recipe.mark("model.batch"), hint)], ExitCode.USAGE)
    from bolt_build.graph.text import format_graph

    if spec is None:
        from bolt_build.build.engine_planning import parse

        graph = parse(planner.model.path).bind(batch, recipe.model.dims)
    else:
        graph = planner.plan_engine(spec).graphs[batches.index(batch)]
    sys.stdout.write(format_graph(graph))
    return int(ExitCode.OK)
