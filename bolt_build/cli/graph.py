"""`bolt-build graph`: the typed graph of a recipe's model as text, or as a chart of which kernels compute it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.planning.model_mark import marked
from bolt_build.build.planning.preparing import Preparer
from bolt_build.cli.asked_sizes import check_batch, check_extents
from bolt_build.cli.chart_format import FORMATS, evidences
from bolt_build.cli.common_arguments import (
    add_cache,
    add_dims,
    add_format,
    add_place,
    add_recipes,
    count,
    one_of,
    options_of,
    read_recipes,
)
from bolt_build.errors import ExitCode
from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_graph
from bolt_build.report.pages.chart import Chart, Group
from bolt_build.report.pages.engine_charts import graph_groups
from bolt_build.schema.recipe import Recipe
from bolt_build.sizes import all_sizes, sizes_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--stage", **one_of("imported", "optimised"), default="optimised",
        help="before the passes or after them",
    )  # fmt: skip
    parser.add_argument("--batch", type=count, metavar="N", help="only this batch of the recipe (default: the first)")
    add_dims(parser)
    add_cache(parser, "the cache with the records, whose times charts show")
    add_format(parser, "graph", ("text", *FORMATS))


def run(args: argparse.Namespace) -> int:
    """Prints the graph of each target; as text, where several targets have the same, once. Raises BoltError."""
    options = replace(options_of(args), cache=args.cache)
    recipes = read_recipes(args)
    for recipe in recipes:
        check_extents(recipe, tuple(args.dim))
    if args.format in FORMATS:
        groups: list[Group] = []
        for recipe in recipes:
            groups += _groups(recipe, options, args, len(groups))
        sys.stdout.write(FORMATS[args.format](Chart(tuple(groups))))
        return int(ExitCode.OK)
    found: dict[str, list[str]] = {}
    for recipe in recipes:
        preparer = Preparer(recipe, options.directory(recipe), lambda text: print(text, file=sys.stderr))
        for name, graph in _graphs(recipe, preparer, args):
            found.setdefault(format_graph(graph), []).append(name)
    for index, (text, names) in enumerate(found.items()):
        heading = f"// {', '.join(names)}\n" if len(found) > 1 else ""
        sys.stdout.write(("\n" if index else "") + heading + text)
    return int(ExitCode.OK)


def _groups(recipe: Recipe, options: BuildOptions, args: argparse.Namespace, first: int) -> tuple[Group, ...]:
    engines = evidences(recipe, options)
    check_batch(recipe, (plan.batch for each in engines for plan in each.engine.plan.plans), args.batch)
    if args.stage == "optimised":
        return graph_groups(engines, args.batch, first=first, only=tuple(args.dim))
    model = Preparer(recipe, options.directory(recipe), lambda text: print(text, file=sys.stderr)).parsed
    return graph_groups(
        engines,
        args.batch,
        lambda sizes: model.bind(sizes.batch, recipe.model.dims, sizes.dims),
        first,
        tuple(args.dim),
    )


def _graphs(recipe: Recipe, preparer: Preparer, args: argparse.Namespace) -> list[tuple[str, Graph]]:
    """What each graph belongs to, and the graph: before the passes no target's alone."""
    specs, only = chosen(recipe, args.target), tuple(args.dim)
    if args.stage == "imported":
        own = [each for spec in specs for each in spec.batch]
        batch = _batch(recipe, [*preparer.batches(None), *own], args.batch)
        first = next(each for each in all_sizes((batch,), recipe.model.lengths) if each.has(only))
        with marked(recipe):
            return [(recipe.name, preparer.parsed.bind(batch, recipe.model.dims, first.dims))]
    _batch(recipe, [each for spec in specs for each in preparer.batches(spec)], args.batch)
    found = []
    for spec in specs:
        if args.batch in (None, *preparer.batches(spec)):
            graphs = preparer.plan_engine(spec).graphs
            chosen_graph = next(graph for graph in graphs if sizes_of(graph).is_of(args.batch, only))
            found.append((f"{recipe.name} for {spec.name}", chosen_graph))
    return found


def _batch(recipe: Recipe, batches: Sequence[int], asked: int | None) -> int:
    """The batch that is asked for, or the first. Raises BoltError ("unknown-batch") where the recipe has no such."""
    check_batch(recipe, batches, asked)
    return batches[0] if asked is None else asked
