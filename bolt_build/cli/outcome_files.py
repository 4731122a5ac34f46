"""Options that leave what came of a command in files for CI services, and the writing of these files, whatever came."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.build.files import told, write_named
from bolt_build.cli.common_arguments import file_name, one_of
from bolt_build.errors import BoltError, Diagnostic, ExitCode

if TYPE_CHECKING:
    from bolt_build.build.result import BuildResult
    from bolt_build.schema.recipe import Recipe
    from bolt_build.verify.report import VerifyReport


@dataclass
class OutcomeLog:
    """What comes of each recipe: a build, why none could be attempted, a comparison, or None where it was only read.
    `diagnostics` are those of no recipe that could be read."""

    found: list[tuple[Recipe, BuildResult | BoltError | tuple[VerifyReport, ...] | None]] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def add_outcome_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for CI, written even where something fails")
    group.add_argument("--report", type=file_name, metavar="FILE.json", help="the outcome as JSON")
    group.add_argument("--junit", type=file_name, metavar="FILE.xml", help="verification as JUnit: a case a layer")
    group.add_argument("--summary", type=file_name, metavar="FILE.md", help="append a table as Markdown")
    group.add_argument(
        "--code-quality", type=file_name, metavar="FILE.json", help="what is wrong, as GitLab's Code Quality report"
    )
    group.add_argument(
        "--annotations", **one_of("github"),
        help="say what is wrong as GitHub's workflow commands too, on standard error",
    )  # fmt: skip


def with_outcome_files(args: argparse.Namespace, verb: str, run: Callable[[OutcomeLog], int]) -> int:
    """What `run` returns, or raises; what came of it is then in the files that `args` name.

    Raises BoltError where one could not be written, before `run` where that can be seen.
    """
    files = [path for path in (args.report, args.junit, args.summary, args.code_quality) if path is not None]
    if not files and args.annotations is None:
        return run(OutcomeLog())
    for path in files:
        _check_place(path)
    log, began, code = OutcomeLog(), time.monotonic(), ExitCode.INTERNAL
    try:
        code = ExitCode(run(log))
    except BoltError as error:
        log.diagnostics += error.diagnostics
        code = error.exit_code
        raise
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
        raise
    finally:
        _write(args, verb, code, time.monotonic() - began, log)
    return int(code)


def _write(args: argparse.Namespace, verb: str, code: ExitCode, seconds: float, log: OutcomeLog) -> None:
    # They read what verification found, which takes half a second: without these options nothing asks for it.
    from bolt_build.report.annotations import code_quality, github_commands
    from bolt_build.report.junit import junit_xml
    from bolt_build.report.outcome_json import outcome_json
    from bolt_build.report.summary import summary_markdown
    from bolt_build.workflows.outcome import Outcome, recipe_outcome

    recipes = tuple(recipe_outcome(recipe, found) for recipe, found in log.found)
    outcome = Outcome(verb, code, seconds, recipes, tuple(log.diagnostics))
    for path, form in ((args.report, outcome_json), (args.junit, junit_xml), (args.code_quality, code_quality)):
        if path is not None:
            with told(path, "write it to a folder of your own"):
                write_named(path, form(outcome))
    if args.summary is not None:
        with told(args.summary, "write it to a folder of your own"), args.summary.open("a", encoding="utf-8") as file:
            file.write(summary_markdown(outcome))
    if args.annotations is not None:
        sys.stderr.write(github_commands(outcome))
        sys.stderr.flush()


def _check_place(path: Path) -> None:
    # It loads jinja2, which no other check of options needs.
    from bolt_build.report.pages.page import check_place

    check_place(path)
