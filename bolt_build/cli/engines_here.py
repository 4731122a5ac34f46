"""Of a recipe's built engines those that run on this machine; of the others is said why they do not."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named
from bolt_build.toolchain.machine import why_not_here, without_other_gpus
from bolt_build.workflows.built import BuiltEngine, built_engines


def engines_here(
    recipes: Sequence[Recipe], options: BuildOptions, undone: str
) -> Iterator[tuple[Recipe, tuple[BuiltEngine, ...]]]:
    """Of each recipe the engines of the chosen targets that run here. The others are not `undone` ("measured"), whether
    they are built or not, and standard error says so.

    Raises BoltError where one is not built, or is stale; and in the end where none runs here, so that nothing was done.
    """
    missing: list[Diagnostic] = []
    for recipe in recipes:
        here, elsewhere = _split(recipe, options)
        if not here:
            missing.append(_nothing_here(recipe))
        for name, reason in elsewhere:
            sys.stderr.write(f"{recipe.name}/{name}: not {undone}: {reason}\n")
        yield recipe, engines_of(recipe, replace(options, targets=here)) if here else ()
    if len(missing) == len(recipes):
        raise BoltError(missing, ExitCode.TOOL_MISSING)


def engines_of(recipe: Recipe, options: BuildOptions) -> tuple[BuiltEngine, ...]:
    """The engines of the chosen targets, wherever they run. Standard error says which tools they were not compared
    with. Raises BoltError where one is not built, or is stale."""
    found = built_engines(recipe, options)
    for engine in found:
        for problem in engine.unasked:
            sys.stderr.write(
                f"{recipe.name}/{engine.target}: this tool is not compared with the one that built it: {problem}\n"
            )
    return found


def the_engine_here(recipe: Recipe, options: BuildOptions) -> BuiltEngine:
    """The engine of the one target that was named, or that runs here, which standard error then says.

    Raises BoltError: where several do, or none of several; where it is not built, or is stale.
    """
    names = [spec.name for spec in chosen(recipe, options.targets)]
    if len(names) > 1:
        here, elsewhere = _split(recipe, options)
        if not here:
            raise BoltError([_nothing_here(recipe, elsewhere)], ExitCode.TOOL_MISSING)
        here = without_other_gpus(here)
        if len(here) > 1:
            hint = f"choose one with --target: {', '.join(here)}"
            message = f"several targets of {recipe.path} run on this machine"
            raise BoltError([Diagnostic("several-targets", message, hint=hint)], ExitCode.USAGE)
        sys.stderr.write(f"{recipe.name}/{here[0]}: the target that runs on this machine\n")
        names = list(here)
    (engine,) = engines_of(recipe, replace(options, targets=tuple(names)))
    return engine


def _nothing_here(recipe: Recipe, elsewhere: Sequence[tuple[str, str]] = ()) -> Diagnostic:
    """`elsewhere` are reasons that were not told yet."""
    hint = "; ".join(f"{name}: {reason}" for name, reason in elsewhere) or None
    return Diagnostic("nothing-runs-here", f"none of the targets of {recipe.path} runs on this machine", hint=hint)


def _split(recipe: Recipe, options: BuildOptions) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Names of the chosen targets that run here, and of the others with the reason."""
    reasons = [(spec.name, why_not_here(target_named(spec.name))) for spec in chosen(recipe, options.targets)]
    here = tuple(name for name, reason in reasons if reason is None)
    return here, tuple((name, reason) for name, reason in reasons if reason is not None)
