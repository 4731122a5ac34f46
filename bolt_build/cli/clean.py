"""`bolt-build clean`: removes what was generated for recipes, and nothing that no build made."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from bolt_build.build.builder import BuildOptions
from bolt_build.build.cleaning import Cleaned, check_targets, clean, clean_targets, joined
from bolt_build.build.layout import TUNING
from bolt_build.build.orphans import orphans
from bolt_build.cli.common_arguments import add_cache, add_place, add_recipes, options_of, read_recipes
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import with_variant


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser, needed=False)
    add_place(parser)
    parser.add_argument(
        "--orphaned", action="store_true",
        help="remove output that no recipe makes any more: of recipes that are gone or renamed, of removed targets",
    )  # fmt: skip
    parser.add_argument("-n", "--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    parser.add_argument("--prune-cache", action="store_true", help="empty the local cache of task outputs")
    add_cache(parser)


def run(args: argparse.Namespace) -> int:
    """Raises BoltError where files are left that no build made."""
    if not args.recipes and not args.prune_cache and not args.orphaned:
        hint = "bolt-build clean RECIPE..., or --orphaned, or --prune-cache; with --dry-run it only says what"
        raise BoltError([Diagnostic("nothing-asked", "nothing to clean was named", hint=hint)], ExitCode.USAGE)
    options = replace(options_of(args), cache=args.cache)
    asked = _recipes(args)
    variants = (with_variant(recipe, variant.name) for recipe in asked for variant in recipe.variants)
    for recipe in asked:
        check_targets(recipe, options)
    found = [clean(recipe, options, pretend=args.dry_run) for recipe in (*asked, *variants)]
    _say(joined(found), args)
    found += _clean_orphans(options, args) if args.orphaned else []
    if args.prune_cache:
        _prune(options, args)
    left = [path for one in found for path in one.foreign]
    if left and not args.dry_run:
        message = f"left alone, as no build made them: {', '.join(os.path.relpath(path) for path in left)}"
        raise BoltError([Diagnostic("foreign-files", message)])
    return int(ExitCode.OK)


def _recipes(args: argparse.Namespace) -> list[Recipe]:
    """The recipes. Raises BoltError, for one that is not there with the way to remove what it made."""
    try:
        return read_recipes(args)
    except BoltError as error:
        found = [
            replace(each, hint=f"to remove what it made: bolt-build clean --orphaned --output {args.generated}")
            if each.code == "no-such-file" and (args.generated / Path(str(each.subject)).stem).is_dir()
            else each
            for each in error.diagnostics
        ]
        raise BoltError(found, error.exit_code) from error


def _clean_orphans(options: BuildOptions, args: argparse.Namespace) -> list[Cleaned]:
    found = []
    for orphan in orphans(options.output):
        targets = [] if orphan.target is None else [orphan.target]
        names = [target.path.name.removesuffix(TUNING) for target in targets]
        if options.targets and not set(names) & set(options.targets):
            continue
        found.append(clean_targets(orphan.recipe, targets, options, pretend=args.dry_run))
        _say(found[-1], args, f": {orphan.reason}")
    return found


def _say(cleaned: Cleaned, args: argparse.Namespace, why: str = "") -> None:
    word = "would remove" if args.dry_run else "removed"
    for path in cleaned.removed:
        sys.stdout.write(f"{word} {os.path.relpath(path)}{why}\n")
    for path in cleaned.foreign if args.dry_run else ():
        sys.stdout.write(f"would leave {os.path.relpath(path)}: no build made it\n")


def _prune(options: BuildOptions, args: argparse.Namespace) -> None:
    if args.dry_run:
        sys.stdout.write(f"would empty {options.local_cache.directory}\n")
        return
    removed, _ = options.local_cache.prune(0)
    sys.stdout.write(f"removed {removed} files from {options.local_cache.directory}\n")
