"""A target's directory as if it had been built: what planning writes is real, what tasks make is a line of text."""

from __future__ import annotations

from collections.abc import Callable

from bolt_build.build.builder import BuildOptions
from bolt_build.build.files import Digests
from bolt_build.build.planning.prepared_target import PreparedTarget
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.staleness.receipt import RECEIPT_VERSION, Receipt, save_receipt, task_key
from bolt_build.schema.recipe import Recipe


def pretend_built(
    recipe: Recipe, options: BuildOptions, preparer: Callable[..., Preparer] = Preparer, cut_off: int | None = None
) -> None:
    """Plan the recipe's targets, and leave every output of their tasks with its record; of a build that is cut off,
    those of its first tasks."""
    planner = preparer(recipe, options.directory(recipe), print)
    for spec in recipe.targets:
        _pretend(planner.plan(spec), cut_off)


def _pretend(target: PreparedTarget, cut_off: int | None) -> None:
    target = target.written()
    directory, plan, digests = target.directory, target.plan, Digests()
    for task in plan.graph.tasks[:cut_off]:
        stamps = (digests.stamp(directory.path / plan.places.expand(name), name) for name in task.inputs)
        inputs = tuple(file for file in stamps if file is not None)
        key = task_key(task, {file.path: file.digest for file in inputs})
        for name in task.outputs:
            path = directory.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} of {key}\n")
        made = (digests.stamp(directory.path / name, name) for name in task.outputs)
        outputs = tuple(file for file in made if file is not None)
        record = Receipt(RECEIPT_VERSION, key, task.argv, task.values, inputs, outputs, plan.facts, 0.0)
        save_receipt(directory.receipts, task.name, record)
