"""`bolt-build operators`: the ONNX operators that this installation imports, and what computes them."""

from __future__ import annotations

import argparse
import json
import sys

from bolt_build.cli.common_arguments import one_of
from bolt_build.errors import ExitCode
from bolt_build.report.operators import as_json, markdown, render
from bolt_build.report.tables import terminal_width
from bolt_build.targets import all_targets
from bolt_build.workflows.operators import operators

NAME = "operators"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", **one_of("text", "markdown", "json"), default="text",
        help="form of the table (default: text)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prints one line an operator. Raises BoltError where an installed package's offer cannot be used."""
    found = operators(all_targets())
    if args.format == "json":
        sys.stdout.write(json.dumps(as_json(found), indent=1) + "\n")
    elif args.format == "markdown":
        sys.stdout.write(markdown(found))
    else:
        sys.stdout.write(render(found, width=terminal_width(sys.stdout)))
    return int(ExitCode.OK)
