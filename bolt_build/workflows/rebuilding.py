"""Whether an engine is what its sources say: it is built twice from nothing, in two places, and bytes are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bolt_build.build.builder import BuildOptions, Listener, build
from bolt_build.build.files import told
from bolt_build.build.planning.task_graph import VERIFICATION
from bolt_build.build.result import BuildResult
from bolt_build.digest import digest_file
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.scratch import scratch_folder
from bolt_build.user_files import shell_word

_PLACES = ("first", "a/second/with-a-longer-name")
"""Of another depth and length each, as paths get into files by their bytes."""


@dataclass(frozen=True)
class Difference:
    """A file that is not the same: its SHA-256 (hex) in the first build, in the second, and here; None where it is not,
    `here` also where nothing is built here."""

    name: str
    first: str | None
    second: str | None
    here: str | None


@dataclass(frozen=True)
class Rebuilt:
    """One target, built twice. `here` says whether the engine that lies here was compared too."""

    recipe: str
    target: str
    files: tuple[str, ...]
    differences: tuple[Difference, ...]
    here: bool


def rebuild(recipe: Recipe, options: BuildOptions, listener: Listener) -> tuple[Rebuilt, ...]:
    """Build the chosen targets twice, with no cache and another number of tasks at once, and compare what comes out
    with each other and with what is built here.

    Must run in the main thread. Raises BoltError where a build fails ("rebuild-failed"; with its exit code).
    """
    with scratch_folder() as folder:
        builds = []
        for place, jobs in zip(_PLACES, (1, max(2, options.jobs)), strict=True):
            output = folder / place
            fresh = replace(options, output=output, cache=output / "cache", shared=None, jobs=jobs)
            listener.say(f"building {recipe.name} from nothing, {jobs} task{'s' * (jobs != 1)} at once")
            builds.append(_artifacts(recipe, build(recipe, fresh, listener)))
        first, second = builds
        return tuple(_compared(recipe, options, target, first[target], second[target]) for target in first)


def _artifacts(recipe: Recipe, result: BuildResult) -> dict[str, dict[str, str]]:
    """Digests of what was built, by target and name. Raises BoltError."""
    if result.exit_code is not ExitCode.OK:
        failed = ", ".join(event.label for event in result.failed) or "it ended early"
        message = f"{recipe.name} cannot be built from nothing: {failed}"
        problem = Diagnostic(
            "rebuild-failed", message, hint=f"see what is wrong with: bolt-build {shell_word(recipe.path)}"
        )
        raise BoltError([problem, *result.diagnostics], result.exit_code)
    found = {}
    for target in result.targets:
        with told(target.directory.path):
            found[target.target] = _digests(target.directory.path, target.artifacts)
    return found


def _digests(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """What verification found has its own measure of equality, and is left out."""
    return {name: digest_file(folder / name) for name in names if name != VERIFICATION and (folder / name).is_file()}


def _compared(
    recipe: Recipe, options: BuildOptions, target: str, first: Mapping[str, str], second: Mapping[str, str]
) -> Rebuilt:
    names = tuple(dict.fromkeys((*first, *second)))
    folder = options.directory(recipe).target(target).path
    with told(folder):
        here = _digests(folder, names)
    differences = tuple(
        Difference(name, first.get(name), second.get(name), here.get(name))
        for name in names
        if first.get(name) != second.get(name) or (here and here.get(name) != first.get(name))
    )
    return Rebuilt(recipe.name, target, names, differences, bool(here))
