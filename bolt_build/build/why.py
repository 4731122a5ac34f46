"""Why tasks would run, and why they ran last: by the forecast, for a task, a file or a layer of the model."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.builder import BuildOptions, Listener, foresee
from bolt_build.build.engine_file import ENGINE, read_engine
from bolt_build.build.last_runs import LastRun, load_last_runs
from bolt_build.build.prepared_target import PreparedTarget
from bolt_build.build.staleness import Forecast, StaleTask
from bolt_build.build.tasks import Task
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families import load
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named


@dataclass(frozen=True)
class ExplainedTask:
    """A task of a target: `stale` where it would run, `last` where it is known why it ran last."""

    target: str
    task: Task
    stale: StaleTask | None
    last: LastRun | None


def why(recipe: Recipe, options: BuildOptions, listener: Listener, asked: str | None) -> tuple[ExplainedTask, ...]:
    """Every task of the chosen targets, or those that `asked` means: a task by its name or label, a file that one reads
    or makes, or a step or ONNX node. Nothing is written but a zoo recipe's model.

    Raises BoltError, also where no target has anything of that name.
    """
    found, known = [], []
    for target, forecast in foresee(recipe, options, listener):
        tasks = target.plan.graph.tasks
        if asked is not None:
            meant, names = _meant(target, asked)
            known += names
            tasks = tuple(task for task in tasks if task.name in meant)
        found += _explained(target, forecast, tasks)
    if asked is not None and not found:
        raise BoltError([_unknown(recipe, asked, known)], ExitCode.USAGE)
    return tuple(found)


def _explained(target: PreparedTarget, forecast: Forecast, tasks: tuple[Task, ...]) -> list[ExplainedTask]:
    stale = {each.task.name: each for each in forecast.stale}
    runs = load_last_runs(target.directory)
    return [ExplainedTask(forecast.target, task, stale.get(task.name), runs.of(task.name)) for task in tasks]


def _meant(target: PreparedTarget, asked: str) -> tuple[set[str], list[str]]:
    """Names of the tasks that a word means; and all words that would mean some."""
    tasks = target.plan.graph.tasks
    words: dict[str, set[str]] = {}
    for task in tasks:
        for file in (*task.inputs[:1], *task.outputs):
            words.setdefault(Path(file).name, set()).add(task.name)
        for word in (task.name, task.label):
            words.setdefault(word, set()).add(task.name)
    engine = _engine(target)
    if asked not in words and engine is not None:
        by_input = {Path(task.inputs[0]).name: task.name for task in tasks if task.rule == "compile"}
        for layer, sources in _sources_of_layers(engine, target.plan.graph.target).items():
            words.setdefault(layer, {by_input[name] for name in sources if name in by_input})
    return words.get(asked, set()), list(words)


def _engine(target: PreparedTarget) -> EnginePlan | None:
    """The engine of the plan, as it lies in the directory or is about to."""
    text = dict(target.contents).get(ENGINE)
    return read_engine(target.directory.engine.read_text(encoding="utf-8") if text is None else text)


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


def _unknown(recipe: Recipe, asked: str, known: list[str]) -> Diagnostic:
    near = difflib.get_close_matches(asked, known, 1, 0.6)
    hint = f"did you mean '{near[0]}'?" if near else "'bolt-build why RECIPE' lists the tasks, 'plan' the layers"
    return Diagnostic("unknown-task", f"{recipe.path} has no task, file or layer '{asked}'", hint=hint)
