"""Why tasks would run, and why they ran last: by the forecast, for a task, a file or a layer of the model."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bolt_build.build.builder import BuildOptions, Listener, foresee
from bolt_build.build.files import read_text
from bolt_build.build.last_runs import LastRun, LastRuns, load_last_runs
from bolt_build.build.planning.engine_file import ENGINE, read_engine
from bolt_build.build.planning.prepared_target import PreparedTarget
from bolt_build.build.staleness.staleness import Forecast, StaleTask, with_common
from bolt_build.build.tasks import Task, TaskGraph
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families import load
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named


@dataclass(frozen=True)
class ExplainedTask:
    """A task of a recipe's target: `stale` where it would run, `last` where it is known why it ran last."""

    recipe: str
    target: str
    task: Task
    stale: StaleTask | None
    last: LastRun | None


@dataclass(frozen=True)
class Answer:
    """What `why` found; and why nothing can be said of some recipes."""

    tasks: tuple[ExplainedTask, ...]
    troubles: tuple[BoltError, ...] = ()


def why(recipes: Sequence[Recipe], options: BuildOptions, listener: Listener, asked: Sequence[str] = ()) -> Answer:
    """Every task of the chosen targets of recipes that are built together, or those that `asked` means: tasks by name
    or label, files that one reads or makes, steps, or ONNX nodes. Nothing is written but zoo recipes' models.

    Raises BoltError where no target of any recipe has something of a name that was asked for, or nothing can be said.
    """
    asking, troubles = [], []
    for recipe in recipes:
        try:
            asking.append(_of(recipe, options, listener, asked))
        except BoltError as error:
            troubles.append(error)
    if not asking:
        raise BoltError([each for error in troubles for each in error.diagnostics], troubles[0].exit_code)
    missing = [word for word in asked if not any(word in each.words for each in asking)]
    if missing:
        known = [word for each in asking for word in each.known]
        raise BoltError([_unknown(recipes, word, known) for word in missing], ExitCode.USAGE)
    parts = [part for each in asking for part in each.parts]
    forecasts = with_common([part.graph for part in parts], [part.forecast for part in parts])
    found = tuple(each for part, forecast in zip(parts, forecasts, strict=True) for each in part.explained(forecast))
    return Answer(found, tuple(troubles))


@dataclass(frozen=True)
class _Part:
    """A target as a build would prepare it, without its weights; and the names of the tasks that are asked for."""

    recipe: str
    graph: TaskGraph
    forecast: Forecast
    runs: LastRuns
    asked: frozenset[str]

    def explained(self, found: Forecast) -> Iterator[ExplainedTask]:
        stale = {each.task.name: each for each in found.stale}
        for task in self.graph.tasks:
            if task.name in self.asked:
                last = self.runs.of(task.name)
                yield ExplainedTask(self.recipe, self.graph.target, task, stale.get(task.name), last)


@dataclass(frozen=True)
class _Asking:
    """The targets of a recipe, those of the words asked for that mean some of their tasks, and all that would."""

    parts: tuple[_Part, ...]
    words: frozenset[str]
    known: tuple[str, ...]


def _of(recipe: Recipe, options: BuildOptions, listener: Listener, asked: Sequence[str]) -> _Asking:
    """Raises BoltError."""
    parts, meaning = [], set[str]()
    known: list[str] = []
    for target, found in foresee(recipe, options, listener):
        graph = target.plan.graph
        names = frozenset(task.name for task in graph.tasks)
        if asked:
            words = _Words(target)
            meant = {word: words.meant(word) for word in asked}
            meaning |= {word for word, tasks in meant.items() if tasks}
            known += words.known
            names = frozenset(name for tasks in meant.values() for name in tasks)
        parts.append(_Part(recipe.name, graph, found, load_last_runs(target.directory), names))
    return _Asking(tuple(parts), frozenset(meaning), tuple(known))


class _Words:
    """The words that mean tasks of a target."""

    def __init__(self, target: PreparedTarget) -> None:
        self._target = target
        self._tasks: dict[str, set[str]] = {}
        for task in target.plan.graph.tasks:
            for file in (*task.inputs[:1], *task.outputs):
                self._tasks.setdefault(Path(file).name, set()).add(task.name)
            for word in (task.name, task.label):
                self._tasks.setdefault(word, set()).add(task.name)

    def meant(self, asked: str) -> set[str]:
        """Names of the tasks that a word means. The layers are asked for where nothing else is called that."""
        if asked not in self._tasks:
            for layer, tasks in self._layers.items():
                self._tasks.setdefault(layer, tasks)
        return self._tasks.get(asked, set())

    @property
    def known(self) -> list[str]:
        return list(self._tasks)

    @cached_property
    def _layers(self) -> dict[str, set[str]]:
        """Tasks that compile something of a step, by its name and those of the ONNX nodes that it covers."""
        engine, graph = _engine(self._target), self._target.plan.graph
        if engine is None:
            return {}
        by_input = {Path(task.inputs[0]).name: task.name for task in graph.tasks if task.rule == "compile"}
        sources = _sources_of_layers(engine, graph.target)
        return {layer: {by_input[name] for name in names if name in by_input} for layer, names in sources.items()}


def _engine(target: PreparedTarget) -> EnginePlan | None:
    """The engine of the plan, as it lies in the directory or is about to."""
    text = dict(target.contents).get(ENGINE)
    return read_engine(read_text(target.directory.engine) if text is None else text)


def _sources_of_layers(engine: EnginePlan, name: str) -> dict[str, set[str]]:
    """The source files that hold something of each step, by its name and those of the ONNX nodes that it covers."""
    target = target_named(name)
    families, suffix = {family.name: family for family in load(target)}, "cu" if target.where == "cuda" else "cpp"
    found: dict[str, set[str]] = {}
    for plan in engine.plans:
        for step in plan.steps:
            sources = {f"plan_b{plan.sizes.key}.{suffix}"}
            if not step.view:
                units = families[step.candidate.family].units(((step.problem, step.candidate),), target)
                sources |= {unit.name for unit in units}
            for layer in (step.name, *step.covers):
                found.setdefault(layer, set()).update(sources)
    return found


def _unknown(recipes: Sequence[Recipe], asked: str, known: list[str]) -> Diagnostic:
    near = difflib.get_close_matches(asked, known, 1, 0.6)
    hint = f"did you mean '{near[0]}'?" if near else "'bolt-build why RECIPE' lists the tasks, 'plan' the layers"
    where = f"{recipes[0].path} has no" if len(recipes) == 1 else f"none of {len(recipes)} recipes has a"
    return Diagnostic("unknown-task", f"{where} task, file or layer '{asked}'", hint=hint)
