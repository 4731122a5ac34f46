"""A target's directory as if it had been built: real plan and sources, a line of text for what compilers would make."""

from __future__ import annotations

from bolt_build.build.builder import BuildOptions
from bolt_build.build.emission import emitted_sources
from bolt_build.build.files import Digests
from bolt_build.build.planning import PlannedTarget, Planner
from bolt_build.build.record import RECORD_VERSION, TaskRecord, save_record, task_key
from bolt_build.schema.recipe import Recipe


def pretend_built(recipe: Recipe, options: BuildOptions) -> None:
    """Plan the recipe's targets, and leave every output of their tasks with its record."""
    planner = Planner(recipe, options.directory(recipe), print)
    for spec in recipe.targets:
        _pretend(planner.plan(spec))


def _pretend(target: PlannedTarget) -> None:
    target.write()
    directory, plan, digests = target.directory, target.plan, Digests()
    emitted = dict(emitted_sources(*target.emission_inputs()))
    for task in plan.graph.tasks:
        stamps = (digests.stamp(directory.path / plan.places.expand(name), name) for name in task.inputs)
        inputs = tuple(file for file in stamps if file is not None)
        for name in task.outputs:
            path = directory.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(emitted.get(name, f"{name}\n"), encoding="utf-8")
        made = (digests.stamp(directory.path / name, name) for name in task.outputs)
        key = task_key(task, {file.path: file.digest for file in inputs})
        outputs = tuple(file for file in made if file is not None)
        record = TaskRecord(RECORD_VERSION, key, task.argv, task.values, inputs, outputs, plan.facts, 0.0)
        save_record(directory.records, task.name, record)
