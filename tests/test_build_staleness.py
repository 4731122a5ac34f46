"""What a build would run after a change of the model or of bolt-build: planned for real, compiled never."""

from __future__ import annotations

from pathlib import Path

import pytest
from pretended import pretend_built
from recipe_projects import RECIPE, write_model
from test_build_own_sources import NO_ENTRIES, EditedFiles, use

from bolt_build.build.builder import BuildOptions, dry_run
from bolt_build.build.events import TaskEvent
from bolt_build.build.own_sources import PACKAGE, OwnSources
from bolt_build.schema import load_recipe


class Silent:
    """Hears what a build says, and keeps it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def start(self, recipe: str, tasks: int) -> None: ...

    def event(self, event: TaskEvent) -> None: ...

    def stop(self) -> None: ...


class Place:
    """A recipe that was built, and what a build of it would do now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "tiny.yaml").write_text(RECIPE)
        write_model(path / "tiny.onnx")
        self.options = BuildOptions(output=path / "generated", cache=path / "cache")
        pretend_built(load_recipe(path / "tiny.yaml"), self.options)

    def would_run(self, *, certain: bool = False) -> tuple[list[str], list[str]]:
        """Labels of the tasks that would run (those alone that are sure to), and what was said before."""
        listener = Silent()
        (found,) = dry_run(load_recipe(self.path / "tiny.yaml"), self.options, listener)
        return [stale.task.label for stale in found.stale if stale.certain or not certain], listener.said


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(), NO_ENTRIES))
    return Place(tmp_path)


def test_nothing_changed(place: Place) -> None:
    assert place.would_run() == ([], [])


def test_other_weights_run_only_what_holds_them(place: Place) -> None:
    """No source names them: the engine takes any weights of its layout."""
    write_model(place.path / "tiny.onnx", seed=1)
    labels = ["write tiny.weights", "write manifest.json", "verify against onnxruntime"]
    assert place.would_run() == (labels, ["planning tiny for host"])


@pytest.mark.parametrize(
    ("file", "labels", "said"),
    [
        ("emit/step_source.py", ["emit sources"], []),
        ("planner/memory.py", ["write tiny.weights"], ["planning tiny for host"]),
        ("verify/tolerance.py", ["verify against onnxruntime"], []),
        ("report/explain.py", [], []),
    ],
)
def test_an_edit_that_changes_no_text_runs_the_action_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, file: str, labels: list[str], said: list[str]
) -> None:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(PACKAGE / file), NO_ENTRIES))
    assert place.would_run(certain=True) == (labels, said)
