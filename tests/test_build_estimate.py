"""About how long a build will take, by what its tasks took when they ran last."""

from __future__ import annotations

from bolt_build.build.estimate import estimate_text, estimated_seconds
from bolt_build.build.last_runs import LastRun, LastRuns
from bolt_build.build.staleness import Forecast, StaleTask
from bolt_build.build.tasks import Task

RUNS = LastRuns((LastRun("a", (), 8.0, False), LastRun("b", (), 2.0, False), LastRun("c", (), 4.0, True)))


def forecast(*names: str, fetched: tuple[str, ...] = ()) -> Forecast:
    tasks = (Task(name, "compile", name, ("true",), (), (f"{name}.o",)) for name in names)
    return Forecast("host", tuple(StaleTask(task, (), task.name in fetched, True) for task in tasks))


def test_tasks_are_shared_out_but_none_is_cut() -> None:
    assert estimated_seconds([(forecast("a", "b"), RUNS)], 1) == 10.0
    assert estimated_seconds([(forecast("a", "b"), RUNS)], 2) == 8.0
    assert estimated_seconds([(forecast("a"), RUNS), (forecast("a", "b"), RUNS)], 2) == 9.0


def test_a_task_that_never_ran_here_leaves_it_open() -> None:
    """One whose outputs came from the cache did not run either."""
    assert estimated_seconds([(forecast("a", "new"), RUNS)], 1) is None
    assert estimated_seconds([(forecast("a", "c"), RUNS)], 1) is None


def test_what_comes_from_the_cache_takes_no_time() -> None:
    assert estimated_seconds([(forecast("a", "new", fetched=("new",)), RUNS)], 1) == 8.0
    assert estimated_seconds([(forecast("new", fetched=("new",)), RUNS)], 1) == 0.0


def test_it_is_said_in_minutes() -> None:
    assert estimate_text(9, 102.7) == "9 tasks, about 1:42 by what they took last"
