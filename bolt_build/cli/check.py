"""`bolt-build check`: recipes read and validated, nothing built."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from bolt_build.cli.common_arguments import add_format, add_place, add_recipes, options_of, try_recipes
from bolt_build.cli.outcome_files import OutcomeLog, add_outcome_files, with_outcome_files
from bolt_build.cli.streams import complain, wants_color
from bolt_build.digest import encode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.diagnostics import as_json, render
from bolt_build.schema.expand import expand
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.wording import many

if TYPE_CHECKING:
    # --model alone plans; editors check recipes as they are typed.
    from bolt_build.workflows.model_check import ModelCheck, PlannedSize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--model", action="store_true", help="also import and plan the models, and report everything that would fail"
    )
    parser.add_argument("--expand", action="store_true", help="print each recipe with every default, as YAML")
    add_format(parser, "report")
    add_outcome_files(parser)


def run(args: argparse.Namespace) -> int:
    """Reports on every recipe, in the order given. Raises BoltError (text) with what is wrong with any of them."""
    return with_outcome_files(args, "check", lambda log: _run(args, log))


def _run(args: argparse.Namespace, log: OutcomeLog) -> int:
    recipes, wrong = try_recipes(args)
    checks = [_check_model(recipe, args) for recipe in recipes] if args.model else []
    wrong += [diagnostic for check in checks for diagnostic in check.wrong]
    warned = [diagnostic for check in checks for diagnostic in check.warned]
    log.found += [(recipe, None) for recipe in recipes]
    log.diagnostics += warned
    if args.format == "json":
        log.diagnostics += wrong
        sys.stdout.write(_json(recipes, checks, [*wrong, *warned], args.expand))
        return int(ExitCode.INVALID if wrong else ExitCode.OK)
    refused = [check.recipe for check in checks if check.wrong]
    for recipe in recipes:
        if args.expand or recipe not in refused:
            sys.stdout.write(_expanded(recipe, len(recipes) > 1) if args.expand else _summary(recipe))
        sys.stdout.write(
            "".join(_size(size, check.recipe) for check in checks if check.recipe is recipe for size in check.sizes)
        )
    sys.stdout.flush()
    if warned:
        complain(render(warned, color=wants_color(sys.stderr)))
    if wrong:
        raise BoltError(wrong)
    return int(ExitCode.OK)


def _check_model(recipe: Recipe, args: argparse.Namespace) -> ModelCheck:
    # --model alone plans; editors check recipes as they are typed.
    from bolt_build.workflows.model_check import check_model

    return check_model(recipe, options_of(args), lambda text: print(text, file=sys.stderr, flush=True))


def _size(size: PlannedSize, recipe: Recipe) -> str:
    # Tables load rich, and only --model shows sizes.
    from bolt_build.report.tables import byte_text

    batches = ", ".join(map(str, size.batches))
    memory = f"weights {byte_text(size.weight_bytes)}, arena {byte_text(size.arena_bytes)}"
    where = f"batch {batches}{_lengths(recipe)}"
    return f"  {size.target}: can be planned: {many(size.steps, 'step')} for {where}, {memory}\n"


def _lengths(recipe: Recipe) -> str:
    """Dimensions with several extents, each of which has plans for every batch."""
    return "".join(f", {name} {' or '.join(map(str, extents))}" for name, extents in recipe.model.lengths)


def _summary(recipe: Recipe) -> str:
    model = recipe.model
    source = f"zoo model {model.zoo}" if model.zoo is not None else str(model.onnx)
    batches = ", ".join(str(batch) for batch in model.batch) or "of the model"
    targets = ", ".join(f"{target.name} ({_target(target)})" for target in recipe.targets)
    return f"{recipe.path}: ok: {recipe.name}, {source}, batch {batches}{_lengths(recipe)}, for {targets}\n"


def _target(target: TargetSpec) -> str:
    own = ", ".join(str(batch) for batch in target.batch)
    return f"{target.precision}, batch {own}" if own else target.precision


def _expanded(recipe: Recipe, several: bool) -> str:
    return (f"---\n# {recipe.path}\n" if several else "") + expand(recipe)


def _json(recipes: list[Recipe], checks: list[ModelCheck], wrong: list[Diagnostic], with_text: bool) -> str:
    planned = {check.recipe.path: [encode(size) for size in check.sizes] for check in checks}
    data = {
        "version": 1,
        "recipes": [
            {"file": recipe.path, "name": recipe.name}
            | ({"expanded": expand(recipe)} if with_text else {})
            | ({"planned": planned[recipe.path]} if recipe.path in planned else {})
            for recipe in recipes
        ],
        "diagnostics": as_json(wrong),
    }
    return json.dumps(data, indent=2) + "\n"
