"""Removing what was generated for a recipe, and nothing else."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.files import told, unlink
from bolt_build.build.layout import RecipeDirectory, TargetDirectory, TuningDirectory
from bolt_build.build.lock import build_lock
from bolt_build.build.plan_file import load_plan_file
from bolt_build.build.record import load_record
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe


def clean(recipe: Recipe, options: BuildOptions) -> tuple[Path, ...]:
    """Remove what builds of the recipe's chosen targets left behind; the paths that went.

    A target's directory is only touched where it holds a plan that bolt-build wrote. Files in it that no build made
    are left, and reported by a BoltError ("foreign-files") once the rest is gone.
    """
    directory = options.directory(recipe)
    if not directory.path.is_dir():
        return ()
    removed: list[Path] = []
    foreign: list[Path] = []
    with build_lock(directory.path, wait=options.wait, say=lambda text: None), told(directory.path):
        for spec in chosen(recipe, options.targets):
            for target in (directory.target(spec.name), directory.tuning(spec.name)):
                if target.path.is_dir():
                    foreign += _clean_target(target)
                    removed.append(target.path)
        if not options.targets and not directory.targets:
            _remove_own(directory)
    if not options.targets:
        _remove_empty(directory.path)
    if foreign:
        message = f"left alone, as no build made them: {', '.join(str(path) for path in foreign)}"
        raise BoltError([Diagnostic("foreign-files", message, subject=recipe.name)], ExitCode.INVALID)
    return tuple(removed)


def _clean_target(target: TargetDirectory) -> list[Path]:
    """Remove what is the build's own; the files that stay."""
    for path in sorted(_own_files(target)):
        unlink(path)
    for folder in (target.records, target.logs, target.temporary):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in sorted((p for p in target.path.rglob("*") if p.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(OSError):
        target.path.rmdir()
    return sorted(path for path in target.path.rglob("*") if not path.is_dir())


def _own_files(target: TargetDirectory) -> set[Path]:
    """Every file that planning or a task made, by the plan and by the records (of tasks that are no more, too)."""
    plan = load_plan_file(target.plan)
    own = {target.path / output for task in (plan.graph.tasks if plan else ()) for output in task.outputs}
    own |= {target.path / file.path for file in (plan.made if plan else ())}
    for record_file in target.records.glob("*.json"):
        record = load_record(target.records, record_file.stem)
        own |= {target.path / output.path for output in (record.outputs if record else ())}
    if plan is not None or own:
        own |= {target.plan, target.engine, target.recipe, target.path / "provenance.json"}
        own |= {target.bundle, target.results} if isinstance(target, TuningDirectory) else set()
    return own


def _remove_own(directory: RecipeDirectory) -> None:
    """What belongs to the recipe as a whole. The model goes only if the zoo's stamp says that it was written here."""
    if directory.zoo_stamp.is_file():
        unlink(directory.zoo_model)
        unlink(directory.zoo_stamp)
    unlink(directory.signature_file)
    unlink(directory.exploration)


def _remove_empty(path: Path) -> None:
    """Remove a recipe's directory that holds nothing but its lock."""
    if [entry.name for entry in path.iterdir()] == [".lock"]:
        unlink(path / ".lock")
        with contextlib.suppress(OSError):
            path.rmdir()
