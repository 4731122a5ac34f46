"""A build from recipe to report: plans, runs SCons, and reads what verification found."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from bolt_build.build.caching.cache import DEFAULT_LIMIT, Cache, default_cache_directory
from bolt_build.build.caching.caches import Caches
from bolt_build.build.claim import Wait, directory_claim
from bolt_build.build.events import TaskEvent
from bolt_build.build.files import kept, told
from bolt_build.build.last_runs import load_last_runs, note_runs
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.planning.prepared_target import PreparedTarget
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.remote.dask import scheduler
from bolt_build.build.result import BuildResult, build_result, distinct
from bolt_build.build.running.session import SessionOptions, SessionPart, SessionResult, run_session
from bolt_build.build.running.signal_handlers import handled
from bolt_build.build.sharing.cache import SharedCache
from bolt_build.build.sharing.client import StoreClient
from bolt_build.build.staleness.estimate import Outlook, outlook
from bolt_build.build.staleness.staleness import Forecast, KnownOutputs, forecast, with_common
from bolt_build.build.tasks import TaskGraph
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.schema.shared_place import SharedPlace
from bolt_build.wording import suggest

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

    def stage(self, text: str, expected: float | None) -> None:
        """Something that takes its time before tasks begins, and what went before has ended. It is `expected` to take
        so many seconds, as it took last, None where that is not known."""

    def start(self, outlook: Outlook) -> None:
        """So many tasks will run, or fewer."""

    def event(self, event: TaskEvent) -> None: ...

    def stop(self) -> None:
        """No more tasks."""


def build(recipe: Recipe, options: BuildOptions, listener: Listener) -> BuildResult:
    """Build and verify targets of a recipe. Must run in the main thread, for the sake of signals.

    Raises BoltError where nothing could be attempted; everything later is in the result.
    """
    (found,) = build_recipes([recipe], options, listener)
    if isinstance(found, BoltError):
        raise found
    return found


def build_recipes(
    recipes: Sequence[Recipe], options: BuildOptions, listener: Listener
) -> tuple[BuildResult | BoltError, ...]:
    """Build and verify targets of recipes in one graph, in which a task that several have in common runs once. Must run
    in the main thread, for the sake of signals.

    Each recipe's result, or why nothing of it could be attempted: that keeps no other from being built. Raises
    KeyboardInterrupt, and BoltError for a cache that cannot be used.
    """
    # SIGTERM and SIGHUP end planning as Ctrl-C does; while tasks run the session has its own handlers.
    ended = handled(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP)
    with ended, contextlib.ExitStack() as claims:
        found: dict[str, _Job | BoltError] = dict(_claimed(recipes, options, listener, claims))
        try:
            for recipe in recipes:
                claimed = found[recipe.name]
                if isinstance(claimed, _Job):
                    try:
                        with kept(claimed.directory.path):
                            found[recipe.name] = _prepared(claimed, options, listener)
                    except BoltError as error:
                        found[recipe.name] = error
            jobs = _with_common([job for recipe in recipes if isinstance(job := found[recipe.name], _Job)])
            sessions = _run(jobs, options, listener) if jobs else []
        finally:
            listener.stop()
        results = {job.recipe.name: _result(job, session) for job, session in zip(jobs, sessions, strict=True)}
    each = (found[recipe.name] for recipe in recipes)
    return tuple(job if isinstance(job, BoltError) else results[job.recipe.name] for job in each)


@dataclass(frozen=True)
class _Job:
    """A recipe whose directory is claimed, after it had `waited`; and what is planned of it, in so many `seconds`."""

    recipe: Recipe
    directory: RecipeDirectory
    claim: int
    waited: float
    planned: tuple[PreparedTarget, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    obstacles: tuple[tuple[str, tuple[Diagnostic, ...]], ...] = ()
    code: ExitCode = ExitCode.OK
    seconds: float = 0.0

    @property
    def part(self) -> SessionPart:
        targets = tuple(target.plan.graph.target for target in self.planned)
        return SessionPart(self.directory.path, targets, self.claim)

    @property
    def stale(self) -> int:
        """Tasks that would run."""
        return sum(len(found.stale) for found in self.forecasts)


def _claimed(
    recipes: Sequence[Recipe], options: BuildOptions, listener: Listener, claims: contextlib.ExitStack
) -> Iterator[tuple[str, _Job | BoltError]]:
    """Every recipe's directory, by its name; in one order for all builds, so that no two wait for each other."""
    for recipe in sorted(recipes, key=lambda each: str(options.directory(each).path)):
        directory, wait = options.directory(recipe), Wait(listener.say)
        try:
            claim = claims.enter_context(directory_claim(directory.path, wait=options.wait, say=wait.say))
            yield recipe.name, _Job(recipe, directory, claim, wait.seconds)
        except BoltError as error:
            yield recipe.name, error


def _prepared(job: _Job, options: BuildOptions, listener: Listener) -> _Job:
    """The job with all its targets planned and written. Raises BoltError."""
    started = time.monotonic()
    planned, obstacles, code = _plan(job.recipe, options, listener)
    # Progress counts the tasks alone: what the team's store has of them is asked when their turn comes.
    forecasts = tuple(_forecast(target, job.recipe, options.local_cache) for target in planned)
    # What is written holds no weights any more: those of one recipe alone are in memory.
    written = tuple(target.written() for target in planned)
    seconds = time.monotonic() - started
    return replace(
        job, planned=written, forecasts=forecasts, obstacles=tuple(obstacles.items()), code=code, seconds=seconds
    )


def _with_common(jobs: Sequence[_Job]) -> list[_Job]:
    """The jobs with their forecasts, in which a task says whether it waits for the same one of another target."""
    graphs = [target.plan.graph for job in jobs for target in job.planned]
    known = iter(with_common(graphs, [found for job in jobs for found in job.forecasts]))
    return [replace(job, forecasts=tuple(itertools.islice(known, len(job.forecasts)))) for job in jobs]


def _run(jobs: Sequence[_Job], options: BuildOptions, listener: Listener) -> list[tuple[SessionResult, float]]:
    """What came of each job's tasks, and after how many seconds the last of them had ended.

    SCons is not started for jobs that have nothing to do: it would ask the same rule of the same files.
    """
    busy = [job for job in jobs if job.stale]
    ahead = _outlook(jobs, options)
    if ahead.worth_saying:
        listener.say(ahead.text)
    listener.start(ahead)
    heard = _Heard(listener, jobs)
    session = NOTHING_TO_RUN
    if busy:
        cache = options.local_cache
        with options.session(keep_going=options.keep_going) as wanted:
            session = run_session([job.part for job in busy], wanted, heard.event)
        if any(not event.cached for event in session.finished):
            cache.prune()
    found = []
    for job in jobs:
        of_job = heard.of(job, session) if job in busy else NOTHING_TO_RUN
        for target in job.planned:
            with told(target.directory.path):
                ran = [event for event in of_job.finished if event.target == target.plan.graph.target]
                note_runs(target.directory, ran, target.planning)
        found.append((of_job, heard.last.get(job.recipe.name, 0.0)))
    return found


def _result(job: _Job, session: tuple[SessionResult, float]) -> BuildResult:
    seconds = job.seconds + session[1]
    return build_result(job.recipe, job.planned, dict(job.obstacles), job.code, session[0], seconds, job.waited)


def _outlook(jobs: Sequence[_Job], options: BuildOptions) -> Outlook:
    """What is about to run, with what is known of earlier builds."""
    recipes = tuple(job.recipe.name for job in jobs)
    if not any(job.stale for job in jobs):
        return Outlook(recipes, 0)
    runs = [
        (job.recipe.name, forecast, load_last_runs(target.directory))
        for job in jobs
        for target, forecast in zip(job.planned, job.forecasts, strict=True)
    ]
    return outlook(recipes, runs, options.jobs)


def dry_run(recipe: Recipe, options: BuildOptions, listener: Listener) -> tuple[Forecast, ...]:
    """What `build` would run. Nothing is written but a zoo recipe's model, which planning reads. Raises BoltError."""
    return tuple(found for _, found in foresee(recipe, options, listener))


def dry_runs(
    recipes: Sequence[Recipe], options: BuildOptions, listener: Listener
) -> tuple[tuple[Forecast, ...] | BoltError, ...]:
    """The same of recipes that are built together, or why nothing of one could be attempted."""
    found: list[tuple[Forecast, ...] | BoltError] = []
    graphs: list[TaskGraph] = []
    for recipe in recipes:
        try:
            pairs = foresee(recipe, options, listener)
        except BoltError as error:
            found.append(error)
            continue
        graphs += [target.plan.graph for target, _ in pairs]
        found.append(tuple(forecast for _, forecast in pairs))
    known = iter(with_common(graphs, [each for of in found if not isinstance(of, BoltError) for each in of]))
    return tuple(of if isinstance(of, BoltError) else tuple(itertools.islice(known, len(of))) for of in found)


def foresee(recipe: Recipe, options: BuildOptions, listener: Listener) -> tuple[tuple[PreparedTarget, Forecast], ...]:
    """The targets as a build would prepare them, with what it would run. Nothing is written but a zoo recipe's model.

    Raises BoltError.
    """
    try:
        planned, obstacles, code = _plan(recipe, options, listener)
    finally:
        listener.stop()
    if obstacles:
        raise BoltError(distinct(obstacles), code)
    caches = Caches(options.local_cache, None if options.shared is None else SharedCache(StoreClient(options.shared)))
    return tuple((target, _forecast(target, recipe, caches)) for target in planned)


class _Heard:
    """Passes events of a session on, with the reasons that were foreseen, and knows when each recipe's last came."""

    def __init__(self, listener: Listener, jobs: Sequence[_Job]) -> None:
        self._listener = listener
        self._only = jobs[0].recipe.name if len(jobs) == 1 else ""
        self._began = time.monotonic()
        self.last: dict[str, float] = {}
        self._reasons = {
            (job.recipe.name, found.target, stale.task.name): stale.reasons
            for job in jobs
            for found in job.forecasts
            for stale in found.stale
        }

    def event(self, event: TaskEvent) -> None:
        reasoned = self._reasoned(event)
        self.last[reasoned.recipe] = time.monotonic() - self._began
        self._listener.event(reasoned)

    def of(self, job: _Job, session: SessionResult) -> SessionResult:
        """What of a session is of one job."""
        finished, failed = (
            tuple(event for event in map(self._reasoned, events) if event.recipe == job.recipe.name)
            for events in (session.finished, session.failed)
        )
        return replace(session, finished=finished, failed=failed)

    def _reasoned(self, event: TaskEvent) -> TaskEvent:
        recipe = event.recipe or self._only
        return replace(event, recipe=recipe, reasons=self._reasons.get((recipe, event.target, event.task), ()))


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
    preparer = Preparer(recipe, options.directory(recipe), listener.say, locked=options.locked, stage=listener.stage)
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
        raise BoltError([*distinct(obstacles), *unlocked], ExitCode.LOCK)
    for note in (note for target in planned for note in target.notes):
        listener.say(note)
    if not planned:
        raise BoltError(distinct(obstacles), code)
    return tuple(planned), obstacles, code


def _forecast(target: PreparedTarget, recipe: Recipe, cache: KnownOutputs) -> Forecast:
    """What a build of the target would run, and what is to be said of it."""
    with told(target.directory.path):
        before = load_plan_file(target.directory.plan) if target.fresh else None
        found = forecast(target.plan, target.directory, cache, target.foreseen(), recipe.mark, before)
    return replace(found, warnings=target.warnings)
