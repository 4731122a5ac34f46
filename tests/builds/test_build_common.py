"""Recipes in one graph: what several have in common runs once, and a failure stops its own recipe alone."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from build_graphs import shell, write_plan

from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.running.session import SessionOptions, SessionPart, SessionResult, run_session
from bolt_build.build.staleness.staleness import forecast, with_common
from bolt_build.build.tasks import Task

SHARED = shell("kernel", 'echo ran >> "../../runs"; sleep 0.2; echo kernel > "$out/k.o"', ("k.o",))


def own(name: str, script: str = "") -> Task:
    """A task that no other recipe has."""
    return shell(name, script or f'echo {name} > "$out/{name}.o"', (f"{name}.o",))


def link(*objects: str) -> Task:
    return shell("link", f'cat {" ".join(objects)} > "$out/lib.so"', ("lib.so",), objects)


@dataclass
class Together:
    """Recipes under one folder that are built together, without a cache: what runs once does so by the graph alone."""

    root: Path
    recipes: dict[str, dict[str, RecipeDirectory]] = field(default_factory=dict)

    def plan(self, recipe: str, *tasks: Task, target: str = "host") -> None:
        directory = write_plan(self.root, *tasks, name=recipe, target=target)
        self.recipes.setdefault(recipe, {})[target] = directory

    def run(self, *, keep_going: bool = False, jobs: int = 3) -> tuple[list[str], SessionResult]:
        """What became of each task, in an order of its own: `net/host:link`, with `=` where it took another's result,
        `-` where it failed, `.` where it was up to date."""
        told: list[TaskEvent] = []
        with ExitStack() as claims:
            parts = [
                SessionPart(
                    self.root / name, tuple(targets),
                    claims.enter_context(directory_claim(self.root / name, wait=True, say=print)),
                )
                for name, targets in self.recipes.items()
            ]  # fmt: skip
            result = run_session(parts, SessionOptions(jobs, keep_going, None, 1 << 30), told.append)
        marks = {EventKind.FINISHED: "", EventKind.FAILED: "-", EventKind.CURRENT: "."}
        seen = [f"{e.recipe}/{e.target}:{e.task}{'=' if e.as_for else marks[e.kind]}" for e in told if e.kind in marks]
        return sorted(seen), result

    def foreseen(self) -> list[str]:
        """The same as the forecast has it."""
        directories = [targets[name].target(name) for targets in self.recipes.values() for name in targets]
        plans = [load_plan_file(directory.plan) for directory in directories]
        asked = [forecast(plan, at, None, {}, lambda key: None) for plan, at in zip(plans, directories, strict=True)]
        found = with_common([plan.graph for plan in plans], asked)
        names = [f"{plan.graph.recipe}/{plan.graph.target}" for plan in plans]
        return sorted(
            f"{name}:{stale.task.name}{'=' if stale.as_for else ''}"
            for name, each in zip(names, found, strict=True)
            for stale in each.stale
        )

    def path(self, name: str) -> Path:
        return self.root / name

    @property
    def runs(self) -> int:
        """How often the shared task's command ran."""
        return len(self.path("runs").read_text().splitlines())


@pytest.fixture
def together(tmp_path: Path) -> Together:
    return Together(tmp_path)


def test_a_task_of_several_targets_runs_once_and_the_forecast_had_said_so(together: Together) -> None:
    together.plan("net", SHARED, own("plan"), link("k.o", "plan.o"))
    # Another link for each, or the last may find its own made already.
    together.plan("net", SHARED, link("k.o", "k.o"), target="h200")
    together.plan("other", SHARED, link("k.o"))
    expected = [
        "net/h200:kernel=", "net/h200:link", "net/host:kernel", "net/host:link", "net/host:plan", "other/host:kernel=",
        "other/host:link",
    ]  # fmt: skip
    assert together.foreseen() == expected
    seen, result = together.run()
    assert (seen, together.runs, result.trouble) == (expected, 1, "")
    assert {e.as_for for e in result.finished if e.task == "kernel" and e.cached} == {"net/host"}
    assert together.path("other/host/lib.so").read_text() == "kernel\n"
    assert together.path("other/host/k.o").stat().st_ino != together.path("net/host/k.o").stat().st_ino
    assert together.foreseen() == []
    # What one has already, the others make once among them.
    for name in ("net/h200", "other/host"):
        together.path(f"{name}/k.o").unlink()
    seen, _ = together.run()
    assert ([each for each in seen if each[-1] != "."], together.runs) == (["net/h200:kernel", "other/host:kernel="], 2)
    together.recipes = {"other": together.recipes["other"]}
    assert together.run()[0] in (["other/host:link."], ["other/host:kernel.", "other/host:link."])


def test_a_failure_stops_its_recipe_and_nothing_that_another_needs(together: Together) -> None:
    """One task at a time, in the order of the recipes: the shared one comes behind the failure, and runs all the
    same."""
    together.plan("net", own("broken", "exit 3"), SHARED, own("plan"), link("k.o", "plan.o"))
    together.plan("other", SHARED, link("k.o"))
    seen, result = together.run(jobs=1)
    assert seen == ["net/host:broken-", "net/host:kernel", "other/host:kernel=", "other/host:link"]
    assert [(event.recipe, event.text) for event in result.failed] == [("net", "exit status 3")]
    seen, _ = together.run(jobs=1, keep_going=True)
    assert [each for each in seen if each[-1] != "."] == ["net/host:broken-", "net/host:link", "net/host:plan"]


def test_a_common_task_that_fails_fails_for_all_of_its_recipes_and_ran_once(together: Together) -> None:
    wrong = shell("kernel", 'echo ran >> "../../runs"; echo no such type; exit 1', ("k.o",))
    together.plan("net", wrong, link("k.o"))
    together.plan("other", wrong, link("k.o"))
    together.plan("third", own("alone"))
    seen, result = together.run()
    assert (seen, together.runs) == (["net/host:kernel-", "other/host:kernel-", "third/host:alone"], 1)
    first, second = result.failed
    assert (first.text, first.log) == ("exit status 1", "no such type")
    assert (second.text, second.log, second.log_file) == ("failed for net/host: exit status 1", "", first.log_file)
    assert second.command.startswith(f"cd {together.path('other/host')} && /bin/sh -c ")
