"""`bolt-build bench`: how long built engines take, alone or side by side with other ways to run the model."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bolt_build.bench.comparison import Comparison, worst_exit_code
from bolt_build.bench.contest import compete
from bolt_build.bench.contestant import Effort
from bolt_build.bench.energy import Counter, cpu_counter, gpu_counter
from bolt_build.bench.peers import check_peers
from bolt_build.bench.runner import Load, Measurement, measure_alone
from bolt_build.build.running.signal_handlers import handled
from bolt_build.cli.common_arguments import (
    above_zero,
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
from bolt_build.cli.streams import wants_color
from bolt_build.digest import encode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report import diagnostics
from bolt_build.report.bench import missing_packages, render
from bolt_build.report.bench_alone import render_alone
from bolt_build.report.tables import terminal_width
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.contests import contests_of, plans_of, threads_of


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
    parser.add_argument(
        "--callers", type=count, action="append", metavar="N",
        help="so many callers at the same time, each with a context of its own (repeatable; default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=rate, action="append", metavar="R",
        help="R requests a second come in at random moments; times begin when they do (repeatable; default: each caller"
        " as often as it can)",
    )  # fmt: skip
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE",
        help="inputs in place of random ones, as `run` takes them (repeatable)",
    )  # fmt: skip
    add_format(parser, "table")


def run(args: argparse.Namespace) -> int:
    """Measures one after the other, and says which engines cannot run on this machine.

    Against peers: exit code 7 where a package is missing, 4 where a peer fails, 5 where one computes something else,
    130 where it is cut off, with what was measured until then. Raises BoltError where an engine is not built or is
    stale, or fails.
    """
    return _against(args) if args.against else _alone(args)


def _alone(args: argparse.Namespace) -> int:
    found, no_energy = [], []
    for _, engine in _engines(args):
        counter = _counter(engine)
        no_energy += [counter] if isinstance(counter, str) else []
        energy, weights = None if isinstance(counter, str) else counter, _size(engine.weights)
        found += [
            measure_alone(engine.runner, sizes.batch, threads, load, energy, weights, sizes.dims)
            for sizes in plans_of(engine, args.batch, args.dim)
            for threads in threads_of(engine, args.threads)
            for load in _loads(args)
        ]
    if args.format == "json":
        sys.stdout.write(json.dumps([_data(measurement) for measurement in found], indent=1) + "\n")
    else:
        sys.stdout.write(render_alone(found, no_energy, terminal_width(sys.stdout)))
    return int(ExitCode.OK)


def _loads(args: argparse.Namespace) -> list[Load]:
    """Every number of callers with every rate."""
    return [
        Load(args.seconds, callers, requests, tuple(args.input))
        for callers in args.callers or (1,)
        for requests in args.rate or (None,)
    ]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _counter(engine: BuiltEngine) -> Counter | str:
    return gpu_counter() if target_named(engine.target).where == "cuda" else cpu_counter()


def _against(args: argparse.Namespace) -> int:
    given = [f"--{name}" for name in ("callers", "rate", "input") if getattr(args, name)]
    if given:
        message = f"{', '.join(given)}: peers have one caller, and all have the same seeded inputs"
        raise BoltError([Diagnostic("of-engines-alone", message, hint="leave --against out")], ExitCode.USAGE)
    check_peers(args.against)
    effort = Effort(rounds=args.rounds, seconds=args.seconds / args.rounds)
    found: list[Comparison] = []
    # SIGTERM and SIGHUP end it as Ctrl-C does: with what was measured until then.
    with handled(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP):
        contests = (
            contest
            for recipe, engine in _engines(args)
            for contest in contests_of(recipe, engine, args.against, args.batch, args.threads, effort, args.dim)
        )
        for contest in contests:
            try:
                found.append(compete(contest, lambda text: print(text, file=sys.stderr, flush=True)))
            except KeyboardInterrupt:
                if not found:
                    raise
                found[-1] = replace(found[-1], cut_off=True)
                break
            if args.format == "text":
                sys.stdout.write(render(found[-1], color=wants_color(sys.stdout), width=terminal_width(sys.stdout)))
                sys.stdout.flush()
            if found[-1].cut_off:
                break
    if args.format == "json":
        sys.stdout.write(json.dumps([encode(comparison) for comparison in found], indent=1) + "\n")
    sys.stderr.write(diagnostics.render(missing_packages(found), color=wants_color(sys.stderr)))
    return int(worst_exit_code(found))


def _engines(args: argparse.Namespace) -> Iterator[tuple[Recipe, BuiltEngine]]:
    """The engines that run on this machine; of the others it says why not."""
    for recipe, engines in engines_here(read_recipes(args), options_of(args), "measured"):
        yield from ((recipe, engine) for engine in engines)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("at least one name")
    return names


def rate(text: str) -> float:
    """Requests a second, above 0 and at most a million."""
    return above_zero(text, 1e6, "requests a second above 0, at most a million")


def _data(measurement: Measurement) -> dict[str, Any]:
    """What it says of dimensions only where some have several extents."""
    found = dict(vars(measurement))
    dims = dict(found.pop("dims"))
    return found | ({"dims": dims} if dims else {})
