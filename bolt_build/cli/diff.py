"""`bolt-build diff`: two builds, two locks, or a build and a lock, compared."""

from __future__ import annotations

import argparse
import json
import math
import sys

from bolt_build.cli.common_arguments import add_format, file_name, one_of
from bolt_build.errors import ExitCode
from bolt_build.report.comparison import as_json, render
from bolt_build.report.tables import terminal_width
from bolt_build.workflows.compared import Measure
from bolt_build.workflows.comparing import compare, regressions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, what in (("before", "A"), ("after", "B")):
        parser.add_argument(
            name,
            type=file_name,
            metavar=what,
            help="a lock, or a directory: generated/RECIPE or generated/RECIPE/TARGET",
        )
    parser.add_argument(
        "--fail-over",
        type=percent,
        metavar="PERCENT",
        help="end with exit code 8 where a figure of B is so much larger",
    )
    words = [each.value for each in Measure]
    parser.add_argument(
        "--of", **one_of(*words), action="append", default=[],
        help="what --fail-over is about (repeatable; default: all)",
    )  # fmt: skip
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 8 where something is worse than --fail-over allows. Raises BoltError."""
    comparison = compare(args.before, args.after)
    measures = [Measure(word) for word in args.of] or list(Measure)
    worse = () if args.fail_over is None else regressions(comparison, args.fail_over, measures)
    if args.format == "json":
        sys.stdout.write(json.dumps(as_json(comparison, worse), indent=1) + "\n")
    else:
        sys.stdout.write(render(comparison, worse, width=terminal_width(sys.stdout)))
    return int(ExitCode.REGRESSION if worse else ExitCode.OK)


def percent(text: str) -> float:
    """A part in a hundred, from 0 up."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is no percentage of at least 0")
    return found
