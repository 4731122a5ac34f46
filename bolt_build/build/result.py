"""What came of a build of one recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bolt_build.build.events import TaskEvent
from bolt_build.build.files import read_text
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.planning.prepared_target import PreparedTarget
from bolt_build.build.planning.preparing import missing_verifier
from bolt_build.build.running.session import SessionResult
from bolt_build.errors import Diagnostic, ExitCode
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.schema.recipe import Recipe


@dataclass(frozen=True)
class TargetResult:
    """`verified`: what `verify.json` says, None where the target is not verified here; `elsewhere` then says why it
    cannot run on this machine, where that is so. `kernels` says where its kernels come from, None where that is no
    question. `comparison` is the text of `verify.json`, read while the directory was claimed: right behind the build
    another one may write there, or a cleaning remove it."""

    target: str
    directory: TargetDirectory
    artifacts: tuple[str, ...]
    verified: bool | None
    elsewhere: str | None = None
    kernels: KernelSource | None = None
    comparison: str | None = None


@dataclass(frozen=True)
class BuildResult:
    """A finished build, whatever came of it. `not_attempted` are labels of tasks that stood behind a failure,
    `obstacles` what kept a target, by its name, from being planned. It took `seconds`, until its last task had ended,
    after it had `waited` so many seconds for another build."""

    recipe: str
    exit_code: ExitCode
    diagnostics: tuple[Diagnostic, ...]
    targets: tuple[TargetResult, ...]
    finished: tuple[TaskEvent, ...]
    failed: tuple[TaskEvent, ...]
    not_attempted: tuple[str, ...]
    seconds: float
    obstacles: tuple[tuple[str, tuple[Diagnostic, ...]], ...] = ()
    waited: float = 0.0


def build_result(
    recipe: Recipe, planned: tuple[PreparedTarget, ...], obstacles: dict[str, tuple[Diagnostic, ...]], code: ExitCode,
    session: SessionResult, seconds: float, waited: float,
) -> BuildResult:  # fmt: skip
    """What came of a recipe whose targets were `planned`, or kept from it by `obstacles`, which amount to `code`."""
    found = distinct(obstacles)
    found += [missing_verifier(target.unverified) for target in planned if target.unverified is not None]
    targets = tuple(_target_result(target, session) for target in planned)
    if session.trouble:
        found.append(Diagnostic("scons-failed", session.trouble, subject=recipe.name))
    if session.interrupted:
        code = ExitCode.INTERRUPTED
    elif session.failed or session.trouble:
        code = ExitCode.TASK_FAILED
    elif any(target.verified is False for target in targets):
        code = ExitCode.VERIFY_FAILED
    elif found:
        code = ExitCode.TOOL_MISSING
    found += [warning for target in planned for warning in target.warnings]
    not_attempted = tuple(label for target in planned for label in _behind(target, session))
    return BuildResult(
        recipe.name, code, tuple(found), targets, session.finished, session.failed, not_attempted, seconds,
        tuple(obstacles.items()), waited,
    )  # fmt: skip


def _target_result(target: PreparedTarget, session: SessionResult) -> TargetResult:
    name = target.plan.graph.target
    done = not session.interrupted and not session.trouble and all(event.target != name for event in session.failed)
    asked = done and target.elsewhere is None
    text = _comparison(target.directory) if asked else None
    verified = None if text is None else _passed(text)
    artifacts = target.plan.graph.artifacts if done else ()
    return TargetResult(
        name, target.directory, artifacts, verified, target.elsewhere, target.kernels,
        None if verified is None else text,
    )  # fmt: skip


def verification_passed(directory: TargetDirectory) -> bool | None:
    """What the last verification said; None where there was none."""
    text = _comparison(directory)
    return None if text is None else _passed(text)


def _comparison(directory: TargetDirectory) -> str | None:
    try:
        return read_text(directory.verification)
    except (OSError, ValueError):
        return None


def _passed(text: str) -> bool | None:
    try:
        return bool(json.loads(text)["ok"])
    except (ValueError, KeyError, TypeError):
        return None


def _behind(target: PreparedTarget, session: SessionResult) -> Iterator[str]:
    """Labels of tasks that need, directly or not, what a failed task did not make."""
    failed = {event.task for event in session.failed if event.target == target.plan.graph.target}
    lost: set[str] = set()
    for task in target.plan.graph.tasks:
        if task.name in failed:
            lost |= set(task.outputs)
        elif lost.intersection(task.inputs):
            lost |= set(task.outputs)
            yield task.label


def distinct(obstacles: Mapping[str, tuple[Diagnostic, ...]]) -> list[Diagnostic]:
    """What is in the way of targets, each once."""
    return list(dict.fromkeys(each for found in obstacles.values() for each in found))
