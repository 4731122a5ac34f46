"""The page of `build --timings`: it says what the events say."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from html_pages import read_page
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.last_runs import note_runs
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.staleness.estimate import Outlook
from bolt_build.build.tasks import Task
from bolt_build.build.timings import TimedTask, Timekeeper, Timings, longest_chain
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.report.pages.timings import lanes, timings_page
from bolt_build.report.progress import QuietProgress


def task(name: str, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Task:
    return Task(name, "compile", name, ("true",), inputs, outputs or (f"{name}.o",))


def event(kind: EventKind, name: str, seconds: float = 0.0, *, cached: bool = False, why: str = "") -> TaskEvent:
    return TaskEvent(kind, "host", name, f"compile <{name}>", seconds, cached, reasons=(why,) if why else ())


def keeper(path: Path, times: list[float]) -> Timekeeper:
    found = Timekeeper(QuietProgress(), {"toy": RecipeDirectory(path / "toy")}, iter(times).__next__)
    found.start(Outlook(("toy",), 4))
    return found


def test_the_page_says_what_the_events_say(tmp_path: Path) -> None:
    """Labels and reasons are text, whatever they hold; a bar and a row a task; the cache's part is what was known."""
    directory = RecipeDirectory(tmp_path / "toy").target("host")
    note_runs(directory, [event(EventKind.FINISHED, "b", 7.5), event(EventKind.FINISHED, "c", 9.0, cached=True)])
    told = keeper(tmp_path, [100.0, 101.0, 103.0, 103.5, 104.0, 105.0, 105.0, 106.0, 108.0])
    told.event(event(EventKind.STARTED, "a"))
    told.event(event(EventKind.FINISHED, "a", 2.0, why="x.cpp changed & <b>"))
    told.event(event(EventKind.FINISHED, "b", 0.5, cached=True))
    told.event(event(EventKind.FINISHED, "c", 0.25, cached=True))
    told.event(event(EventKind.STARTED, "d"))
    told.event(event(EventKind.CURRENT, "e"))
    told.event(event(EventKind.FAILED, "d", 1.0))
    page = read_page(timings_page(told.timings()))
    rows = page.rows("Every task")
    assert [(row["task"], row["how"], row["began"], row["seconds"], row["last run here"]) for row in rows] == [
        ("compile <a>", "ran", "1.000", "2.000", ""), ("compile <b>", "from the cache", "3.000", "0.500", "7.500"),
        ("compile <c>", "from the cache", "3.750", "0.250", ""), ("compile <d>", "failed", "5.000", "1.000", ""),
    ]  # fmt: skip
    assert rows[0]["why"] == "x.cpp changed & <b>"
    bars = [f"toy/host: {row['task']}: {row['how']}, {row['seconds']} s" for row in rows]
    assert page.titles == bars
    assert page.facts == {
        "whole build": "8.0 s, planning included", "tasks": "1 ran, 2 from the cache, 1 failed",
        "all tasks one by one": "3.8 s", "up to date": "1 of the tasks that were asked for",
        "saved by the cache": "7.0 s, by what 1 of 2 took when they last ran here",
    }  # fmt: skip


def test_what_came_before_the_tasks_has_bars_too(tmp_path: Path) -> None:
    """A stage lasts from what was said until the next thing that is said, or the tasks begin."""
    told = keeper(tmp_path, [10.0, 11.0, 13.0, 13.0, 16.0, 16.0, 17.0, 18.0])
    told.say("writing <tiny>")
    told.say("planning toy for host")
    told.event(event(EventKind.STARTED, "a"))
    told.event(event(EventKind.FINISHED, "a", 0.25))
    page = read_page(timings_page(told.timings()))
    assert page.facts["before the tasks"] == "5.0 s of planning and what else comes first"
    assert [tuple(row.values()) for row in page.rows("What the build did before its tasks")] == [
        ("writing <tiny>", "1.000", "2.000"), ("planning toy for host", "3.000", "3.000"),
    ]  # fmt: skip
    assert page.titles[:2] == ["writing <tiny>: 2.000 s", "planning toy for host: 3.000 s"]


def test_nothing_ran() -> None:
    page = read_page(timings_page(Timings((), 0, 0.5)))
    assert page.facts["tasks"] == "none ran"
    assert page.rows("Every task") == []
    assert "svg" not in page.tags


def test_the_longest_chain() -> None:
    """Not the most tasks, but the most time; a task that did not run is passed over."""
    tasks = (
        task("a"), task("b"), task("old", ("b.o",)), task("link", ("a.o", "old.o")), task("copy", ("a.o",)),
    )  # fmt: skip
    assert longest_chain(tasks, {"a": 2.0, "b": 3.0, "link": 1.0, "copy": 0.1}) == ("b", "link")
    assert longest_chain(tasks, {"a": 9.0, "b": 3.0, "link": 1.0, "copy": 5.0}) == ("a", "copy")
    assert longest_chain((), {}) == ()


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50), st.booleans()), max_size=12), st.floats(0, 10)
)  # fmt: skip
def test_bars_of_a_lane_do_not_overlap(spans: list[tuple[float, float, bool]], more: float) -> None:
    tasks = tuple(
        TimedTask("toy", "host", f"t{index}", f"t{index}", "run", began, seconds, on_gpu=gpu)
        for index, (began, seconds, gpu) in enumerate(sorted(spans))
    )
    found = dict(lanes(tasks))
    assert sorted(each.task for lane in found.values() for each in lane) == sorted(each.task for each in tasks)
    for name, lane in found.items():
        assert all(each.on_gpu == name.startswith("GPU") for each in lane)
        assert all(a.ended <= b.began for a, b in itertools.pairwise(lane))
    read_page(timings_page(Timings(tasks, 0, more)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--timings", "gone/t.html"),
            "gone/t.html: error[no-place]: its directory does not exist\n  hint: make it with: mkdir -p {here}/gone\n",
        ),
        (("--timings", "."), ".: error[no-place]: is a directory\n  hint: name a file in it\n"),
        (
            ("--timings", "t.html", "-n"),
            (
                "error[nothing-to-time]: --timings has nothing to show of a build that --dry-run does not run\n"
                "  hint: leave one of them out\n"
            ),
        ),
    ],
)
def test_a_page_that_cannot_be(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Said before anything is built."""
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text("bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n")
    assert main(["build", "net.yaml", *words]) == ExitCode.USAGE
    assert capsys.readouterr().err == said.format(here=tmp_path)
    assert not Path("generated").exists()
