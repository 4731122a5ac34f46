"""`bolt-build bench`: how long built engines take, measured by their own runner programs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from bolt_build.build.built import BuiltEngine, built_engines
from bolt_build.cli.common_arguments import add_place, add_recipes, options_of, read_recipes
from bolt_build.digest import decode
from bolt_build.errors import BoltError, Diagnostic, ExitCode

NAME = "bench"
HELP = "time built engines for each batch and number of threads"


@dataclass(frozen=True)
class Measurement:
    """What a runner says of one batch and number of threads; milliseconds a run."""

    name: str
    target: str
    batch: int
    threads: int
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
        "--threads", type=int, action="append", metavar="N", help="so many threads (repeatable; default: one, and all)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for about so long each (default: 3)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the table")


def run(args: argparse.Namespace) -> int:
    """Measures one after the other. Raises BoltError where an engine is not built or is stale, or a runner fails."""
    threads = args.threads or sorted({1, len(os.sched_getaffinity(0))})
    found = []
    for recipe in read_recipes(args.recipes):
        for engine in built_engines(recipe, options_of(args)):
            batches = [b for b in engine.plan.engine.batches if args.batch is None or b in args.batch]
            if not batches:
                have = ", ".join(map(str, engine.plan.engine.batches))
                wrong = Diagnostic("unknown-batch", f"{recipe.name} has none of these batches", hint=f"it has: {have}")
                raise BoltError([wrong], ExitCode.USAGE)
            found += [_measure(engine, batch, count, args.seconds) for batch in batches for count in threads]
    if args.format == "json":
        sys.stdout.write(json.dumps([vars(measurement) for measurement in found], indent=1) + "\n")
    else:
        _show(found)
    return int(ExitCode.OK)


def _measure(engine: BuiltEngine, batch: int, threads: int, seconds: float) -> Measurement:
    argv = [
        os.fspath(engine.runner), "--bench", "--json", "--batch", str(batch), "--threads", str(threads),
        "--seconds", str(seconds),
    ]  # fmt: skip
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    try:
        if done.returncode == 0:
            return decode(Measurement, {"is": "Measurement", **json.loads(done.stdout)})
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
            m.name, m.target, str(m.batch), str(m.threads), f"{m.median_ms:.3f}", f"{m.min_ms:.3f}",
            f"{m.p99_ms:.3f}", f"{m.images_per_second:.1f}", str(m.runs),
        )
        for m in found
    ]  # fmt: skip
    sys.stdout.write("".join(f"{line.plain}\n" for line in table(columns, rows, None)))
