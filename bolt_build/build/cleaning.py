"""Removing what was generated for a recipe, and nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.claim import directory_claim
from bolt_build.build.files import told, unlink
from bolt_build.build.layout import RecipeDirectory, TargetDirectory, TuningDirectory
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.staleness.receipt import load_receipt
from bolt_build.schema.recipe import Recipe

_HINT = "clean as the user who built it, or remove the directory by hand"


@dataclass(frozen=True)
class Cleaned:
    """Directories whose own files went, or would go, models that were written here, and files that no build made and
    that stay."""

    removed: tuple[Path, ...] = ()
    foreign: tuple[Path, ...] = ()


def clean(recipe: Recipe, options: BuildOptions, *, pretend: bool = False) -> Cleaned:
    """Remove what builds of the recipe's chosen targets left behind, on the emulated GPU too; of all targets where none
    are chosen, also of those that the recipe had once. With `pretend` nothing is removed.

    A target's directory is only touched where it holds a plan that bolt-build wrote.
    """
    found = []
    for place in _places(recipe, options):
        names = options.targets or [spec.name for spec in recipe.targets]
        asked = [each for name in names for each in (place.target(name), place.tuning(name)) if each.path.is_dir()]
        asked += [] if options.targets else [each for each in place.targets if each not in asked]
        found.append(clean_targets(place, asked, options, pretend=pretend))
    return joined(found)


def check_targets(recipe: Recipe, options: BuildOptions) -> None:
    """Raises BoltError ("unknown-target") for a chosen target that the recipe neither has nor has had here."""
    built = {each.path.name for place in _places(recipe, options) for each in place.targets}
    chosen(recipe, [name for name in options.targets if name not in built])


def _places(recipe: Recipe, options: BuildOptions) -> tuple[RecipeDirectory, ...]:
    return options.directory(recipe), RecipeDirectory(emulated(options.output) / recipe.name)


def emulated(output: Path) -> Path:
    """Where engines for the emulated GPU are built, as an absolute path."""
    return Path(os.path.abspath(output)) / "emulated"


def joined(found: Iterable[Cleaned]) -> Cleaned:
    """Several cleanings as one."""
    each = tuple(found)
    return Cleaned(tuple(p for one in each for p in one.removed), tuple(p for one in each for p in one.foreign))


def clean_targets(
    directory: RecipeDirectory, targets: Sequence[TargetDirectory], options: BuildOptions, *, pretend: bool
) -> Cleaned:
    """Remove what is the build's own of some targets' directories, and of the recipe's where that leaves no other."""
    removed = tuple(target.path for target in targets)
    if not directory.path.is_dir():
        return Cleaned()
    if pretend:
        foreign = tuple(path for target in targets for path in _foreign(target, _own_files(target)))
        all_go = not options.targets and set(directory.targets) <= set(targets)
        return Cleaned((*removed, *_model(directory)) if all_go else removed, foreign)
    claim = directory_claim(directory.path, wait=options.wait, say=lambda text: None, hint=_HINT)
    with claim, told(directory.path, _HINT):
        foreign = tuple(path for target in targets for path in _clean_target(target))
        if not options.targets and not directory.targets:
            removed += _model(directory)
            _remove_own(directory)
        if not options.targets:
            _remove_empty(directory.path)
    with contextlib.suppress(OSError):  # other recipes' engines are in it
        emulated(options.output).rmdir()
    return Cleaned(removed, foreign)


def _clean_target(target: TargetDirectory) -> list[Path]:
    """Remove what is the build's own; the files that stay."""
    for path in sorted(_own_files(target)):
        unlink(path)
    for folder in (target.receipts, target.logs, target.temporary):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in sorted((p for p in target.path.rglob("*") if p.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(OSError):
        target.path.rmdir()
    return _foreign(target, set())


def _foreign(target: TargetDirectory, own: set[Path]) -> list[Path]:
    """Files in the directory that are not the build's own."""
    folders = (target.receipts, target.logs, target.temporary)
    files = (path for path in target.path.rglob("*") if not path.is_dir() and path not in own)
    return sorted(path for path in files if not any(path.is_relative_to(folder) for folder in folders))


def _own_files(target: TargetDirectory) -> set[Path]:
    """Every file that planning or a task made, by the plan and by the receipts (of tasks that are no more, too)."""
    plan = load_plan_file(target.plan)
    own = {target.path / output for task in (plan.graph.tasks if plan else ()) for output in task.outputs}
    own |= {target.path / file.path for file in (plan.made if plan else ())}
    for receipt_file in target.receipts.glob("*.json"):
        receipt = load_receipt(target.receipts, receipt_file.stem)
        own |= {target.path / output.path for output in (receipt.outputs if receipt else ())}
    if plan is not None or own:
        own |= {target.plan, target.engine, target.recipe, target.path / "provenance.json"}
        own |= {target.bundle, target.results} if isinstance(target, TuningDirectory) else set()
    return own


def _remove_own(directory: RecipeDirectory) -> None:
    """What belongs to the recipe as a whole."""
    for model in _model(directory):
        unlink(model)
        unlink(directory.zoo_stamp)
    unlink(directory.signature_file)
    unlink(directory.exploration)


def _model(directory: RecipeDirectory) -> tuple[Path, ...]:
    """The recipe's model, if the zoo's stamp says that it was written here."""
    return (directory.zoo_model,) if directory.zoo_stamp.is_file() else ()


def _remove_empty(path: Path) -> None:
    """Remove a recipe's directory that holds nothing but its lock. The lock is held: a build that waits for it finds
    that it is gone, and makes another."""
    if [entry.name for entry in path.iterdir()] == [".lock"]:
        unlink(path / ".lock")
        with contextlib.suppress(OSError):
            path.rmdir()
