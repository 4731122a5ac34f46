"""About how long a build will take, by what its tasks took when they ran last."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from bolt_build.build import builder
from bolt_build.build.builder import BuildOptions, Listener
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.last_runs import LastRun, LastRuns
from bolt_build.build.staleness.estimate import outlook
from bolt_build.build.staleness.staleness import Forecast, StaleTask
from bolt_build.build.tasks import Task
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.progress import PlainProgress
from bolt_build.report.shown import Shown, how_long

RUNS = LastRuns((LastRun("a", (), 8.0, False), LastRun("b", (), 2.0, False), LastRun("c", (), 4.0, True)))


def forecast(*names: str, fetched: tuple[str, ...] = (), common: tuple[str, ...] = ()) -> Forecast:
    tasks = (Task(name, "compile", name, ("true",), (), (f"{name}.o",)) for name in names)
    stale = (
        StaleTask(task, (), task.name in fetched, True, as_for="net/host" if task.name in common else "")
        for task in tasks
    )
    return Forecast("host", tuple(stale))


def expected(jobs: int, *forecasts: Forecast) -> float | None:
    return outlook(("net",), [("net", each, RUNS) for each in forecasts], jobs).seconds


def test_tasks_are_shared_out_but_none_is_cut() -> None:
    assert expected(1, forecast("a", "b")) == 10.0
    assert expected(2, forecast("a", "b")) == 8.0


def test_recipes_that_are_built_together_share_the_cpus() -> None:
    found = outlook(("one", "two"), [("one", forecast("a"), RUNS), ("two", forecast("a", "b"), RUNS)], 2)
    assert (found.tasks, found.seconds) == (3, 9.0)
    assert found.known == {("one", "host", "a"): 8.0, ("two", "host", "a"): 8.0, ("two", "host", "b"): 2.0}


def test_a_task_that_never_ran_here_leaves_it_open() -> None:
    """One whose outputs came from the cache did not run either."""
    assert expected(1, forecast("a", "new")) is None
    assert expected(1, forecast("a", "c")) is None


def test_what_comes_from_the_cache_or_from_another_target_takes_no_time() -> None:
    assert expected(1, forecast("a", "new", fetched=("new",))) == 8.0
    assert expected(1, forecast("new", fetched=("new",))) == 0.0
    assert expected(1, forecast("a", "b", common=("b",))) == 8.0


def test_it_is_said_in_minutes() -> None:
    slow = LastRuns((LastRun("a", (), 102.7, False),))
    found = outlook(("net",), [("net", forecast("a"), slow)], 2)
    assert (found.text, found.worth_saying) == ("1 task, about 1:42 by what they took last", True)


@pytest.mark.parametrize(
    ("elapsed", "last", "said"),
    [
        (12.3, None, "0:12"), (12.3, 0.4, "0:12"), (12.3, 100.0, "0:12 of about 1:40"),
        (101.0, 100.0, "1:41 of about 1:40"), (200.0, 100.0, "3:20, 1:40 last"),
    ],
)  # fmt: skip
def test_elapsed_time_stands_beside_what_it_took_last(elapsed: float, last: float | None, said: str) -> None:
    assert how_long(50.0 + elapsed, 50.0, last) == said


class Terminal:
    """A slow build's clock, and what stands at the end of the terminal at each moment."""

    def __init__(self) -> None:
        self.now, self.lines, self.shown = 0.0, [], Shown(())
        self.progress = PlainProgress(self.lines.append, self, clock=lambda: self.now)

    def show(self, shown: Shown) -> None:
        self.shown = shown

    def stop(self) -> None:
        self.shown = Shown(())

    def after(self, seconds: float) -> list[str]:
        """What is seen when no more than time has passed."""
        self.now += seconds
        whole, found = self.shown.whole, []
        if whole is not None:
            found.append(f"{whole.done}/{whole.total} {how_long(self.now, whole.since, whole.expected)}")
        found += [f"{each.label} {how_long(self.now, each.since, each.expected)}" for each in self.shown.running]
        return found


def test_a_slow_build_shows_elapsed_time_and_estimate_of_every_stage() -> None:
    """Zoo writing, planning, compiling and verification, none of which says anything while it runs."""
    seen = Terminal()
    told = seen.progress
    runs = LastRuns((LastRun("x", (), 30.0, False), LastRun("verify", (), 90.0, False)))
    told.stage("writing the zoo's vit to model.onnx", 25.0)
    assert seen.after(7) == ["writing the zoo's vit to model.onnx 0:07 of about 0:25"]
    told.stage("planning net for host", None)
    assert seen.after(65) == ["planning net for host 1:05"]
    told.say("net/host: kernels chosen by prediction")
    assert seen.after(1) == []
    tasks = tuple(Task(name, "compile", name, ("true",), (), (f"{name}.o",)) for name in ("x", "verify"))
    found = Forecast("host", tuple(StaleTask(task, (), False, True) for task in tasks))
    told.start(outlook(("net",), [("net", found, runs)], 1))
    told.event(TaskEvent(EventKind.STARTED, "host", "x", "compile x.cpp", recipe="net"))
    assert seen.after(12) == ["0/2 0:12 of about 2:00", "compile x.cpp 0:12 of about 0:30"]
    told.event(TaskEvent(EventKind.FINISHED, "host", "x", "compile x.cpp", 12.0, recipe="net"))
    told.event(TaskEvent(EventKind.STARTED, "host", "verify", "verify against onnxruntime", recipe="net"))
    assert seen.after(120) == ["1/2 2:12 of about 2:00", "verify against onnxruntime 2:00, 1:30 last"]
    told.event(TaskEvent(EventKind.FINISHED, "host", "verify", "verify against onnxruntime", 120.0, recipe="net"))
    told.stop()
    assert seen.after(1) == []
    assert seen.lines == [
        "writing the zoo's vit to model.onnx, about 0:25",
        "planning net for host",
        "net/host: kernels chosen by prediction",
        "[1/2 0:12] compile x.cpp 12.0 s",
        "[2/2 2:12] verify against onnxruntime 120.0 s",
    ]


@pytest.mark.parametrize("refused", [False, True])
def test_a_dry_run_leaves_nothing_on_the_terminal(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()

    def planned(recipe: object, options: object, listener: Listener) -> object:
        listener.stage("planning net for host", None)
        assert seen.after(3) == ["planning net for host 0:03"]
        if refused:
            raise BoltError([Diagnostic("no", "it cannot be")])
        return (), (), ExitCode.OK

    monkeypatch.setattr(builder, "_plan", planned)
    nothing: Any = None
    with contextlib.suppress(BoltError):
        builder.foresee(nothing, BuildOptions(), seen.progress)
    assert seen.after(1) == []
