"""`bolt-build bench`: how long built engines take, measured by their own runner programs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from bolt_build.build.built import BuiltEngine, built_engines
from bolt_build.cli.common_arguments import add_place, add_recipes, options_of, read_recipes
from bolt_build.digest import decode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.targets import target_named
from bolt_build.toolchain.machine import why_not_here

NAME = "bench"
HELP = "time built engines for each batch and, where they run on CPU threads, number of threads"


@dataclass(frozen=True)
class Measurement:
    """What a runner says of one batch and number of threads; milliseconds a run.

    `threads` is None for an engine whose runs use no CPU threads.
    """

    name: str
    target: str
    batch: int
    threads: int | None
    runs: int
    min_ms: float
    median_ms: float
    p99_ms: float
    images_per_second: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument("--batch", type=int, action="append", metavar="N", help="only this batch (repeatable)")
    parser.add_argument(
        "--threads", type=int, action="append", metavar="N",
        help="so many CPU threads, for engines that run on them (repeatable; default: one, and all)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for about so long each (default: 3)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the table")


def run(args: argparse.Namespace) -> int:
    """Measures one after the other, and says which engines cannot run on this machine.

    Raises BoltError where an engine is not built or is stale, or a runner fails.
    """
    found = []
    for recipe in read_recipes(args.recipes):
        for engine in built_engines(recipe, options_of(args)):
            elsewhere = why_not_here(target_named(engine.target))
            if elsewhere is None:
                found += _measurements(engine, args)
            else:
                sys.stderr.write(f"{recipe.name}/{engine.target}: not measured: {elsewhere}\n")
    if args.format == "json":
        sys.stdout.write(json.dumps([vars(measurement) for measurement in found], indent=1) + "\n")
    else:
        _show(found)
    return int(ExitCode.OK)


def _measurements(engine: BuiltEngine, args: argparse.Namespace) -> list[Measurement]:
    """Those of each batch and number of threads that are asked for and matter to the engine. Raises BoltError."""
    batches = [batch for batch in engine.plan.engine.batches if args.batch is None or batch in args.batch]
    if not batches:
        name = engine.plan.graph.recipe
        have = ", ".join(map(str, engine.plan.engine.batches))
        wrong = Diagnostic("unknown-batch", f"{name} has none of these batches", hint=f"it has: {have}")
        raise BoltError([wrong], ExitCode.USAGE)
    threads: list[int | None] = [None]
    if target_named(engine.target).runs_on_threads:
        threads = args.threads or sorted({1, len(os.sched_getaffinity(0))})
    return [_measure(engine, batch, count, args.seconds) for batch in batches for count in threads]


def _measure(engine: BuiltEngine, batch: int, threads: int | None, seconds: float) -> Measurement:
    argv = [os.fspath(engine.runner), "--bench", "--json", "--batch", str(batch), "--seconds", str(seconds)]
    if threads is not None:
        argv += ["--threads", str(threads)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    try:
        if done.returncode == 0:
            said: dict[str, Any] = json.loads(done.stdout)
            return decode(Measurement, said | {"is": "Measurement", "threads": threads})
        reason = done.stderr.strip() or f"exit status {done.returncode}"
    except ValueError as error:
        reason = f"its answer cannot be read: {error}"
    raise BoltError([Diagnostic("runner-failed", reason, subject=str(engine.runner))], ExitCode.TASK_FAILED)


def _show(found: list[Measurement]) -> None:
    from bolt_build.report.tables import Column, table

    columns = [Column("engine"), Column("target")]
    numbers = ("batch", "threads", "median ms", "least ms", "p99 ms", "images/s", "runs")
    columns += [Column(title, right=True) for title in numbers]
    rows = [
        (
            m.name, m.target, str(m.batch), "-" if m.threads is None else str(m.threads),
            f"{m.median_ms:.3f}", f"{m.min_ms:.3f}",
            f"{m.p99_ms:.3f}", f"{m.images_per_second:.1f}", str(m.runs),
        )
        for m in found
    ]  # fmt: skip
    sys.stdout.write("".join(f"{line.plain}\n" for line in table(columns, rows, None)))
