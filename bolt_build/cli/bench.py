"""`bolt-build bench`: how long built engines take, alone or side by side with other ways to run the model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from bolt_build.bench.comparison import worst_exit_code
from bolt_build.bench.contest import compete
from bolt_build.bench.contestant import Effort
from bolt_build.bench.peers import check_peers
from bolt_build.bench.runner import Measurement, measure_alone
from bolt_build.cli.common_arguments import (
    add_dims,
    add_format,
    add_place,
    add_recipes,
    count,
    options_of,
    read_recipes,
    seconds,
)
from bolt_build.cli.engines_here import engines_here
from bolt_build.digest import encode
from bolt_build.errors import ExitCode
from bolt_build.report import diagnostics
from bolt_build.report.bench import missing_packages, render
from bolt_build.report.tables import Column, table, terminal_width
from bolt_build.schema.recipe import Recipe
from bolt_build.sizes import sizes_of
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.contests import contests_of, plans_of, threads_of

NAME = "bench"
HELP = "time built engines for each batch and, where they run on CPU threads, number of threads; also against peers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument("--batch", type=count, action="append", metavar="N", help="only this batch (repeatable)")
    add_dims(parser)
    parser.add_argument(
        "--threads", type=count, action="append", metavar="N",
        help="so many CPU threads, for engines that run on them (repeatable; default: 1 and all, against peers all)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=seconds, default=3.0, metavar="S", help="for about so long each (default: 3)")
    parser.add_argument(
        "--against", type=_names, metavar="PEER,...",
        help="measure these in turns with the engine, on the same inputs, and compare outputs: torch, torch-graph,"
        " torch-compile, torch-reduce-overhead, onnxruntime, and what other packages add",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=count, default=3, metavar="N", help="turns that each contestant has (default: 3)"
    )
    add_format(parser, "table")


def run(args: argparse.Namespace) -> int:
    """Measures one after the other, and says which engines cannot run on this machine.

    Against peers: exit code 7 where a package is missing, 4 where a peer fails, 5 where one computes something else.
    Raises BoltError where an engine is not built or is stale, or fails.
    """
    return _against(args) if args.against else _alone(args)


def _alone(args: argparse.Namespace) -> int:
    found = [
        measure_alone(engine.runner, sizes.batch, threads, args.seconds, sizes.dims)
        for _, engine in _engines(args)
        for sizes in plans_of(engine, args.batch, args.dim)
        for threads in threads_of(engine, args.threads)
    ]
    if args.format == "json":
        sys.stdout.write(json.dumps([_data(measurement) for measurement in found], indent=1) + "\n")
    else:
        _show(found)
    return int(ExitCode.OK)


def _against(args: argparse.Namespace) -> int:
    check_peers(args.against)
    effort = Effort(rounds=args.rounds, seconds=args.seconds / args.rounds)
    found = []
    for recipe, engine in _engines(args):
        for contest in contests_of(recipe, engine, args.against, args.batch, args.threads, effort, args.dim):
            found.append(compete(contest, lambda text: print(text, file=sys.stderr, flush=True)))
            if args.format == "text":
                sys.stdout.write(render(found[-1], color=sys.stdout.isatty(), width=terminal_width(sys.stdout)))
                sys.stdout.flush()
    if args.format == "json":
        sys.stdout.write(json.dumps([encode(comparison) for comparison in found], indent=1) + "\n")
    sys.stderr.write(diagnostics.render(missing_packages(found), color=sys.stderr.isatty()))
    return int(worst_exit_code(found))


def _engines(args: argparse.Namespace) -> Iterator[tuple[Recipe, BuiltEngine]]:
    """The engines that run on this machine; of the others it says why not."""
    for recipe in read_recipes(args):
        for engine in engines_here(recipe, options_of(args), "measured"):
            yield recipe, engine


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("at least one name")
    return names


def _show(found: list[Measurement]) -> None:
    columns = [Column("engine"), Column("target")]
    numbers = ("batch", "threads", "median ms", "least ms", "p99 ms", "images/s", "runs")
    columns += [Column(title, right=True) for title in numbers]
    rows = [
        (
            m.name, m.target, sizes_of(m).words, "-" if m.threads is None else str(m.threads),
            f"{m.median_ms:.3f}", f"{m.min_ms:.3f}",
            "-" if m.p99_ms is None else f"{m.p99_ms:.3f}", f"{m.images_per_second:.1f}", str(m.runs),
        )
        for m in found
    ]  # fmt: skip
    sys.stdout.write("".join(f"{line.plain}\n" for line in table(columns, rows, None)))


def _data(measurement: Measurement) -> dict[str, Any]:
    """What it says of dimensions only where some have several extents."""
    found = dict(vars(measurement))
    dims = dict(found.pop("dims"))
    return found | ({"dims": dims} if dims else {})
