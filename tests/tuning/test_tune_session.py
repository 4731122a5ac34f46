"""Sessions of a tuning: sources and plan in a directory of their own, and what is left or repeated of earlier ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from build_graphs import shell
from cuda_tasks import TOOLS
from planner_fakes import recipe

from bolt_build.build.builder import BuildOptions
from bolt_build.build.claim import directory_claim
from bolt_build.build.cleaning import clean
from bolt_build.build.events import TaskEvent
from bolt_build.build.files import FileStamp
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.plan_file import EngineSummary
from bolt_build.build.tasks import Task, TaskGraph
from bolt_build.errors import BoltError
from bolt_build.families import load
from bolt_build.report.progress import QuietProgress
from bolt_build.targets import HOST
from bolt_build.tuning.compile.session import TuningSession


@dataclass
class Events(QuietProgress):
    """Remembers what ended how."""

    seen: list[str] = field(default_factory=list)

    def event(self, event: TaskEvent) -> None:
        self.seen.append(f"{event.kind.value} {event.task}")


@contextlib.contextmanager
def opened(tmp_path: Path) -> Iterator[TuningSession]:
    """A session of the target "host", for its tools need not be there, while its directory is claimed."""
    model = ModelFile((FileStamp("/m.onnx", "1" * 64, 1, 0, 0),))
    summary = EngineSummary("tiny", (), (), (1,), "", 0, 0, 0)
    tools = replace(TOOLS, tools=(TOOLS.tools[0], replace(TOOLS.tools[1], name="onednn")))
    context = BuildContext(recipe(), HOST, load(HOST), tools, summary, model, verified=False)
    options = BuildOptions(tmp_path / "generated", tmp_path / "cache", jobs=2)
    root = RecipeDirectory(tmp_path / "generated" / "tiny")
    with directory_claim(root.path, wait=True, say=print) as held:
        yield TuningSession(context, root, options, held, Events())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[TuningSession]:
    with opened(tmp_path) as found:
        yield found


def graph(*tasks: Task) -> TaskGraph:
    return TaskGraph("tiny", "host", "tiny/host.tuning", tasks, ())


def copy(name: str) -> Task:
    return shell(name, f'cp src/{name}.cu "$out/{name}.o"', (f"{name}.o",), (f"src/{name}.cu",))


def files(session: TuningSession) -> list[str]:
    return sorted(path.name for path in session.directory.path.rglob("*") if path.suffix in (".cu", ".o"))


def test_what_is_done_is_not_done_again(session: TuningSession) -> None:
    sources = [("src/a.cu", "one"), ("src/b.cu", "two")]
    session.run(graph(copy("a"), copy("b")), sources, keep_going=True)
    session.listener.seen.clear()  # type: ignore[attr-defined]
    sources[1] = ("src/b.cu", "three")
    result = session.run(graph(copy("a"), copy("b")), sources, keep_going=True)
    assert [event.task for event in result.finished] == ["b"]
    assert (session.directory.path / "b.o").read_text() == "three"


def test_sources_that_no_plan_names_go(session: TuningSession) -> None:
    session.run(graph(copy("a"), copy("b")), [("src/a.cu", "one"), ("src/b.cu", "two")], keep_going=True)
    session.run(graph(), None, keep_going=True)
    assert files(session) == ["a.cu", "a.o", "b.cu", "b.o"]
    session.run(graph(copy("a")), [("src/a.cu", "one")], keep_going=True)
    assert files(session) == ["a.cu", "a.o", "b.o"]


def test_a_failure_stops_nothing_else_where_it_is_to_go_on(session: TuningSession) -> None:
    wrong = shell("a", "echo 'no such tile' >&2; exit 2", ("a.o",), ("src/a.cu",))
    sources = [("src/a.cu", "one"), ("src/b.cu", "two"), ("src/c.cu", "three")]
    result = session.run(graph(wrong, copy("b"), copy("c")), sources, keep_going=True)
    assert [(event.task, event.log) for event in result.failed] == [("a", "no such tile")]
    assert sorted(event.task for event in result.finished) == ["b", "c"]


def test_a_directory_that_cannot_be_made_is_told_of(session: TuningSession) -> None:
    session.directory.path.write_text("a file")
    with pytest.raises(BoltError) as caught:
        session.run(graph(), (), keep_going=True)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["not-a-directory"]


def test_clean_removes_what_sessions_made_and_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        directory = session.directory
        session.run(graph(copy("a"), copy("b")), [("src/a.cu", "one"), ("src/b.cu", "two")], keep_going=True)
        session.run(graph(copy("a")), [("src/a.cu", "one")], keep_going=True)
    for path in (directory.bundle, directory.results):
        path.write_text("made by the tuning")
    (directory.path / "notes.txt").write_text("mine")
    assert clean(recipe(), session.options).foreign == (directory.path / "notes.txt",)
    assert [path.name for path in directory.path.rglob("*")] == ["notes.txt"]
