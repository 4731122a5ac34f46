"""Engines that were built: where they are, and whether they are still what the recipe says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.planning.plan_file import PlanFile, load_plan_file
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.staleness.receipt import load_receipt
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.runtime import names
from bolt_build.schema.recipe import Recipe
from bolt_build.user_files import shell_word


@dataclass(frozen=True)
class BuiltEngine:
    """A finished engine of one target. `model` is the recipe's ONNX file, which may lie elsewhere than where the engine
    was built. `unasked` are problems of tools that it was built with, may be in another
    version, and that are not here to be compared."""

    target: str
    directory: TargetDirectory
    plan: PlanFile
    model: Path
    unasked: tuple[str, ...] = ()

    @property
    def library(self) -> Path:
        return self.directory.path / names.library(self.plan.engine.name)

    @property
    def weights(self) -> Path:
        return self.directory.path / names.weights(self.plan.engine.name)

    @property
    def runner(self) -> Path:
        return self.directory.path / names.runner(self.plan.engine.name)


def built_engines(recipe: Recipe, options: BuildOptions) -> tuple[BuiltEngine, ...]:
    """The engines of the chosen targets of a recipe.

    Raises BoltError: "not-built" where one was never finished, "stale-engine" where recipe, model, tools or bolt-build
    have changed since, so that nobody measures or runs another engine than the recipe describes. Tools that are
    missing here are not compared: an engine is used where it cannot be built.
    """
    found, wrong = [], []
    preparer = Preparer(recipe, options.directory(recipe), lambda text: None)
    for spec in chosen(recipe, options.targets):
        directory = options.directory(recipe).target(spec.name)
        plan = load_plan_file(directory.plan)
        problem = _unfinished(directory, plan)
        if problem is None and plan is not None and not preparer.is_current(spec):
            problem = Diagnostic("stale-engine", f"{_here(directory)} is not what {recipe.path} describes any more")
        if problem is not None or plan is None:
            problem = problem or Diagnostic("not-built", f"{_here(directory)} was not built yet")
            hint = f"bolt-build {shell_word(recipe.path)} --target {spec.name}"
            wrong.append(Diagnostic(problem.code, problem.message, hint=f"build it with: {hint}"))
        else:
            unasked = tuple(str(tool.problem) for tool in preparer.missing_tools(spec))
            found.append(BuiltEngine(spec.name, directory, plan, preparer.model.path, unasked))
    if wrong:
        raise BoltError(wrong, ExitCode.INVALID)
    return tuple(found)


def _unfinished(directory: TargetDirectory, plan: PlanFile | None) -> Diagnostic | None:
    """What keeps an engine from being used: no plan, a task that has not finished, an artifact that is not its own."""
    if plan is None:
        return Diagnostic("not-built", f"{_here(directory)} was not built yet")
    for task in plan.graph.tasks:
        if task.rule in ("verify", "manifest"):
            continue
        receipt = load_receipt(directory.receipts, task.name)
        if receipt is None or receipt.argv != task.argv or receipt.values != task.values:
            return Diagnostic("not-built", f"{_here(directory)}: '{task.label}' has not finished")
        for output in receipt.outputs:
            path = directory.path / output.path
            if output.path in plan.graph.artifacts and not (path.is_file() and path.stat().st_size == output.size):
                return Diagnostic("not-built", f"{_here(directory)}: {output.path} is missing or was changed")
    return None


def _here(directory: TargetDirectory) -> str:
    return os.path.relpath(directory.path)
