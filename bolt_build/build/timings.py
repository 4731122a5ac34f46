"""When each task of a build ran, from its events; the chain of tasks that a build waits for; what the cache saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bolt_build.build.builder import Listener
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.last_runs import LastRuns, load_last_runs
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.staleness.estimate import Outlook
from bolt_build.build.tasks import Task
from bolt_build.targets import target_named

_ENDS = {EventKind.FINISHED: "run", EventKind.FAILED: "failed", EventKind.STOPPED: "stopped"}


@dataclass(frozen=True)
class TimedTask:
    """`began` counts seconds from the beginning of the recording; `seconds` is what the event says.

    `how`: "run", "cache", "common" (another target made it), "failed" or "stopped". `before` is what a task from the
    cache took when it last ran in this directory, None where that is not known. `critical`: it is in its target's
    longest chain.
    """

    recipe: str
    target: str
    task: str
    label: str
    how: str
    began: float
    seconds: float
    reasons: tuple[str, ...] = ()
    before: float | None = None
    rule: str = ""
    on_gpu: bool = False
    critical: bool = False

    @property
    def ended(self) -> float:
        return self.began + self.seconds


@dataclass(frozen=True)
class Stage:
    """What a build did before its tasks, in its own words: writing a model, planning, waiting for another build."""

    label: str
    began: float
    seconds: float


@dataclass(frozen=True)
class Timings:
    """A recording: tasks by their begin, how many were up to date although they were asked for, and all its seconds;
    and the stages between them."""

    tasks: tuple[TimedTask, ...]
    current: int
    seconds: float
    stages: tuple[Stage, ...] = ()

    @property
    def work(self) -> float:
        """Seconds of all tasks together, as one CPU would take for them."""
        return sum(each.seconds for each in self.tasks)

    @property
    def chains(self) -> tuple[tuple[TimedTask, ...], ...]:
        """The longest chain of each target: no number of CPUs makes it shorter."""
        targets = dict.fromkeys((each.recipe, each.target) for each in self.tasks)
        return tuple(
            tuple(each for each in self.tasks if each.critical and (each.recipe, each.target) == target)
            for target in targets
        )

    @property
    def cached(self) -> tuple[TimedTask, ...]:
        return tuple(each for each in self.tasks if each.how == "cache")

    @property
    def saved(self) -> float:
        """Seconds that the tasks from the cache took when they last ran here, without those of fetching them."""
        return sum(max(each.before - each.seconds, 0.0) for each in self.cached if each.before is not None)


@dataclass
class Timekeeper:
    """Passes everything on to `listener`, and notes when it was told. `directories` are those of the recipes."""

    listener: Listener
    directories: Mapping[str, RecipeDirectory]
    clock: Callable[[], float] = time.monotonic
    _zero: float = 0.0
    _stages: list[Stage] = field(default_factory=list)
    _stage: tuple[str, float] | None = None
    _recipe: str = ""
    _current: int = 0
    _begun: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _tasks: list[TimedTask] = field(default_factory=list)
    _runs: dict[tuple[str, str], LastRuns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._zero = self.clock()

    def say(self, text: str) -> None:
        """What is said begins a stage, and ends the one before."""
        self._end_stage()
        self._stage = (text, self.clock() - self._zero)
        self.listener.say(text)

    def stage(self, text: str, expected: float | None) -> None:
        self._end_stage()
        self._stage = (text, self.clock() - self._zero)
        self.listener.stage(text, expected)

    def start(self, outlook: Outlook) -> None:
        self._end_stage()
        self._recipe = outlook.recipes[0]
        self.listener.start(outlook)

    def event(self, event: TaskEvent) -> None:
        self._end_stage()
        now, task = self.clock() - self._zero, (event.recipe or self._recipe, event.target, event.task)
        if event.kind is EventKind.STARTED:
            self._begun[task] = now
        elif event.kind is EventKind.CURRENT:
            self._current += 1
        elif event.kind in _ENDS:
            self._note(event, now)
        self.listener.event(event)

    def stop(self) -> None:
        self.listener.stop()

    def timings(self) -> Timings:
        """All that was noted until now, with what the plans in the directories say of the tasks."""
        found: list[TimedTask] = []
        for recipe, target in dict.fromkeys((each.recipe, each.target) for each in self._tasks):
            tasks = [each for each in self._tasks if (each.recipe, each.target) == (recipe, target)]
            plan = load_plan_file(self.directories[recipe].target(target).plan)
            found += _planned(tasks, plan.graph.tasks) if plan is not None else tasks
        ordered = tuple(sorted(found, key=lambda each: (each.began, each.recipe, each.target, each.task)))
        self._end_stage()
        return Timings(ordered, self._current, self.clock() - self._zero, tuple(self._stages))

    def _end_stage(self) -> None:
        if self._stage is not None:
            (label, began), self._stage = self._stage, None
            self._stages.append(Stage(label, began, self.clock() - self._zero - began))

    def _note(self, event: TaskEvent, now: float) -> None:
        recipe = event.recipe or self._recipe
        began = self._begun.get((recipe, event.target, event.task), max(now - event.seconds, 0.0))
        # One that was stopped has no seconds of its own, and one that waited for a worker began later than it was sent.
        seconds = now - began if event.kind is EventKind.STOPPED else event.seconds
        began = max(began, now - seconds)
        how, before = _ENDS[event.kind], None
        if event.as_for:
            how = "common"
        elif event.cached:
            last = self._last_runs(recipe, event.target).of(event.task)
            how, before = "cache", None if last is None or last.cached else last.seconds
        self._tasks.append(
            TimedTask(
                recipe, event.target, event.task, event.label, how, began, seconds, event.reasons, before
            )
        )  # fmt: skip

    def _last_runs(self, recipe: str, target: str) -> LastRuns:
        """As they were before this build, which writes its own when its tasks have ended."""
        where = (recipe, target)
        if where not in self._runs:
            self._runs[where] = load_last_runs(self.directories[recipe].target(target))
        return self._runs[where]


def _planned(timed: Sequence[TimedTask], tasks: Sequence[Task]) -> list[TimedTask]:
    by_name = {task.name: task for task in tasks}
    critical = longest_chain(tasks, {each.task: each.seconds for each in timed})
    found = []
    for each in timed:
        rule = by_name[each.task].rule if each.task in by_name else ""
        on_gpu = rule == "verify" and target_named(each.target).where == "cuda"
        found.append(replace(each, rule=rule, on_gpu=on_gpu, critical=each.task in critical))
    return found


def longest_chain(tasks: Sequence[Task], seconds: Mapping[str, float]) -> tuple[str, ...]:
    """Names of the tasks, first to last, each of which needs what the one before makes, and that take longest together.

    `tasks` stand behind what they need; those without `seconds` did not run, and take no time.
    """
    made = {output: task.name for task in tasks for output in task.outputs}
    ends: dict[str, float] = {}
    behind: dict[str, str | None] = {}
    for task in tasks:
        needed = [made[name] for name in task.inputs if name in made]
        last = max(needed, key=lambda name: ends[name], default=None)
        behind[task.name] = last
        ends[task.name] = seconds.get(task.name, 0.0) + (ends[last] if last is not None else 0.0)
    at = max(ends, key=lambda name: ends[name], default=None)
    chain: list[str] = []
    while at is not None:
        if at in seconds:
            chain.append(at)
        at = behind[at]
    return tuple(reversed(chain))
