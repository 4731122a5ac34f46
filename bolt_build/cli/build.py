"""`bolt-build build`: every target of every recipe, built and verified in one graph; nothing twice."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from bolt_build.build.builder import BuildOptions, Listener, build_recipes, chosen, dry_runs
from bolt_build.build.files import told, write_named
from bolt_build.build.result import BuildResult
from bolt_build.build.timings import Timekeeper
from bolt_build.cli.cache_arguments import add_task_cache, with_cache
from bolt_build.cli.common_arguments import (
    add_format,
    add_jobs,
    add_place,
    add_recipes,
    file_name,
    options_of,
    read_recipes,
)
from bolt_build.cli.executor_arguments import add_executor, with_executor
from bolt_build.cli.outcome_files import OutcomeLog, add_outcome_files, with_outcome_files
from bolt_build.cli.streams import wants_color
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.report.diagnostics import as_json, render
from bolt_build.report.progress import failure_text, forecast_data, forecast_text, progress, summary_text, total_text
from bolt_build.schema.recipe import Recipe

_WORST_FIRST = (
    ExitCode.INTERRUPTED, ExitCode.INVALID, ExitCode.TASK_FAILED, ExitCode.VERIFY_FAILED, ExitCode.LOCK,
    ExitCode.TOOL_MISSING, ExitCode.USAGE, ExitCode.OK,
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    add_jobs(parser)
    add_executor(parser)
    parser.add_argument(
        "-k",
        "--keep-going",
        action="store_true",
        help="after a failure, go on with tasks that do not depend on it (other recipes always do)",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="say what would run and why, and run nothing")
    parser.add_argument(
        "--no-wait", action="store_true", help="end with exit code 4 instead of waiting for another build"
    )
    parser.add_argument(
        "--locked", action="store_true", help="end with exit code 6 unless the whole plan comes from the recipe's lock"
    )
    add_task_cache(parser, may_only_read=True)
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    parser.add_argument(
        "--timings", type=file_name, metavar="FILE.html",
        help="write a page with the tasks over time, the critical path, and what the cache saved",
    )  # fmt: skip
    add_format(parser)
    add_outcome_files(parser)


def run(args: argparse.Namespace) -> int:
    """Builds all recipes together. Raises BoltError where nothing could be attempted."""
    return with_outcome_files(args, "build", lambda log: _run(args, log))


def _run(args: argparse.Namespace, log: OutcomeLog) -> int:
    recipes = read_recipes(args)
    options = replace(
        with_cache(options_of(args), args), keep_going=args.keep_going, wait=not args.no_wait, locked=args.locked
    )
    options = with_executor(options, args)
    _check_targets(recipes, options)
    if args.timings is not None and args.dry_run:
        message = "--timings has nothing to show of a build that --dry-run does not run"
        raise BoltError([Diagnostic("nothing-to-time", message, hint="leave one of them out")], ExitCode.USAGE)
    if args.dry_run:
        return _dry_run(recipes, options, progress(args.format, quiet=args.quiet), args.format)
    if args.timings is not None:
        return _timed(recipes, options, args, log)
    return build_all(recipes, options, args, progress(args.format, quiet=args.quiet), log)


def _timed(recipes: list[Recipe], options: BuildOptions, args: argparse.Namespace, log: OutcomeLog) -> int:
    """Builds, and writes the page, whatever came of the build."""
    # It loads jinja2, which only a build with a page needs.
    from bolt_build.report.pages.page import check_place

    # It loads jinja2, which only a build with a page needs.
    from bolt_build.report.pages.timings import timings_page

    check_place(args.timings)
    directories = {recipe.name: options.directory(recipe) for recipe in recipes}
    keeper = Timekeeper(progress(args.format, quiet=args.quiet), directories)
    code = build_all(recipes, options, args, keeper, log)
    with told(args.timings, "write it to a folder of your own with --timings FILE.html"):
        write_named(args.timings, timings_page(keeper.timings()))
    return code


def build_all(
    recipes: list[Recipe], options: BuildOptions, args: argparse.Namespace, listener: Listener, log: OutcomeLog
) -> int:
    """Builds recipes as one graph, in the form and as quietly as `args` say, and returns the exit code: the worst of
    all. What comes of each is noted in `log`."""
    started = time.monotonic()
    results = build_recipes(recipes, options, listener)
    log.found += zip(recipes, results, strict=True)
    for recipe, result in zip(recipes, results, strict=True):
        _show(recipe, result, args)
    codes = [result.exit_code for result in results]
    code = min(codes, key=_WORST_FIRST.index)
    if len(results) > 1:
        _show_all(results, code, time.monotonic() - started, args)
    return int(code)


def _check_targets(recipes: list[Recipe], options: BuildOptions) -> None:
    """Raises BoltError for a --target that a recipe does not have, before any is built."""
    wrong: list[Diagnostic] = []
    for recipe in recipes:
        try:
            chosen(recipe, options.targets)
        except BoltError as error:
            wrong += error.diagnostics
    if wrong:
        raise BoltError(wrong, ExitCode.USAGE)


def _dry_run(recipes: list[Recipe], options: BuildOptions, listener: Listener, form: str) -> int:
    found = dry_runs(recipes, options, listener)
    if len(found) == 1 and isinstance(found[0], BoltError):
        raise found[0]
    data: list[dict[str, object]] = []
    said: list[Diagnostic] = []
    for recipe, forecasts in zip(recipes, found, strict=True):
        if isinstance(forecasts, BoltError):
            said += forecasts.diagnostics
            continue
        said += [warning for each in forecasts for warning in each.warnings]
        if form == "json":
            data += forecast_data(recipe.name, forecasts)
        else:
            sys.stdout.write(forecast_text(recipe.name, forecasts))
    said = list(dict.fromkeys(said))
    if form == "json":
        sys.stdout.write(json.dumps({"event": "forecast", "tasks": data, "diagnostics": as_json(said)}) + "\n")
    else:
        sys.stdout.flush()
        sys.stderr.write(render(said, color=wants_color(sys.stderr)))
    codes = [each.exit_code for each in found if isinstance(each, BoltError)]
    return int(min(codes, key=_WORST_FIRST.index, default=ExitCode.OK))


def _show(recipe: Recipe, result: BuildResult | BoltError, args: argparse.Namespace) -> None:
    """What came of one recipe."""
    if isinstance(result, BoltError):
        if args.format == "json":
            _report_trouble(recipe, result)
        else:
            sys.stdout.flush()
            sys.stderr.write(render(result.diagnostics, color=wants_color(sys.stderr)))
        return
    if args.format == "json":
        sys.stdout.write(json.dumps(_data(result)) + "\n")
        return
    _show_verification(result, quiet=args.quiet)
    if not args.quiet:
        sys.stdout.write(summary_text(result))
        sys.stdout.flush()
    sys.stderr.write(failure_text(result))
    sys.stderr.write(render(result.diagnostics, color=wants_color(sys.stderr)))


def _show_all(
    results: Sequence[BuildResult | BoltError], code: ExitCode, seconds: float, args: argparse.Namespace
) -> None:
    """One line for all recipes."""
    if args.format == "json":
        codes = [int(result.exit_code) for result in results]
        data = {"event": "end", "exit_code": int(code), "exit_codes": codes, "seconds": round(seconds, 3)}
        sys.stdout.write(json.dumps(data) + "\n")
    elif not args.quiet:
        sys.stderr.flush()
        sys.stdout.write(total_text(results, seconds))
        sys.stdout.flush()


def _show_verification(result: BuildResult, *, quiet: bool) -> None:
    """What verification found, where it ran now or does not pass."""
    ran = {event.target for event in result.finished if event.task == "verify"}
    for target in result.targets:
        if target.comparison is None or (target.verified and (quiet or target.target not in ran)):
            continue
        # Verification loads NumPy, and --report alone asks for what it says.
        from bolt_build.cli.verify import show_report

        show_report(target.comparison, sys.stdout if target.verified else sys.stderr)


def _report_trouble(recipe: Recipe, error: BoltError) -> None:
    data = {
        "event": "result", "recipe": recipe.name, "exit_code": int(error.exit_code),
        "diagnostics": as_json(error.diagnostics), "targets": [], "failed": [], "not_attempted": [],
    }  # fmt: skip
    sys.stdout.write(json.dumps(data) + "\n")


def _kernels(source: KernelSource | None) -> dict[str, object] | None:
    return vars(source) if source is not None else None


def _data(result: BuildResult) -> dict[str, object]:
    return {
        "event": "result", "recipe": result.recipe, "exit_code": int(result.exit_code),
        "diagnostics": as_json(result.diagnostics),
        "targets": [
            {
                "target": t.target, "directory": str(t.directory.path), "artifacts": list(t.artifacts),
                "verified": t.verified, "elsewhere": t.elsewhere, "kernels": _kernels(t.kernels),
            }
            for t in result.targets
        ],
        "failed": [event.task for event in result.failed],
        "not_attempted": list(result.not_attempted),
        "seconds": round(result.seconds, 3), "waited": round(result.waited, 3),
    }  # fmt: skip
