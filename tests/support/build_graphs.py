"""Small task graphs of shell commands, for tests of the build that need no toolchain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bolt_build.build.files import FileStamp
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_code.facts import NO_FACTS, Facts
from bolt_build.build.planning.plan_file import PLAN_FILE_VERSION, EngineSummary, Places, PlanFile, save_plan_file
from bolt_build.build.tasks import Task, TaskGraph, Value

ENGINE = EngineSummary("toy", (), (), (1,), "0" * 64, 0, 0, 0)


def shell(
    name: str,
    script: str,
    outputs: tuple[str, ...],
    inputs: tuple[str, ...] = (),
    values: tuple[Value, ...] = (),
    *,
    memory_mb: int = 1,
    cached: bool = True,
    reads: tuple[str, ...] = (),
) -> Task:
    """A task that runs `script` in /bin/sh; `$out` is its private directory."""
    argv = ("/bin/sh", "-c", 'out="$1"; ' + script, "sh", "${out}")
    return Task(name, "shell", f"run {name}", argv, inputs, outputs, values, reads, memory_mb, cached)


def plan_of(
    tasks: tuple[Task, ...],
    facts: Facts = NO_FACTS,
    places: tuple[tuple[str, str], ...] = (),
    recipe: str = "toy",
    target: str = "host",
) -> PlanFile:
    """A plan file of these tasks for a target of a recipe."""
    artifacts = tuple(output for task in tasks for output in task.outputs)
    graph = TaskGraph(recipe, target, f"{recipe}/{target}", tasks, artifacts)
    return PlanFile(PLAN_FILE_VERSION, "planning", "key", facts, Places(places), (), ENGINE, graph)


def write_plan(
    root: Path,
    *tasks: Task,
    facts: Facts = NO_FACTS,
    target: str = "host",
    name: str = "toy",
    places: tuple[tuple[str, str], ...] = (),
    model: tuple[FileStamp, ...] = (),
) -> RecipeDirectory:
    """Write the plan of these tasks under `root`, as planning would."""
    recipe = RecipeDirectory(root / name)
    directory = recipe.target(target)
    directory.path.mkdir(parents=True, exist_ok=True)
    plan = plan_of(tasks, facts, places, recipe=name, target=target)
    save_plan_file(directory.plan, replace(plan, model=model))
    return recipe
