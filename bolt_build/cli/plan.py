"""`bolt-build plan`: what would be built, step by step, without building it; as text, JSON or a chart."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from bolt_build.build.builder import chosen
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
    options_of,
    read_recipes,
)
from bolt_build.digest import encode
from bolt_build.errors import ExitCode
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.report.pages.engine_charts import plan_chart
from bolt_build.report.plan import render
from bolt_build.report.tables import terminal_width
from bolt_build.sizes import Dims, sizes_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument("--batch", type=count, metavar="N", help="only this batch of the recipe (default: all)")
    add_dims(parser)
    add_cache(parser, "the cache with the records, whose times charts show")
    add_format(parser, "plan", ("text", "json", *FORMATS))


def run(args: argparse.Namespace) -> int:
    """Prints the plan of every target that has the batch. Raises BoltError."""
    options = replace(options_of(args), cache=args.cache)
    recipes = read_recipes(args)
    only = tuple(args.dim)
    for recipe in recipes:
        check_extents(recipe, only)
    if args.format in FORMATS:
        engines = []
        for recipe in recipes:
            engines += (found := evidences(recipe, options))
            check_batch(recipe, (each.batch for one in found for each in one.engine.plan.plans), args.batch)
        sys.stdout.write(FORMATS[args.format](plan_chart(engines, args.batch, only)))
        return int(ExitCode.OK)
    plans = []
    for recipe in recipes:
        preparer = Preparer(recipe, options.directory(recipe), lambda text: print(text, file=sys.stderr))
        own = [preparer.plan_engine(spec).plan for spec in chosen(recipe, options.targets)]
        check_batch(recipe, (each.batch for plan in own for each in plan.plans), args.batch)
        kept = [_of_sizes(plan, args.batch, only) for plan in own] if args.batch or only else own
        plans += [plan for plan in kept if plan.plans]
    if args.format == "json":
        sys.stdout.write(json.dumps([encode(plan) for plan in plans], indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(render(plan, width=terminal_width(sys.stdout)) for plan in plans))
    return int(ExitCode.OK)


def _of_sizes(plan: EnginePlan, batch: int | None, only: Dims) -> EnginePlan:
    """The plan with one batch, or some extents, alone, and with what was decided of these or of all."""
    others = {str(each.sizes) for each in plan.plans if not each.sizes.is_of(batch, only)}
    return replace(
        plan,
        plans=tuple(each for each in plan.plans if each.sizes.is_of(batch, only)),
        decisions=tuple(each for each in plan.decisions if each.subject.partition(": ")[0] not in others),
        slow=tuple(each for each in plan.slow if sizes_of(each).is_of(batch, only)),
    )
