"""`bolt-build run`: a built engine on given inputs, through its own runner program."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from bolt_build.build.layout import TargetDirectory
from bolt_build.cli.common_arguments import add_dims, add_place, add_recipe, count, options_of, read_recipe
from bolt_build.cli.engines_here import the_engine_here
from bolt_build.cli.streams import wants_color
from bolt_build.errors import Diagnostic, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.schema.recipe import Recipe
from bolt_build.user_files import shell_word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_place(parser, "--generated")
    parser.add_argument(
        "--input", action="append", required=True, metavar="[NAME=]FILE",
        help="a .npy for the input NAME (repeatable), or .bin or .raw with its bytes; or one .npz for all inputs",
    )  # fmt: skip
    parser.add_argument(
        "--output", action="append", dest="results", default=[], metavar="[NAME=]FILE",
        help="a .npy for the output NAME (repeatable), or one .npz for all outputs; without it a summary is printed",
    )  # fmt: skip
    parser.add_argument("--batch", type=count, metavar="N", help="which of the engine's batches (default: the inputs')")
    add_dims(parser)
    parser.add_argument("--threads", type=count, metavar="N", help="threads (default: as many as CPUs)")


def run(args: argparse.Namespace) -> int:
    """Exit code 3 where inputs do not fit the engine, 4 where it fails otherwise.

    Raises BoltError where the engine is not built or is stale.
    """
    recipe = read_recipe(args)
    options = options_of(args)
    engine = the_engine_here(recipe, options)
    warn_of_failed_verification(recipe, engine.target, engine.directory)
    done = subprocess.run([os.fspath(engine.runner), *_arguments(args)], check=False)
    codes = {0: ExitCode.OK, 2: ExitCode.USAGE, 3: ExitCode.INVALID}
    return int(codes.get(done.returncode, ExitCode.TASK_FAILED))


def warn_of_failed_verification(recipe: Recipe, target: str, directory: TargetDirectory) -> None:
    """Says on standard error that the engine departs from its model, where verification has found so."""
    try:
        found = json.loads(directory.verification.read_text(encoding="utf-8"))
        failed = found["ok"] is False
        reason = next((p["message"] for p in found["problems"] if p["severity"] == "error"), "")
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        failed, reason = True, "its report cannot be read"
    if failed:
        warning = Diagnostic(
            "verification-failed",
            f"{recipe.name}/{target}: this engine failed its verification" + (f": {reason}" if reason else ""),
            hint=f"what was found: bolt-build verify {shell_word(recipe.path)}",
            severity="warning",
        )
        sys.stderr.write(render([warning], color=wants_color(sys.stderr)))


def _arguments(args: argparse.Namespace) -> list[str]:
    found: list[str] = []
    for option, values in (("--input", args.input), ("--output", args.results)):
        for value in values:
            found += [option, value]
    for option, number in (("--batch", args.batch), ("--threads", args.threads)):
        if number is not None:
            found += [option, str(number)]
    for name, extent in args.dim:
        found += ["--dim", f"{name}={extent}"]
    return found
