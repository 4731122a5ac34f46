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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "operators", nargs="*", metavar="OPERATOR",
        help="only this one, such as Conv or com.microsoft.FusedConv; case does not matter (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--format", **one_of("text", "markdown", "json"), default="text",
        help="form of the table (default: text)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prints one line an operator. Raises BoltError where an installed package's offer cannot be used, and for names
    that no operator has."""
    found = operators(all_targets(), args.operators)
    if args.format == "json":
        sys.stdout.write(json.dumps(as_json(found), indent=1) + "\n")
    elif args.format == "markdown":
        sys.stdout.write(markdown(found))
    else:
        sys.stdout.write(render(found, width=terminal_width(sys.stdout)))
    return int(ExitCode.OK)
