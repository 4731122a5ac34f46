"""`bolt-build verify`: built engines compared again with the reference."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import IO

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.last_runs import load_last_runs
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.cli.common_arguments import add_format, add_jobs, add_place, add_recipes, options_of, read_recipes
from bolt_build.cli.engines_here import engines_here, engines_of
from bolt_build.cli.outcome_files import OutcomeLog, add_outcome_files, with_outcome_files
from bolt_build.cli.streams import wants_color
from bolt_build.digest import decode, encode
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.progress import progress, waited_for
from bolt_build.report.tables import terminal_width
from bolt_build.report.verification import render
from bolt_build.report.widening import render as widening_text
from bolt_build.schema.recipe import Recipe
from bolt_build.toolchain import probe
from bolt_build.verify import Tolerances, verify_engine
from bolt_build.verify.report import VerifyReport
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.rebuilding import Rebuilt, rebuild
from bolt_build.workflows.widening import Widening, widen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--rebuild", action="store_true",
        help="build twice from nothing, in two places, and compare the bytes with each other and with what is here",
    )  # fmt: skip
    add_jobs(parser)
    add_format(parser, "report")
    parser.add_argument(
        "--widen", action="store_true",
        help="propose, as a patch of the recipe, the fewest layers to keep in fp32 until rounding passes, and the cost",
    )  # fmt: skip
    add_outcome_files(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 5 where an engine departs from the reference, or is not what a rebuild gives.

    Raises BoltError where one is not built or is stale, or cannot be built, and where none runs on this machine.
    """
    if args.rebuild:
        return _rebuild(args)
    return with_outcome_files(args, "verify", lambda log: _run(args, log))


def _rebuild(args: argparse.Namespace) -> int:
    options = options_of(args)
    if args.jobs:
        options = replace(options, jobs=args.jobs)
    # In JSON's place for what is found, nothing is said of the way.
    listener = progress("text", quiet=args.format == "json")
    found = [each for recipe in read_recipes(args) for each in rebuild(recipe, options, listener)]
    if args.format == "json":
        sys.stdout.write(json.dumps([encode(each) for each in found], indent=1) + "\n")
    for each in found if args.format != "json" else ():
        sys.stdout.write(_rebuilt_text(each))
    return int(ExitCode.VERIFY_FAILED if any(each.differences for each in found) else ExitCode.OK)


def _rebuilt_text(found: Rebuilt) -> str:
    builds = "two builds and the engine here" if found.here else "two builds"
    if not found.differences:
        return f"{found.recipe}/{found.target}: {len(found.files)} files, the same bytes in {builds}\n"
    lines = [f"{found.recipe}/{found.target}: {len(found.differences)} of {len(found.files)} files are not the same\n"]
    for each in found.differences:
        digests = (("first", each.first), ("second", each.second), *((("here", each.here),) if found.here else ()))
        said = ", ".join(f"{place} {digest[:12] if digest else 'missing'}" for place, digest in digests)
        lines.append(f"  {each.name}: {said}\n")
    return "".join(lines)


def _run(args: argparse.Namespace, log: OutcomeLog) -> int:
    reports: list[VerifyReport] = []
    widenings: list[Widening] = []
    options = options_of(args)
    for recipe, engines in engines_here(read_recipes(args), options, "verified"):
        found = [_verify(recipe, engine) for engine in engines]
        log.found.append((recipe, tuple(found)))
        reports += found
        if args.widen:
            widenings += _widened(recipe, options, engines, found)
    if args.format == "json":
        told = [*map(encode, reports), *({"widening": encode(each)} for each in widenings)]
        sys.stdout.write(json.dumps(told, indent=1) + "\n")
    else:
        for report in reports:
            _print(report, sys.stdout)
        for each in widenings:
            sys.stdout.write(widening_text(each))
    return int(ExitCode.OK if all(report.ok for report in reports) else ExitCode.VERIFY_FAILED)


def show_report(text: str, stream: IO[str]) -> None:
    """Print the report of which this is the file's text. Raises ValueError."""
    _print(decode(VerifyReport, json.loads(text)), stream)


def _verify(recipe: Recipe, engine: BuiltEngine) -> VerifyReport:
    _require_reference(recipe)
    plan = read_engine(engine.directory.engine.read_text(encoding="utf-8"))
    layers = tuple((layer.match, layer.tolerance) for layer in recipe.layers if layer.tolerance is not None)
    last = load_last_runs(engine.directory).of("verify")
    with waited_for(f"verifying {recipe.name}/{engine.target}", None if last is None else last.seconds):
        return verify_engine(
            engine.library, engine.weights, engine.model, plan, recipe.verify, recipe.model.dims,
            Tolerances(recipe.verify.tolerance, layers),
        )  # fmt: skip


def _widened(
    recipe: Recipe, options: BuildOptions, here: Sequence[BuiltEngine], reports: Sequence[VerifyReport]
) -> list[Widening]:
    """What is to be widened of engines that depart, and of those that do not run here, of which nobody knows."""
    _require_reference(recipe)
    elsewhere = [spec.name for spec in chosen(recipe, options.targets) if spec.name not in [e.target for e in here]]
    others = engines_of(recipe, replace(options, targets=tuple(elsewhere))) if elsewhere else ()
    found = []
    departed = [(engine, report) for engine, report in zip(here, reports, strict=True) if not report.ok]
    for engine, report in (*departed, *((other, None) for other in others)):
        found.append(widen(recipe, engine, report, partial(_say, recipe, engine.target)))
        _say(recipe, engine.target, "")
    return found


def _say(recipe: Recipe, target: str, text: str) -> None:
    """One line that the next one replaces, on a terminal alone."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{recipe.name}/{target}: {text}" if text else "\r\x1b[K")


def _require_reference(recipe: Recipe) -> None:
    tools = probe((recipe.verify.against,))
    if tools.missing:
        raise BoltError(tools.diagnostics(), ExitCode.TOOL_MISSING)


def _print(report: VerifyReport, stream: IO[str]) -> None:
    stream.write(render(report, color=wants_color(stream), width=terminal_width(stream)))
    stream.flush()
