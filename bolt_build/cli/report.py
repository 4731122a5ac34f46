"""`bolt-build report`: one HTML page of a recipe's engines, from what is known; nothing is measured anew."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from bolt_build.build.files import told, write_named
from bolt_build.cli.common_arguments import add_cache, add_place, add_recipe, file_name, options_of, read_recipe
from bolt_build.errors import ExitCode
from bolt_build.report.pages.engine_page import engine_page
from bolt_build.report.pages.page import check_place
from bolt_build.workflows.engine_report import report_engines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_place(parser)
    parser.add_argument(
        "--out", type=file_name, metavar="FILE.html", help="the page to write (default: the engine's name, here)"
    )
    add_cache(parser, "the cache with the records")


def run(args: argparse.Namespace) -> int:
    """Writes the page. Raises BoltError."""
    recipe = read_recipe(args)
    path = args.out or Path(f"{recipe.name}.html")
    check_place(path)
    options = replace(options_of(args), cache=args.cache)
    engines = report_engines(recipe, options, lambda text: print(text, file=sys.stderr))
    with told(path, "write it to a folder of your own with --out FILE.html"):
        write_named(path, engine_page(recipe.name, engines))
    sys.stdout.write(f"wrote {path}\n")
    return int(ExitCode.OK)
