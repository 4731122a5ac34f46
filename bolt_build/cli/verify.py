"""`bolt-build verify`: built engines compared again with the reference."""

from __future__ import annotations

import argparse
import json
import sys
from typing import IO

from bolt_build.build.engine_file import read_engine
from bolt_build.build.layout import TargetDirectory
from bolt_build.cli.common_arguments import add_format, add_place, add_recipes, options_of, read_recipes
from bolt_build.cli.engines_here import engines_here
from bolt_build.cli.outcome_files import OutcomeLog, add_outcome_files, with_outcome_files
from bolt_build.digest import decode, encode
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.tables import terminal_width
from bolt_build.report.verification import render
from bolt_build.schema.recipe import Recipe
from bolt_build.toolchain import probe
from bolt_build.verify import Tolerances, verify_engine
from bolt_build.verify.report import VerifyReport
from bolt_build.workflows.built import BuiltEngine

NAME = "verify"
HELP = "compare built engines with the reference again, layer by layer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    add_format(parser, "report")
    add_outcome_files(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 5 where an engine departs from the reference. Raises BoltError where one is not built or is stale."""
    return with_outcome_files(args, NAME, lambda log: _run(args, log))


def _run(args: argparse.Namespace, log: OutcomeLog) -> int:
    reports: list[VerifyReport] = []
    for recipe in read_recipes(args):
        found = [_verify(recipe, engine) for engine in engines_here(recipe, options_of(args), "verified")]
        log.found.append((recipe, tuple(found)))
        reports += found
    if args.format == "json":
        sys.stdout.write(json.dumps([encode(report) for report in reports], indent=1) + "\n")
    else:
        for report in reports:
            _print(report, sys.stdout)
    return int(ExitCode.OK if all(report.ok for report in reports) else ExitCode.VERIFY_FAILED)


def show_report(directory: TargetDirectory, stream: IO[str]) -> None:
    """Print the report that lies in a target's directory. Raises OSError, ValueError."""
    _print(decode(VerifyReport, json.loads(directory.verification.read_text(encoding="utf-8"))), stream)


def _verify(recipe: Recipe, engine: BuiltEngine) -> VerifyReport:
    tools = probe((recipe.verify.against,))
    if tools.missing:
        raise BoltError(tools.diagnostics(), ExitCode.TOOL_MISSING)

    plan = read_engine(engine.directory.engine.read_text(encoding="utf-8"))
    layers = tuple((layer.match, layer.tolerance) for layer in recipe.layers if layer.tolerance is not None)
    return verify_engine(
        engine.library, engine.weights, engine.model, plan, recipe.verify, recipe.model.dims,
        Tolerances(recipe.verify.tolerance, layers),
    )  # fmt: skip


def _print(report: VerifyReport, stream: IO[str]) -> None:
    stream.write(render(report, color=stream.isatty(), width=terminal_width(stream)))
    stream.flush()
