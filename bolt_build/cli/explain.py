"""`bolt-build explain`: why each layer of an engine is as it is, and how near that is to the hardware's limit."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.planning.preparing import Preparer
from bolt_build.cli.asked_sizes import check_extents
from bolt_build.cli.common_arguments import (
    add_cache,
    add_dims,
    add_format,
    add_place,
    add_recipe,
    count,
    options_of,
    read_recipe,
)
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.explained.explain import as_json, of_layer, of_sizes, render, render_layer
from bolt_build.report.explained.explainer import explain
from bolt_build.report.explained.explanation import Explanation
from bolt_build.report.tables import terminal_width
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.workflows.evidence import gather


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument(
        "layer", nargs="?", metavar="LAYER", help="a step or an ONNX node: everything about it (default: all, briefly)"
    )
    add_place(parser)
    parser.add_argument("--batch", type=count, metavar="N", help="only this batch of the recipe")
    add_dims(parser)
    add_cache(parser, "the cache with the records")
    add_format(parser, "explanation")


def run(args: argparse.Namespace) -> int:
    """Explains every target. Raises BoltError."""
    recipe = read_recipe(args)
    options = replace(options_of(args), cache=args.cache)
    specs, only = chosen(recipe, options.targets), tuple(args.dim)
    check_extents(recipe, only)
    if args.batch is not None:
        specs = _with_batch(recipe, specs, args.batch, options)
    found = [_explained(recipe, spec, options) for spec in specs]
    found = [of_sizes(each, args.batch, only) for each in found]
    if args.layer is not None:
        found = list(of_layer(found, args.layer))
    if args.format == "json":
        data = [as_json(each, attempts=args.layer is not None) for each in found]
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return int(ExitCode.OK)
    show, width = render if args.layer is None else render_layer, terminal_width(sys.stdout)
    sys.stdout.write("\n".join(show(each, width=width) for each in found))
    return int(ExitCode.OK)


def _with_batch(
    recipe: Recipe, specs: Sequence[TargetSpec], batch: int, options: BuildOptions
) -> tuple[TargetSpec, ...]:
    """Those of the targets that have the batch. Raises BoltError where none has it."""
    preparer = Preparer(recipe, options.directory(recipe), _say)
    batches = dict.fromkeys(each for spec in specs for each in preparer.batches(spec))
    if batch not in batches:
        hint = f"its batches: {', '.join(map(str, batches))}"
        message = f"{recipe.path} has no batch {batch}"
        raise BoltError([Diagnostic("unknown-batch", message, recipe.mark("model.batch"), hint)], ExitCode.USAGE)
    return tuple(spec for spec in specs if batch in preparer.batches(spec))


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _explained(recipe: Recipe, spec: TargetSpec, options: BuildOptions) -> Explanation:
    return explain(gather(recipe, spec, options, _say))
