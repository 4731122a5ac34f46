"""`bolt-build explore`: a recipe's model beside its variants: what each costs in time, and how large it is."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bolt_build.bench import exploration
from bolt_build.cli.cache_arguments import add_task_cache, with_cache
from bolt_build.cli.common_arguments import (
    add_format,
    add_jobs,
    add_place,
    add_recipes,
    count,
    options_of,
    read_recipes,
    seconds,
)
from bolt_build.cli.streams import wants_color
from bolt_build.report import explore as comparison
from bolt_build.report.diagnostics import as_json, render
from bolt_build.report.progress import failure_text, progress
from bolt_build.report.tables import terminal_width
from bolt_build.workflows.exploring import ExploreOptions, explore

if TYPE_CHECKING:
    from bolt_build.workflows.exploring import ExploreResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--batch", type=count, action="append", default=[], metavar="N",
        help="only this batch, for which alone engines are then built (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=count, action="append", default=[], metavar="N",
        help="so many CPU threads, for engines that run on them (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=seconds, default=3.0, metavar="S", help="for about so long each (default: 3)")
    parser.add_argument("--rounds", type=count, default=3, metavar="N", help="turns that each engine has (default: 3)")
    parser.add_argument("--predict", action="store_true", help="build and measure nothing: compare predicted times")
    parser.add_argument(
        "--no-lock", action="store_true",
        help="choose every kernel by prediction, so that a tuned model has no advantage over untuned variants",
    )  # fmt: skip
    add_jobs(parser)
    add_task_cache(parser, may_only_read=True)
    parser.add_argument("-q", "--quiet", action="store_true", help="print tables and errors alone")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Explores recipes. The exit code is that of the worst build. Raises BoltError where nothing could be attempted."""
    recipes = read_recipes(args)
    if args.no_lock:
        recipes = [replace(recipe, tuning=replace(recipe.tuning, lock=None)) for recipe in recipes]
    build = with_cache(options_of(args), args)
    if args.jobs:
        build = replace(build, jobs=args.jobs)
    options = ExploreOptions(
        build, tuple(args.batch), tuple(args.threads), args.seconds, args.rounds, predict=args.predict
    )
    result = explore(recipes, options, progress(args.format, quiet=args.quiet))
    _show(result, args.format)
    return int(result.exit_code)


def _show(result: ExploreResult, form: str) -> None:
    if form == "json":
        data = {
            "event": "result", "exit_code": int(result.exit_code), "diagnostics": as_json(result.diagnostics),
            "explorations": [exploration.as_json(each) for each in result.explorations],
        }  # fmt: skip
        sys.stdout.write(json.dumps(data) + "\n")
        return
    color, width = wants_color(sys.stdout), terminal_width(sys.stdout)
    tables = [comparison.render(each, color=color, width=width) for each in result.explorations]
    sys.stdout.write("\n" + "\n".join(tables))
    sys.stdout.flush()
    sys.stderr.write("".join(failure_text(each) for each in result.broken))
    sys.stderr.write(render(result.diagnostics, color=wants_color(sys.stderr)))
