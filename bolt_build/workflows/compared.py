"""What `diff` compares: one engine of a build, or a lock's part for a target, as layers with kernels and figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bolt_build.build.layout import TUNING, TargetDirectory
from bolt_build.build.planning.engine_file import ENGINE, read_engine
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.digest import decode
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.lockfile.reading import LOCK, LockedTarget, load_lock
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.runtime import names
from bolt_build.schema.document import read_document
from bolt_build.sizes import Dims
from bolt_build.sizes import sizes_of as plan_sizes
from bolt_build.verify.report import BatchReport, VerifyReport


class Measure(Enum):
    """What kind a figure is of: all are better when they are smaller."""

    SIZE = "size"
    """Bytes."""
    ERROR = "error"
    """A difference from the reference, or the part of a limit that it uses."""
    TIME = "time"
    """Microseconds."""


@dataclass(frozen=True)
class Figure:
    """A number of an engine; `name` says of what, the same in every build."""

    measure: Measure
    name: str
    value: float


@dataclass(frozen=True)
class ComparedLayer:
    """A kernel call of a build, or a problem of a lock: then `batch` is None and `name` the problem in one line.

    `problem` is its digest. `microseconds` is what the kernel was measured to take alone, None where it was not.
    """

    batch: int | None
    name: str
    problem: str
    kernel: str
    microseconds: float | None
    dims: Dims = ()


@dataclass(frozen=True)
class ComparedEngine:
    """`name` is empty for a lock. `verified` is what `verify.json` says, None where there is none."""

    name: str
    target: str
    layers: tuple[ComparedLayer, ...]
    figures: tuple[Figure, ...] = ()
    verified: bool | None = None

    @property
    def is_lock(self) -> bool:
        return not self.name


def compared(path: Path) -> tuple[ComparedEngine, ...]:
    """The targets of a lock (a file), or the engines of a directory: of a target's, of a recipe's, or of all recipes.

    Raises BoltError where there is nothing, where a build is not finished, or where a file cannot be read.
    """
    if path.is_dir():
        found = tuple(_directories(path))
        if not found:
            hint = "name a lock, or what a build made: generated/RECIPE, or generated/RECIPE/TARGET"
            raise BoltError([Diagnostic("not-built", "no engine lies there", subject=str(path), hint=hint)])
        return tuple(_build(TargetDirectory(each)) for each in found)
    if not os.path.lexists(path):
        raise BoltError([Diagnostic("no-such-file", "no such lock or directory of a build", subject=str(path))])
    try:
        return tuple(map(_lock, load_lock(path).targets))
    except BoltError as error:
        if read_document(path, LOCK)[0].get("bolt") is None:
            raise
        hint = "compare what was built of it: generated/RECIPE"
        raise BoltError([Diagnostic("not-a-lock", "is a recipe, no lock", subject=str(path), hint=hint)]) from error


def _directories(path: Path) -> Iterator[Path]:
    """Directories of targets at `path` or up to two folders deeper, by name; those where tuning works are none."""
    for pattern in (ENGINE, f"*/{ENGINE}", f"*/*/{ENGINE}"):
        yield from (each.parent for each in sorted(path.glob(pattern)) if not each.parent.name.endswith(TUNING))


def _lock(part: LockedTarget) -> ComparedEngine:
    layers = (ComparedLayer(None, each.what, each.problem, str(each.winner), each.median) for each in part.entries)
    ordered = tuple(sorted(layers, key=lambda layer: (layer.name, layer.problem)))
    engines = (
        Figure(Measure.TIME, f"{plan_sizes(each)}, whole engine of graph {each.graph[:8]}", each.after)
        for each in part.engines
    )
    return ComparedEngine("", part.target, ordered, tuple(engines))


def _build(directory: TargetDirectory) -> ComparedEngine:
    plan = _plan(directory)
    facts = load_plan_file(directory.plan)
    lock = facts.facts.lock if facts is not None else None
    # A swap of the whole engine takes another kernel than the winner, whose time is then not this step's.
    known = {(each.problem, each.kernel): each.microseconds for each in lock.kernels} if lock is not None else {}
    layers = tuple(
        ComparedLayer(
            batch.batch, step.name, step.problem.digest, str(step.candidate),
            known.get((step.problem.digest, str(step.candidate))), batch.dims,
        )
        for batch in plan.plans
        for step in batch.steps
        if not step.view
    )  # fmt: skip
    report = verification_of(directory)
    errors = [] if report is None else [each for batch in report.batches for each in _errors(batch)]
    figures = (*sizes_of(directory, plan), *errors)
    return ComparedEngine(plan.name, plan.target, layers, figures, None if report is None else report.ok)


def _plan(directory: TargetDirectory) -> EnginePlan:
    try:
        return read_engine(directory.engine.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BoltError([_damaged(directory.engine, error)]) from error


def verification_of(directory: TargetDirectory) -> VerifyReport | None:
    """What verification found, None where the engine was not verified. Raises BoltError where it cannot be read."""
    try:
        text = directory.verification.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return decode(VerifyReport, json.loads(text))
    except ValueError as error:
        raise BoltError([_damaged(directory.verification, error)]) from error


def _damaged(path: Path, error: Exception) -> Diagnostic:
    hint = "build it again with this bolt-build"
    return Diagnostic("damaged-build", f"cannot be read as a build's: {error}", subject=str(path), hint=hint)


def sizes_of(directory: TargetDirectory, plan: EnginePlan) -> Iterator[Figure]:
    """Bytes of the library, the weights, and each batch's arena. Raises BoltError where a file is missing."""
    for what, file in (("library", names.library(plan.name)), ("weights", names.weights(plan.name))):
        path = directory.path / file
        if not path.is_file():
            message = f"'{file}' is missing: the build is not finished"
            raise BoltError([Diagnostic("not-built", message, subject=str(directory.path), hint="build it to the end")])
        yield Figure(Measure.SIZE, what, path.stat().st_size)
    for batch in plan.plans:
        yield Figure(Measure.SIZE, f"{batch.sizes}, arena", batch.arena_bytes)


def _errors(batch: BatchReport) -> Iterator[Figure]:
    for output in batch.outputs:
        yield Figure(Measure.ERROR, f"{plan_sizes(batch)}, {output.name}: largest difference", output.max_abs)
        yield Figure(Measure.ERROR, f"{plan_sizes(batch)}, {output.name}: root mean square", output.rms)
    if batch.worst_layer is not None:
        yield Figure(Measure.ERROR, f"{plan_sizes(batch)}, worst layer: part of its limit", batch.worst_layer.used)
