"""The inside of SCons's process: tasks as nodes, every action through `TaskRunner`.

SCons orders the tasks, runs them in parallel and decides by contents which ones an edit reaches. Its signature file is
written only when it ends, so it is removed before the first task changes anything: after SIGKILL nothing in it can
then be mistaken for the truth, and the tasks' own receipts, written one by one, tell what is finished.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import SCons.Action
import SCons.Environment
import SCons.Errors
import SCons.Node.FS
import SCons.SConsign
import SCons.Script

from bolt_build.build.caching.cache import Cache
from bolt_build.build.caching.caches import Caches
from bolt_build.build.common_tasks import CommonTasks, MadeOnce, may_be_common
from bolt_build.build.events import EventWriter, TaskEvent
from bolt_build.build.files import Digests, unlink
from bolt_build.build.layout import RecipeDirectory, TargetDirectory
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.process_groups import ProcessGroups
from bolt_build.build.remote.compilations import Compilations
from bolt_build.build.remote.dask import DaskScheduler
from bolt_build.build.running.admission import Admission, available_memory_mb
from bolt_build.build.running.header_folders import header_folders
from bolt_build.build.running.task_runner import TaskFailed, TaskRunner, TaskStopped
from bolt_build.build.sharing.cache import SharedCache
from bolt_build.build.sharing.client import StoreClient
from bolt_build.build.tasks import Task
from bolt_build.digest import decode
from bolt_build.schema.shared_place import SharedPlace

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class SessionRequest:
    """What the building process asks of SCons's: `parts` are directories of recipes with targets of each, by name.
    `parent` is the process that asks."""

    parts: tuple[tuple[str, tuple[str, ...]], ...]
    signatures: str
    events: int
    keep_going: bool
    cache: str | None
    cache_limit: int
    cache_read_only: bool
    parent: int
    without: tuple[str, ...] = ()
    shared: SharedPlace | None = None
    scheduler: str | None = None


def open_session(request_json: str) -> None:
    """Declare every task of the request to SCons; called by the SConstruct."""
    request = decode(SessionRequest, json.loads(request_json))
    _end_with(request.parent)
    groups = ProcessGroups()
    _stop_on_signals(groups)
    cache = None
    if request.cache is not None:
        cache = Cache(Path(request.cache), request.cache_limit, request.cache_read_only)
    caches = Caches(cache, None if request.shared is None else SharedCache(StoreClient(request.shared)))
    remote = None
    if request.scheduler is not None:
        remote = Compilations(DaskScheduler(request.scheduler, lambda: groups.stopping))
        atexit.register(remote.close)
    writer = EventWriter(request.events)
    admission = Admission(available_memory_mb())
    recipes = [(RecipeDirectory(Path(directory)), targets) for directory, targets in request.parts]
    forget = _once(lambda: _forget(recipe for recipe, _ in recipes))
    environment = SCons.Environment.Environment(tools=[], BUILDERS={}, SCANNERS=[])
    graph = _Graph(environment, keep_going=request.keep_going)
    environment.Decider(graph.decider)
    # The functions of an SConstruct replace nothing in what they are given; those of an environment do. They ask for an
    # environment of their own, which without a word would look for compilers.
    SCons.Script.DefaultEnvironment(tools=[])
    SCons.Script.SConsignFile(request.signatures)
    digests, made = Digests(), MadeOnce()
    for directory in (recipe.target(name) for recipe, targets in recipes for name in targets):
        plan = load_plan_file(directory.plan)
        if plan is None:
            raise SCons.Errors.UserError(f"{directory.plan} cannot be read")
        _sweep(directory)
        runner = TaskRunner(
            directory, plan, caches, groups, admission, writer.write, forget, remote, digests, made,
            header_folders(plan),
        )  # fmt: skip
        for file in plan.model:
            runner.digests.learn(file)
        graph.add(runner, request.without)


def _forget(recipes: Iterable[RecipeDirectory]) -> None:
    """Remove what SCons has kept of earlier sessions."""
    for recipe in recipes:
        unlink(recipe.signature_file)


def _sweep(directory: TargetDirectory) -> None:
    """Remove what a build that was killed left half-written: the lock is held, so that nobody is writing it."""
    shutil.rmtree(directory.temporary, ignore_errors=True)
    for folder in (directory.path, directory.receipts):
        for path in folder.glob(".*.tmp"):
            unlink(path)


@dataclass
class _Failures:
    """Recipes in which a task has failed. Without `keep_going` nothing more of them runs."""

    keep_going: bool
    _recipes: set[str] = field(default_factory=set)

    def note(self, runner: TaskRunner) -> None:
        self._recipes.add(runner.plan.graph.recipe)

    def stop(self, runners: Iterable[TaskRunner]) -> bool:
        """True where a task is not to run of which these have need."""
        return not self.keep_going and all(runner.plan.graph.recipe in self._recipes for runner in runners)


@dataclass(frozen=True)
class _TaskAction:
    """What SCons calls for a task. A class: SCons would take what a closure holds into the action's signature."""

    runner: TaskRunner
    task: Task
    failures: _Failures
    others: list[tuple[TaskRunner, Task]]
    """The same task of other targets, which waits for this one."""

    def __call__(self, target: Any, source: Any, env: Any) -> None:
        try:
            if self.failures.stop((self.runner, *(runner for runner, _ in self.others))):
                raise TaskStopped(self.task.name)
            self.runner.run(self.task)
        except (TaskFailed, TaskStopped) as error:
            if isinstance(error, TaskFailed):
                self._fail(error.event)
            raise SCons.Errors.BuildError(node=target[0], errstr=str(error), status=1, exitstatus=2) from None

    def _fail(self, event: TaskEvent) -> None:
        self.failures.note(self.runner)
        for runner, task in self.others:
            self.failures.note(runner)
            runner.fail_as(task, event)


@dataclass
class _Decider:
    """Answers SCons, which asks of each file that a task reads whether it is another than when the task last ran: with
    the rule for the task as a whole, once. By then what it reads is made.

    SCons's timestamps count whole seconds: an edit within the second of a build would pass unseen.
    """

    _tasks: dict[str, tuple[TaskRunner, Task]] = field(default_factory=dict)
    _stale: dict[tuple[int, str], bool] = field(default_factory=dict)

    def learn(self, runner: TaskRunner, task: Task) -> None:
        """From now on answer for the task's outputs."""
        self._tasks |= {str(runner.path(name)): (runner, task) for name in task.outputs}

    def __call__(self, dependency: Any, target: Any, previous: Any, repository: Any = None) -> bool:
        runner, task = self._tasks[target.get_abspath()]
        asked = (id(runner), task.name)
        if asked not in self._stale:
            self._stale[asked] = not runner.judge(task).current
        return self._stale[asked]


class _Graph:
    """Tasks of all targets as SCons's nodes. A task that is another target's too is declared for both, and the second
    waits for the first."""

    def __init__(self, environment: Any, *, keep_going: bool) -> None:
        self.decider = _Decider()
        self._environment = environment
        self._failures = _Failures(keep_going)
        self._common = CommonTasks()
        self._declared: dict[tuple[str, str], tuple[Any, _TaskAction]] = {}

    def add(self, runner: TaskRunner, without: Sequence[str]) -> None:
        """Declare the tasks of one target."""
        maybe_common = {task.name for task in may_be_common(runner.plan.graph)}
        for task in runner.plan.graph.tasks:
            if task.name not in without:
                self._declare(runner, task)
                if task.name in maybe_common:
                    self._join(runner, task)

    def _declare(self, runner: TaskRunner, task: Task) -> None:
        environment = self._environment
        runner.drop_edited(task)
        self.decider.learn(runner, task)
        action = _TaskAction(runner, task, self._failures, [])
        # Nodes of the file system itself: those that an environment makes have what follows a dollar sign replaced.
        sources = [environment.fs.File(str(runner.path(name))) for name in task.inputs]
        outputs = [environment.fs.File(str(runner.path(name))) for name in task.outputs]
        targets = environment.Command(outputs, sources, SCons.Action.Action(action, cmdstr=None))
        # SCons asks of each file that a task reads: where there is none it does not ask.
        if not task.inputs and not runner.judge(task).current:
            environment.AlwaysBuild(targets)
        environment.Precious(targets)
        environment.NoClean(targets)
        environment.Default(targets)
        self._declared[runner.name, task.name] = (targets, action)

    def _join(self, runner: TaskRunner, task: Task) -> None:
        """Let a task that will run wait for the same one of an earlier target."""
        verdict = runner.judge(task)
        if verdict.current or verdict.key is None:
            return
        first = self._common.learn(runner.name, task.name, verdict.key)
        if first is not None:
            targets, action = self._declared[first]
            action.others.append((runner, task))
            # An order, and no dependency: what is waited for is not what this target's task is made from.
            self._environment.Requires(self._declared[runner.name, task.name][0], targets)


def _once(call: Any) -> Any:
    lock = threading.Lock()
    done: list[bool] = []

    def first() -> None:
        with lock:
            if not done:
                done.append(True)
                call()

    return first


def _end_with(parent: int) -> None:
    """Die when the process that builds dies, whatever kills it; the janitor then ends the tasks."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(int(signal.SIGKILL) + 128)


def _stop_on_signals(groups: ProcessGroups) -> None:
    """End running tasks at once when a signal comes: SCons itself only stops to start new ones.

    SCons installs its own handlers later; the wake-up descriptor hears of signals whoever handles them.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reading, 1):
            if number[0] in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                groups.stop()

    threading.Thread(target=watch, name="stop-on-signals", daemon=True).start()
