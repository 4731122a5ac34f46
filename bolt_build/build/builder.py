"""A build from recipe to report: plans, runs SCons, and reads what verification found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from bolt_build.build.cache import DEFAULT_LIMIT, Cache, default_cache_directory
from bolt_build.build.caches import Caches
from bolt_build.build.claim import Wait, directory_claim
from bolt_build.build.estimate import WORTH_SAYING, estimate_text, estimated_seconds
from bolt_build.build.events import TaskEvent
from bolt_build.build.files import told
from bolt_build.build.last_runs import load_last_runs, note_runs
from bolt_build.build.layout import RecipeDirectory, TargetDirectory
from bolt_build.build.plan_file import load_plan_file
from bolt_build.build.prepared_target import PreparedTarget
from bolt_build.build.preparing import Preparer, missing_verifier
from bolt_build.build.remote.dask import scheduler
from bolt_build.build.session import SessionOptions, SessionResult, run_session
from bolt_build.build.sharing.cache import SharedCache
from bolt_build.build.sharing.client import StoreClient
from bolt_build.build.signal_handlers import handled
from bolt_build.build.staleness import Forecast, KnownOutputs, forecast
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.schema.user_settings import SharedPlace
from bolt_build.schema.validate import suggest

NOTHING_TO_RUN = SessionResult(interrupted=False, failed=(), finished=())


@dataclass(frozen=True)
class BuildOptions:
    """`targets` names some of the recipe's targets, none means all. `output` holds the recipes' directories. `locked`
    fails where not every kernel comes from the lock. `shared` is the store of a team, asked behind the local cache.
    `scheduler` has compilations done elsewhere: an address, or "local" for workers that are started here."""

    output: Path = Path("generated")
    cache: Path | None = None
    cache_limit: int = DEFAULT_LIMIT
    cache_read_only: bool = False
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    keep_going: bool = False
    wait: bool = True
    locked: bool = False
    targets: tuple[str, ...] = ()
    shared: SharedPlace | None = None
    scheduler: str | None = None

    def directory(self, recipe: Recipe) -> RecipeDirectory:
        """Where a recipe's results go, as an absolute path."""
        return RecipeDirectory(Path(os.path.abspath(self.output)) / recipe.name)

    @property
    def local_cache(self) -> Cache:
        """Raises BoltError where there is no place for it, or where others can write into it."""
        directory = Path(os.path.abspath(self.cache)) if self.cache else default_cache_directory()
        cache = Cache(directory, self.cache_limit, self.cache_read_only)
        cache.folders.check()
        return cache

    @contextlib.contextmanager
    def session(self, *, keep_going: bool) -> Iterator[SessionOptions]:
        """What SCons is told. Workers that are started for the build end with the block."""
        cache = self.local_cache
        with scheduler(self.scheduler, self.jobs) as address:
            yield SessionOptions(
                self.jobs, keep_going, str(cache.directory), cache.limit, cache.read_only, self.shared, address
            )


class Listener(Protocol):
    """Shows a build while it goes on."""

    def say(self, text: str) -> None:
        """A line about what happens before and between tasks."""

    def start(self, recipe: str, tasks: int) -> None:
        """So many tasks will run, or fewer."""

    def event(self, event: TaskEvent) -> None: ...

    def stop(self) -> None:
        """No more tasks."""


@dataclass(frozen=True)
class TargetResult:
    """`verified`: what `verify.json` says, None where the target is not verified here; `elsewhere` then says why it
    cannot run on this machine, where that is so. `kernels` says where its kernels come from, None where that is no
    question."""

    target: str
    directory: TargetDirectory
    artifacts: tuple[str, ...]
    verified: bool | None
    elsewhere: str | None = None
    kernels: KernelSource | None = None


@dataclass(frozen=True)
class BuildResult:
    """A finished build, whatever came of it. `not_attempted` are labels of tasks that stood behind a failure,
    `obstacles` what kept a target, by its name, from being planned. It took `seconds`, after it had `waited` so many
    seconds for another build."""

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


def build(recipe: Recipe, options: BuildOptions, listener: Listener) -> BuildResult:
    """Build and verify targets of a recipe. Must run in the main thread, for the sake of signals.

    Raises BoltError where nothing could be attempted; everything later is in the result.
    """
    started = time.monotonic()
    directory = options.directory(recipe)
    # SIGTERM and SIGHUP end planning as Ctrl-C does; while tasks run the session has its own handlers.
    ended = handled(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP)
    wait = Wait(listener.say)
    with ended, directory_claim(directory.path, wait=options.wait, say=wait.say) as claim:
        waited = wait.seconds
        planned, obstacles, code = _plan(recipe, options, listener)
        # Progress counts the tasks alone: what the team's store has of them is asked when their turn comes.
        forecasts = [_forecast(target, recipe, options.local_cache) for target in planned]
        planned = tuple(target.written() for target in planned)
        tasks = sum(len(found.stale) for found in forecasts)
        expected = _estimate(planned, forecasts, options) if tasks else None
        if expected is not None and expected >= WORTH_SAYING:
            listener.say(estimate_text(tasks, expected))
        listener.start(recipe.name, tasks)
        try:
            # SCons would ask the same rule of the same files, and takes as long to start as all that is done here.
            session = (
                _run(directory, planned, options, claim, _Reasoning(listener, forecasts)) if tasks else NOTHING_TO_RUN
            )
        finally:
            listener.stop()
    seconds = time.monotonic() - started - waited
    return replace(_result(recipe, planned, obstacles, code, session, seconds), waited=waited)


def _estimate(planned: Sequence[PreparedTarget], forecasts: Sequence[Forecast], options: BuildOptions) -> float | None:
    """Seconds that the stale tasks will take; None where one of them never ran here."""
    runs = (load_last_runs(target.directory) for target in planned)
    return estimated_seconds(zip(forecasts, runs, strict=True), options.jobs)


def dry_run(recipe: Recipe, options: BuildOptions, listener: Listener) -> tuple[Forecast, ...]:
    """What `build` would run. Nothing is written but a zoo recipe's model, which planning reads. Raises BoltError."""
    return tuple(found for _, found in foresee(recipe, options, listener))


def foresee(recipe: Recipe, options: BuildOptions, listener: Listener) -> tuple[tuple[PreparedTarget, Forecast], ...]:
    """The targets as a build would prepare them, with what it would run. Nothing is written but a zoo recipe's model.

    Raises BoltError.
    """
    planned, obstacles, code = _plan(recipe, options, listener)
    if obstacles:
        raise BoltError(_distinct(obstacles), code)
    caches = Caches(options.local_cache, None if options.shared is None else SharedCache(StoreClient(options.shared)))
    return tuple((target, _forecast(target, recipe, caches)) for target in planned)


class _Reasoning:
    """Passes events on with the reasons that were foreseen."""

    def __init__(self, listener: Listener, forecasts: Sequence[Forecast]) -> None:
        self._listener = listener
        self._reasons = {(found.target, stale.task.name): stale.reasons for found in forecasts for stale in found.stale}

    def event(self, event: TaskEvent) -> None:
        self._listener.event(self.reasoned(event))

    def reasoned(self, event: TaskEvent) -> TaskEvent:
        return replace(event, reasons=self._reasons.get((event.target, event.task), ()))

    def all(self, events: Sequence[TaskEvent]) -> tuple[TaskEvent, ...]:
        return tuple(map(self.reasoned, events))


def chosen(recipe: Recipe, names: Sequence[str]) -> tuple[TargetSpec, ...]:
    """The recipe's targets called `names`, or all. Raises BoltError ("unknown-target") for names it does not have."""
    have = [spec.name for spec in recipe.targets]
    wrong = [name for name in names if name not in have]
    if wrong:
        targets = f"its targets: {', '.join(have)}"
        raise BoltError(
            [
                Diagnostic(
                    "unknown-target", f"{recipe.path} has no target '{name}'", hint=suggest(name, have) or targets
                )
                for name in wrong
            ],
            ExitCode.USAGE,
        )
    return tuple(spec for spec in recipe.targets if not names or spec.name in names)


def _plan(
    recipe: Recipe, options: BuildOptions, listener: Listener
) -> tuple[tuple[PreparedTarget, ...], dict[str, tuple[Diagnostic, ...]], ExitCode]:
    """The targets that can be built, and what is in the way of the others, by their names.

    Raises BoltError where none can, and with what is not locked of any of them where that is asked for.
    """
    preparer = Preparer(recipe, options.directory(recipe), listener.say, locked=options.locked)
    planned, code = [], ExitCode.OK
    obstacles: dict[str, tuple[Diagnostic, ...]] = {}
    unlocked: list[Diagnostic] = []
    for spec in chosen(recipe, options.targets):
        try:
            planned.append(preparer.plan(spec))
        except BoltError as error:
            if error.exit_code is ExitCode.LOCK:
                unlocked += error.diagnostics
                continue
            if error.exit_code is not ExitCode.TOOL_MISSING:
                raise
            obstacles[spec.name] = error.diagnostics
            code = error.exit_code
    if unlocked:
        raise BoltError([*_distinct(obstacles), *unlocked], ExitCode.LOCK)
    for note in (note for target in planned for note in target.notes):
        listener.say(note)
    if not planned:
        raise BoltError(_distinct(obstacles), code)
    return tuple(planned), obstacles, code


def _distinct(obstacles: dict[str, tuple[Diagnostic, ...]]) -> list[Diagnostic]:
    return list(dict.fromkeys(each for found in obstacles.values() for each in found))


def _forecast(target: PreparedTarget, recipe: Recipe, cache: KnownOutputs) -> Forecast:
    """What a build of the target would run, and what is to be said of it."""
    with told(target.directory.path):
        before = load_plan_file(target.directory.plan) if target.fresh else None
        found = forecast(target.plan, target.directory, cache, target.foreseen(), recipe.mark, before)
    return replace(found, warnings=target.warnings)


def _run(
    directory: RecipeDirectory,
    planned: tuple[PreparedTarget, ...],
    options: BuildOptions,
    claim: int,
    listener: _Reasoning,
) -> SessionResult:
    cache = options.local_cache
    targets = tuple(target.plan.graph.target for target in planned)
    with options.session(keep_going=options.keep_going) as session:
        result = run_session(directory.path, targets, session, claim, listener.event)
    if any(not event.cached for event in result.finished):
        cache.prune()
    result = replace(result, finished=listener.all(result.finished), failed=listener.all(result.failed))
    for target in planned:
        with told(target.directory.path):
            note_runs(target.directory, [e for e in result.finished if e.target == target.plan.graph.target])
    return result


def _result(
    recipe: Recipe, planned: tuple[PreparedTarget, ...], obstacles: dict[str, tuple[Diagnostic, ...]], code: ExitCode,
    session: SessionResult, seconds: float,
) -> BuildResult:  # fmt: skip
    found = _distinct(obstacles)
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
        tuple(obstacles.items()),
    )  # fmt: skip


def _target_result(target: PreparedTarget, session: SessionResult) -> TargetResult:
    name = target.plan.graph.target
    done = not session.interrupted and not session.trouble and all(event.target != name for event in session.failed)
    asked = done and target.elsewhere is None
    verified = verification_passed(target.directory) if asked else None
    artifacts = target.plan.graph.artifacts if done else ()
    return TargetResult(name, target.directory, artifacts, verified, target.elsewhere, target.kernels)


def verification_passed(directory: TargetDirectory) -> bool | None:
    """What the last verification said; None where there was none."""
    try:
        return bool(json.loads(directory.verification.read_text(encoding="utf-8"))["ok"])
    except (OSError, ValueError, KeyError):
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
