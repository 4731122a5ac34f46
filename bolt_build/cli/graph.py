"""`bolt-build graph`: the typed graph of a recipe's model as text, or as a Mermaid flowchart."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bolt_build.build.builder import chosen
from bolt_build.build.engine_from_model import parse
from bolt_build.build.preparing import Preparer
from bolt_build.cli.common_arguments import add_format, add_place, add_recipes, count, one_of, options_of, read_recipes
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_graph
from bolt_build.report.mermaid import graph_chart
from bolt_build.schema.recipe import Recipe

NAME = "graph"
HELP = "print the graph of a recipe's model, as imported or as optimised"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--stage", type=one_of("imported", "optimised"), default="optimised", metavar="{imported,optimised}",
        help="before the passes or after them",
    )  # fmt: skip
    parser.add_argument("--batch", type=count, metavar="N", help="which of the recipe's batches (default: the first)")
    add_format(parser, "graph", ("text", "mermaid"))


def run(args: argparse.Namespace) -> int:
    """Prints the graph of each target; where several targets have the same, once. Raises BoltError."""
    options = options_of(args)
    found: dict[str, list[str]] = {}
    graphs: dict[str, Graph] = {}
    for recipe in read_recipes(args):
        preparer = Preparer(recipe, options.directory(recipe), lambda text: print(text, file=sys.stderr))
        for name, graph in _graphs(recipe, preparer, args):
            text = format_graph(graph)
            found.setdefault(text, []).append(name)
            graphs[text] = graph
    if args.format == "mermaid":
        sys.stdout.write(graph_chart([(", ".join(names), graphs[text]) for text, names in found.items()]))
        return int(ExitCode.OK)
    for index, (text, names) in enumerate(found.items()):
        heading = f"// {', '.join(names)}\n" if len(found) > 1 else ""
        sys.stdout.write(("\n" if index else "") + heading + text)
    return int(ExitCode.OK)


def _graphs(recipe: Recipe, preparer: Preparer, args: argparse.Namespace) -> list[tuple[str, Graph]]:
    """What each graph belongs to, and the graph: before the passes no target's alone."""
    specs = chosen(recipe, args.target)
    if args.stage == "imported":
        own = [each for spec in specs for each in spec.batch]
        batch = _batch(recipe, [*preparer.batches(None), *own], args.batch)
        return [(recipe.name, parse(preparer.model.path).bind(batch, recipe.model.dims))]
    _batch(recipe, [each for spec in specs for each in preparer.batches(spec)], args.batch)
    found = []
    for spec in specs:
        batches = preparer.batches(spec)
        if args.batch in (None, *batches):
            at = 0 if args.batch is None else batches.index(args.batch)
            found.append((f"{recipe.name} for {spec.name}", preparer.plan_engine(spec).graphs[at]))
    return found


def _batch(recipe: Recipe, batches: Sequence[int], asked: int | None) -> int:
    """The batch that is asked for, or the first. Raises BoltError ("unknown-batch") where the recipe has no such."""
    if asked is None or asked in batches:
        return batches[0] if asked is None else asked
    hint = f"its batches: {', '.join(map(str, dict.fromkeys(batches)))}"
    message = f"{recipe.path} has no batch {asked}"
    raise BoltError([Diagnostic("unknown-batch", message, recipe.mark("model.batch"), hint)], ExitCode.USAGE)
