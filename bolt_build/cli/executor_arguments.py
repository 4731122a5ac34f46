"""Arguments of verbs that may have work done on other machines."""

from __future__ import annotations

import argparse
from dataclasses import replace

from bolt_build.build.builder import BuildOptions
from bolt_build.build.remote.dask import LOCAL, check_scheduler
from bolt_build.cli.cache_arguments import named
from bolt_build.cli.common_arguments import one_of
from bolt_build.errors import BoltError, Diagnostic, ExitCode

AWAY = 64
"""Tasks at once where a scheduler is named and no number: those that are away take nothing here but a thread."""


def add_executor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--executor", **one_of("here", "dask"), default="here",
        help="where compilations run, and where tune measures: here, or on workers of Dask (default: here)",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler", type=named, metavar="ADDRESS",
        help="Dask's scheduler, such as tls://HOST:PORT (default: workers that are started here)",
    )  # fmt: skip


def with_executor(options: BuildOptions, args: argparse.Namespace) -> BuildOptions:
    """The options with executor and number of tasks at once. Raises BoltError for a scheduler that cannot be one."""
    jobs: int | None = args.jobs
    if args.executor == "here":
        if args.scheduler is not None:
            hint = f"--executor dask --scheduler {args.scheduler}"
            message = "--scheduler is for --executor dask"
            raise BoltError([Diagnostic("wrong-arguments", message, hint=hint)], ExitCode.USAGE)
        return options if jobs is None else replace(options, jobs=jobs)
    address = LOCAL if args.scheduler is None else args.scheduler
    check_scheduler(address)
    if jobs is None:
        jobs = options.jobs if address == LOCAL else AWAY
    return replace(options, scheduler=address, jobs=jobs)
