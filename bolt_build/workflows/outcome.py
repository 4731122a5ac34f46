"""What came of a command over recipes, for those who look at it later: frozen, from success and failure alike."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.events import TaskEvent
from bolt_build.build.result import BuildResult
from bolt_build.digest import decode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.schema.recipe import Recipe
from bolt_build.verify.report import VerifyReport


@dataclass(frozen=True)
class Artifact:
    """A file of an engine; `nbytes` is None where it is missing."""

    name: str
    nbytes: int | None


@dataclass(frozen=True)
class EngineOutcome:
    """One target. `verified` is None where it was not compared; `elsewhere` then says why it cannot run on this
    machine, where that is so. `verification` is the whole comparison. `obstacles` kept the target from being planned.
    """

    target: str
    directory: str | None
    artifacts: tuple[Artifact, ...] = ()
    verified: bool | None = None
    elsewhere: str | None = None
    kernels: KernelSource | None = None
    verification: VerifyReport | None = None
    obstacles: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class RecipeOutcome:
    """One recipe. `tasks` have ended, well or badly; `not_attempted` are labels of those behind a failure."""

    recipe: str
    file: str
    exit_code: ExitCode
    seconds: float = 0.0
    waited: float = 0.0
    engines: tuple[EngineOutcome, ...] = ()
    tasks: tuple[TaskEvent, ...] = ()
    failed: tuple[TaskEvent, ...] = ()
    not_attempted: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A command. `diagnostics` are those of no recipe that could be read."""

    verb: str
    exit_code: ExitCode
    seconds: float
    recipes: tuple[RecipeOutcome, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def all_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Every diagnostic once, those of recipes first."""
        found = [each for recipe in self.recipes for each in recipe.diagnostics]
        return tuple(dict.fromkeys([*found, *self.diagnostics]))


def recipe_outcome(recipe: Recipe, found: BuildResult | BoltError | tuple[VerifyReport, ...] | None) -> RecipeOutcome:
    """Of a build, of what kept it from being attempted, of a comparison, or of a recipe that was only read.

    Raises ValueError for a verify.json that is none.
    """
    if found is None:
        return RecipeOutcome(recipe.name, recipe.path, ExitCode.OK)
    if isinstance(found, BoltError):
        return RecipeOutcome(recipe.name, recipe.path, found.exit_code, diagnostics=found.diagnostics)
    return _built(recipe, found) if isinstance(found, BuildResult) else _compared(recipe, found)


def _built(recipe: Recipe, result: BuildResult) -> RecipeOutcome:
    """A finished build, with what verification found where it counts."""
    engines = []
    for target in result.targets:
        directory = target.directory
        sizes = tuple(Artifact(name, _size(directory.path / name)) for name in target.artifacts)
        report = None if target.comparison is None else _comparison(target.comparison)
        engines.append(
            EngineOutcome(
                target.target, str(directory.path), sizes, target.verified, target.elsewhere, target.kernels, report
            )
        )
    engines += [EngineOutcome(name, None, obstacles=found) for name, found in result.obstacles]
    return RecipeOutcome(
        result.recipe, recipe.path, result.exit_code, result.seconds, result.waited, tuple(engines), result.finished,
        result.failed, result.not_attempted, result.diagnostics,
    )  # fmt: skip


def _compared(recipe: Recipe, reports: tuple[VerifyReport, ...]) -> RecipeOutcome:
    """Engines that were compared once more, and not built."""
    engines = tuple(EngineOutcome(each.target, None, verified=each.ok, verification=each) for each in reports)
    code = ExitCode.OK if all(each.ok for each in reports) else ExitCode.VERIFY_FAILED
    return RecipeOutcome(recipe.name, recipe.path, code, engines=engines)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _comparison(text: str) -> VerifyReport:
    return decode(VerifyReport, json.loads(text))
