"""`bolt-build emulate`: GPU engines of recipes, built for an emulated GPU from the same sources, and verified there."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

from bolt_build import emulator
from bolt_build.build.caching.cache import Cache
from bolt_build.build.cleaning import emulated
from bolt_build.build.files import told
from bolt_build.build.planning.preparing import Preparer
from bolt_build.cli.build import build_all
from bolt_build.cli.cache_arguments import add_task_cache, with_cache
from bolt_build.cli.common_arguments import (
    add_format,
    add_jobs,
    add_place,
    add_recipes,
    count,
    options_of,
    read_recipes,
)
from bolt_build.cli.outcome_files import OutcomeLog, add_outcome_files, with_outcome_files
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.progress import progress
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import target_named

_LEAST = 0
"""What `--batch least` reads as."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--batch",
        type=_batch,
        action="append",
        metavar="N",
        help="only this batch, or each target's 'least' (repeatable)",
    )
    add_jobs(parser)
    add_task_cache(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    add_format(parser)
    add_outcome_files(parser)


def run(args: argparse.Namespace) -> int:
    """Begins again with the emulated GPU, then builds. Raises BoltError where nothing could be attempted."""
    return with_outcome_files(args, "emulate", lambda log: _run(args, log))


def _run(args: argparse.Namespace, log: OutcomeLog) -> int:
    recipes = [_for_gpus(recipe, args) for recipe in _with_gpus(read_recipes(args))]
    options = replace(with_cache(options_of(args), args), output=emulated(args.generated), targets=())
    if not emulator.in_use():
        _begin_again(options.local_cache)
    if args.jobs:
        options = replace(options, jobs=args.jobs)
    return build_all(recipes, options, args, progress(args.format, quiet=args.quiet), log)


def _begin_again(cache: Cache) -> None:
    """Does not return: the driver's library is looked for where the process began to look."""
    with told(cache.directory):
        cache.folders.make()
    around = {**os.environ, **emulator.environment(cache.directory / "emulator")}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "bolt_build", *sys.argv[1:]], around)


def _batch(text: str) -> int:
    """A batch; `_LEAST` for the least."""
    return _LEAST if text == "least" else count(text)


def _with_gpus(recipes: list[Recipe]) -> list[Recipe]:
    """Those of several recipes that have a target with a GPU, or all where none has. Of the others standard error says
    so once."""
    found = [each for each in recipes if any(target_named(spec.name).gpu is not None for spec in each.targets)]
    if found and emulator.in_use():
        for recipe in (each for each in recipes if each not in found):
            sys.stderr.write(f"{recipe.path}: not emulated: it has no target with a GPU\n")
    return found or recipes


def _for_gpus(recipe: Recipe, args: argparse.Namespace) -> Recipe:
    """The recipe with its GPU targets alone, of those and of the batches that were asked for.

    Raises BoltError where one that was asked for is not there.
    """
    wanted = args.target or [spec.name for spec in recipe.targets if target_named(spec.name).gpu is not None]
    wrong = [_wrong(recipe, name) for name in wanted if _wrong(recipe, name)]
    if not wanted:
        wrong = [f"{recipe.path} has no target with a GPU"]
    preparer = Preparer(recipe, options_of(args).directory(recipe), lambda text: print(text, file=sys.stderr))
    batches = {spec.name: preparer.batches(spec) if args.batch else recipe.batches(spec) for spec in recipe.targets}
    specs = [_with_batches(spec, args.batch, batches[spec.name]) for spec in recipe.targets if spec.name in wanted]
    wrong += [
        f"{recipe.path} has no batch {batch} for {spec.name}"
        for spec in recipe.targets
        if spec.name in wanted
        for batch in args.batch or ()
        if batch != _LEAST and batch not in batches[spec.name]
    ]
    if wrong:
        names = ", ".join(f"{name} {list(own)}" if own else name for name, own in batches.items())
        found = [Diagnostic("nothing-to-emulate", text, hint=f"targets and batches: {names}") for text in wrong]
        raise BoltError(found, ExitCode.USAGE)
    return replace(recipe, targets=tuple(specs))


def _wrong(recipe: Recipe, name: str) -> str:
    if name not in [spec.name for spec in recipe.targets]:
        return f"{recipe.path} has no target '{name}'"
    return "" if target_named(name).gpu is not None else f"{name} needs no GPU: build it"


def _with_batches(spec: TargetSpec, wanted: list[int] | None, own: tuple[int, ...]) -> TargetSpec:
    if not wanted:
        return spec
    numbers = {min(own) if batch == _LEAST else batch for batch in wanted}
    return replace(spec, batch=tuple(batch for batch in own if batch in numbers))
