"""`bolt-build clean`: removes what was generated for recipes, and nothing that no build made."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

from bolt_build.build.cleaning import clean
from bolt_build.cli.common_arguments import add_cache, add_place, file_name, options_of, read_recipes
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.variants import with_variant

NAME = "clean"
HELP = "remove what was generated for recipes and their variants; --prune-cache empties the local cache"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipes", nargs="*", type=file_name, metavar="RECIPE", help="a recipe file")
    add_place(parser)
    parser.add_argument("--prune-cache", action="store_true", help="empty the local cache of task outputs")
    add_cache(parser)


def run(args: argparse.Namespace) -> int:
    """Raises BoltError where files are left that no build made."""
    if not args.recipes and not args.prune_cache:
        hint = "bolt-build clean RECIPE..., or bolt-build clean --prune-cache"
        raise BoltError([Diagnostic("nothing-asked", "nothing to clean was named", hint=hint)], ExitCode.USAGE)
    options = replace(options_of(args), cache=args.cache)
    wrong: list[Diagnostic] = []
    asked = read_recipes(args.recipes)
    variants = (with_variant(recipe, variant.name) for recipe in asked for variant in recipe.variants)
    for recipe in (*asked, *variants):
        try:
            for path in clean(recipe, options):
                sys.stdout.write(f"removed {os.path.relpath(path)}\n")
        except BoltError as error:
            wrong += error.diagnostics
    if args.prune_cache:
        removed, _ = options.local_cache.prune(0)
        sys.stdout.write(f"removed {removed} files from {options.local_cache.directory}\n")
    if wrong:
        raise BoltError(wrong)
    return int(ExitCode.OK)
