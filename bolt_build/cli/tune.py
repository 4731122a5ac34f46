"""`bolt-build tune`: measures the kernels that a recipe's engine could use, and locks the fastest."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from bolt_build.cli.cache_arguments import add_task_cache, with_cache
from bolt_build.cli.common_arguments import (
    add_format,
    add_jobs,
    add_place,
    add_recipe,
    file_name,
    options_of,
    read_recipe,
)
from bolt_build.cli.executor_arguments import add_executor, with_executor
from bolt_build.cli.streams import wants_color
from bolt_build.errors import BoltError
from bolt_build.report.diagnostics import as_json, render
from bolt_build.report.progress import progress
from bolt_build.report.tables import terminal_width
from bolt_build.report.tuning import broken_text, refused_text, summary_text, table_text, tuning_data
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.restate import restate
from bolt_build.tuning.run import TuneOptions, tune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_place(parser)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--export", type=file_name, metavar="BUNDLE.tar", help="compile for measuring on another machine; needs no GPU"
    )
    ways.add_argument(
        "--import",
        dest="results",
        type=file_name,
        metavar="RESULTS",
        help="take what a bundle's 'run' wrote, and choose",
    )
    ways.add_argument("--from-records", action="store_true", help="choose again from what was measured before")
    ways.add_argument("--remeasure", action="store_true", help="measure also what has records of this GPU")
    ways.add_argument(
        "--restate",
        action="store_true",
        help="write a lock of an earlier format anew, with the same kernels; measures none",
    )
    parser.add_argument(
        "--all-candidates", action="store_true", help="measure every legal kernel, not only tuning.candidates of them"
    )
    parser.add_argument(
        "--records-out", type=file_name, metavar="FILE.json", help="write every record of the recipe's problems"
    )
    add_jobs(parser)
    add_executor(parser)
    parser.add_argument(
        "--no-wait", action="store_true", help="end with exit code 4 instead of waiting for another build"
    )
    add_task_cache(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Tunes one target of a recipe. Exit code 7 where there is no GPU to measure on. Raises BoltError where nothing
    could be attempted."""
    recipe = read_recipe(args)
    build = replace(with_cache(options_of(args), args), wait=not args.no_wait)
    build = with_executor(build, args)
    if args.restate:
        say = (lambda text: None) if args.quiet or args.format == "json" else print
        changed = restate(recipe, build, say)
        say(f"{recipe.tuning.lock}: {'written anew' if changed else 'as it was'}")
        return 0
    options = TuneOptions(
        build, args.export, args.results, args.from_records, args.remeasure, args.records_out, args.all_candidates
    )
    try:
        result = tune(recipe, options, progress(args.format, quiet=args.quiet))
    except BoltError as error:
        if args.format != "json":
            raise
        data = {
            "event": "result", "recipe": recipe.name, "exit_code": int(error.exit_code),
            "diagnostics": as_json(error.diagnostics), "problems": [],
        }  # fmt: skip
        sys.stdout.write(json.dumps(data) + "\n")
        return int(error.exit_code)
    _show(result, args)
    return int(result.exit_code)


def _show(result: TuneResult, args: argparse.Namespace) -> None:
    if args.format == "json":
        sys.stdout.write(json.dumps(tuning_data(result)) + "\n")
        return
    if not args.quiet:
        if result.lock is not None:
            sys.stdout.write(table_text(result, terminal_width(sys.stdout)))
        sys.stdout.write(summary_text(result))
        sys.stdout.flush()
    sys.stderr.write(refused_text(result) + broken_text(result))
    sys.stderr.write(render(result.diagnostics, color=wants_color(sys.stderr)))
