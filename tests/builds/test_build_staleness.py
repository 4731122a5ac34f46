"""What a build would run after a change of the model or of bolt-build: planned for real, compiled never."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pretended import pretend_built
from recipe_projects import RECIPE, write_model
from test_build_own_sources import NO_OFFERS, EditedFiles, use

from bolt_build.build import builder
from bolt_build.build.builder import BuildOptions, build, dry_run
from bolt_build.build.events import TaskEvent
from bolt_build.build.own_code.own_sources import PACKAGE, OwnSources
from bolt_build.build.planning import emission
from bolt_build.build.running.session import SessionPart, SessionResult
from bolt_build.build.staleness.estimate import Outlook
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.schema.load import load_recipe


class Silent:
    """Hears what a build says, and keeps it; `shown` while tasks are shown."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown = False

    def say(self, text: str) -> None:
        self.said.append(text)

    def stage(self, text: str, expected: float | None) -> None:
        self.said.append(text)

    def start(self, outlook: Outlook) -> None:
        self.shown = True

    def event(self, event: TaskEvent) -> None: ...

    def stop(self) -> None:
        self.shown = False


class Place:
    """A recipe that was built, and what a build of it would do now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "tiny.yaml").write_text(RECIPE)
        write_model(path / "tiny.onnx")
        self.options = BuildOptions(output=path / "generated", cache=path / "cache")
        self.pretend()

    def pretend(self) -> None:
        """Build, but for what compilers would make."""
        pretend_built(load_recipe(self.path / "tiny.yaml"), self.options)

    def would_run(self, *, certain: bool = False) -> tuple[list[str], list[str]]:
        """Labels of the tasks that would run (those alone that are sure to), and what was said before."""
        listener = Silent()
        (found,) = dry_run(load_recipe(self.path / "tiny.yaml"), self.options, listener)
        return [stale.task.label for stale in found.stale if stale.certain or not certain], listener.said


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(), NO_OFFERS))
    return Place(tmp_path)


def test_nothing_changed(place: Place) -> None:
    assert place.would_run() == ([], [])


def test_where_nothing_is_stale_scons_is_not_started(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask the same rule. Where something is, it is asked."""
    started: list[tuple[str, ...]] = []

    def run_session(parts: list[SessionPart], *more: object) -> SessionResult:
        started.extend(part.targets for part in parts)
        return SessionResult(interrupted=False, failed=(), finished=())

    monkeypatch.setattr(builder, "run_session", run_session)
    recipe = load_recipe(place.path / "tiny.yaml")
    listener = Silent()
    assert build(recipe, place.options, listener).exit_code is ExitCode.OK
    assert (started, listener.shown) == ([], False)
    (place.path / "generated" / "tiny" / "host" / "tiny-run").unlink()
    build(recipe, place.options, Silent())
    assert started == [("host",)]


def test_a_recipe_that_cannot_be_planned_keeps_no_other_from_being_built(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.path)
    (place.path / "lost.yaml").write_text(RECIPE.replace("tiny", "lost"))
    (place.path / "lost.onnx").write_text("no model")
    words = ["lost.yaml", "tiny.yaml", "--cache", "cache"]
    assert main(words) == ExitCode.INVALID
    said = capsys.readouterr()
    assert re.sub(r"[0-9.]+ s", "T", said.out) == (
        "planning lost for host\ntiny: done, nothing to do, T\n2 recipes: 1 done, 1 not built; nothing to do, T\n"
    )
    assert "error[not-onnx]" in said.err
    assert main([*words, "--dry-run"]) == ExitCode.INVALID
    assert capsys.readouterr().out == "planning lost for host\ntiny: nothing to do\n"
    assert main([*words, "--format", "json"]) == ExitCode.INVALID
    *_, lost, tiny, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(each["event"], each["recipe"], each["exit_code"]) for each in (lost, tiny)] == [
        ("result", "lost", 3), ("result", "tiny", 0),
    ]  # fmt: skip
    assert (end["event"], end["exit_code"], end["exit_codes"]) == ("end", 3, [3, 0])


def test_other_weights_run_only_what_holds_them(place: Place) -> None:
    """No source names them: the engine takes any weights of its layout."""
    write_model(place.path / "tiny.onnx", seed=1)
    labels = ["write manifest.json", "verify against onnxruntime"]
    assert place.would_run() == (labels, ["planning tiny for host"])


def test_the_weights_are_written_by_the_build_that_follows(place: Place) -> None:
    weights = place.path / "generated" / "tiny" / "host" / "tiny.weights"
    before = weights.read_bytes()
    write_model(place.path / "tiny.onnx", seed=1)
    place.would_run()
    assert weights.read_bytes() == before
    place.pretend()
    assert weights.read_bytes() != before
    assert place.would_run() == ([], [])


@pytest.mark.parametrize(
    ("file", "labels", "said"),
    [
        ("emit/step_source.py", [], []),
        ("planner/memory.py", [], ["planning tiny for host"]),
        ("verify/tolerance.py", ["verify against onnxruntime"], []),
        ("report/explained/explain.py", [], []),
    ],
)
def test_an_edit_that_changes_no_text_runs_no_compiler(
    place: Place, monkeypatch: pytest.MonkeyPatch, file: str, labels: list[str], said: list[str]
) -> None:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(PACKAGE / file), NO_OFFERS))
    assert place.would_run() == (labels, said)


def test_an_edit_of_emission_compiles_what_it_writes_otherwise(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(PACKAGE / "emit/templates/plan.cpp.j2"), NO_OFFERS))
    as_it_was = emission.emit_runner
    monkeypatch.setattr(
        emission, "emit_runner", lambda plan: replace(as_it_was(plan), text=as_it_was(plan).text + "// more\n")
    )
    ran, said = place.would_run(certain=True)
    assert (ran, said) == (["compile runner.cpp"], [])


def test_a_planned_file_changed_by_hand_is_made_again(place: Place) -> None:
    """A source is emitted again; without its plan, or with other weights, the model is planned again."""
    host = place.path / "generated" / "tiny" / "host"
    for name, planned in (("src/plan_b1.cpp", []), ("tiny.weights", ["planning tiny for host"])):
        before = (host / name).read_bytes()
        (host / name).write_bytes(before + b" ")
        assert place.would_run() == ([], [*planned, f"{name} was changed by hand; it is made again"])
        place.pretend()
        assert (host / name).read_bytes() == before


def test_a_planned_file_that_is_gone_is_made_again_without_a_word(place: Place) -> None:
    source = place.path / "generated" / "tiny" / "host" / "src" / "plan_b1.cpp"
    before = source.read_bytes()
    source.unlink()
    assert place.would_run() == ([], [])
    place.pretend()
    assert source.read_bytes() == before


def test_sources_of_an_earlier_plan_go(place: Place) -> None:
    sources = place.path / "generated" / "tiny" / "host" / "src"
    assert (sources / "plan_b3.cpp").is_file()
    recipe = place.path / "tiny.yaml"
    recipe.write_text(recipe.read_text().replace("batch: [1, 3]", "batch: 1"))
    place.pretend()
    assert sorted(path.name for path in sources.glob("plan_*")) == ["plan_b1.cpp"]
