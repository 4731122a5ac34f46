"""What is rebuilt after an edit, and what `why` says of it: planned for real, compiled never."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pretended import pretend_built
from recipe_projects import RECIPE, write_model
from test_build_own_sources import NO_OFFERS, EditedFiles, use

from bolt_build.build import builder
from bolt_build.build.builder import BuildOptions, build
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.last_runs import LastRun
from bolt_build.build.own_code.own_sources import PACKAGE, OwnSources
from bolt_build.build.planning import preparing
from bolt_build.build.running.session import SessionResult
from bolt_build.build.staleness.changes import NEVER_BUILT
from bolt_build.build.why import ExplainedTask, why
from bolt_build.cli.main import main
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.progress import QuietProgress
from bolt_build.report.why import why_text
from bolt_build.schema.load import load_recipe

COMPILES = ("compile engine.cpp", "compile plan_b1.cpp", "compile plan_b3.cpp")
BEHIND = ("link libtiny.so", "link tiny-run", "write manifest.json", "verify against onnxruntime")
RUNTIME = "compile core.cpp"
KERNELS = "compile operators.cpp"


@dataclass(frozen=True)
class Place:
    """A recipe that was built, and what is said of its tasks now."""

    path: Path

    @property
    def options(self) -> BuildOptions:
        return BuildOptions(output=self.path / "generated", cache=self.path / "cache")

    def asked(self, what: str | None = None) -> tuple[ExplainedTask, ...]:
        words = () if what is None else (what,)
        return why([load_recipe(self.path / "tiny.yaml")], self.options, QuietProgress(), words).tasks

    def stale(self) -> dict[str, tuple[str, ...]]:
        """Labels of the tasks that would run, with the reasons, without the folder."""
        return {
            each.task.label: tuple(reason.replace(f"{self.path}/", "") for reason in each.stale.reasons)
            for each in self.asked()
            if each.stale is not None
        }

    def replace(self, old: str, new: str) -> None:
        assert old in RECIPE
        (self.path / "tiny.yaml").write_text(RECIPE.replace(old, new))

    def touch(self, name: str, text: str = "") -> None:
        (self.path / name).write_text(text)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planned once; every test has it anew in the same place, as plans know where they lie."""
    path = tmp_path_factory.mktemp("why") / "here"
    path.mkdir()
    (path / "tiny.yaml").write_text(RECIPE)
    write_model(path / "tiny.onnx")
    place = Place(path)
    pretend_built(load_recipe(path / "tiny.yaml"), place.options)
    shutil.copytree(path, path.with_name("as it was"))
    return path


@pytest.fixture
def place(built: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(), NO_OFFERS))
    shutil.rmtree(built)
    shutil.copytree(built.with_name("as it was"), built)
    return Place(built)


Edit = Callable[[Place, pytest.MonkeyPatch], None]


def text(old: str, new: str) -> Edit:
    return lambda place, monkeypatch: place.replace(old, new)


def weights(*, all: bool) -> Edit:
    def edit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        if all:
            write_model(place.path / "tiny.onnx", seed=1)
            return
        import onnx
        from onnx import numpy_helper

        model = onnx.load(str(place.path / "tiny.onnx"))
        bias = next(each for each in model.graph.initializer if each.name == "b1")
        bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, "b1"))
        onnx.save(model, str(place.path / "tiny.onnx"))

    return edit


def layers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    model = onnx.load(str(place.path / "tiny.onnx"))
    next(node for node in model.graph.node if node.name == "relu2").op_type = "Sigmoid"
    onnx.save(model, str(place.path / "tiny.onnx"))


def source(file: str) -> Edit:
    def edit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        use(monkeypatch, OwnSources(PACKAGE, EditedFiles(PACKAGE / file), NO_OFFERS))

    return edit


def tool(name: str, version: str, digest: str) -> Edit:
    def edit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        as_it_was = preparing.probe

        def probe(names: object) -> object:
            found = as_it_was(names)  # type: ignore[arg-type]
            tools = (replace(t, version=version, digest=digest) if t.name == name else t for t in found.tools)
            return replace(found, tools=tuple(tools))

        class Preparer(preparing.Preparer):
            def __init__(self, *given: object, **more: object) -> None:
                super().__init__(*given, find_tools=probe, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(builder, "Preparer", Preparer)

    return edit


POLICY = "policy.fusion.epilogue changed (tiny.yaml:5): true -> false"
OTHER_BATCH = "model.batch changed (tiny.yaml:3): [1, 3] -> [1, 4]"
EDITS: dict[str, tuple[Edit, dict[str, tuple[str, ...]]]] = {
    "a comment": (text("bolt: 1", "# tiny\nbolt: 1"), {}),
    "nothing": (lambda place, monkeypatch: None, {}),
    "the tolerance": (
        text("samples: 2", "samples: 2, tolerance: 1e-2"),
        {BEHIND[3]: ("verify.tolerance changed (tiny.yaml:6): null -> 0.01",)},
    ),
    "the policy": (text("epilogue: true", "epilogue: false"), dict.fromkeys((*COMPILES, *BEHIND), (POLICY,))),
    "a policy at its default": (text("epilogue: true}", "epilogue: true}, padding: {mode: auto}"), {}),
    "candidates": (text("verify:", "tuning: {candidates: 3}\nverify:"), {}),
    "one weight": (weights(all=False), dict.fromkeys(BEHIND[2:], ("tiny.onnx: weights alone",))),
    "all weights": (weights(all=True), dict.fromkeys(BEHIND[2:], ("tiny.onnx: weights alone",))),
    "a layer": (layers, dict.fromkeys((*COMPILES, *BEHIND), ("tiny.onnx: other layers or shapes",))),
    "an emitter that writes the same": (source("emit/step_source.py"), {}),
    "what verifies": (source("verify/tolerance.py"), {BEHIND[3]: ("bolt-build itself changed",)}),
    "a template": (
        source("families/onednn/include/bolt_onednn/conv.h"),
        dict.fromkeys((KERNELS, "compile runner.cpp", *COMPILES, *BEHIND), ("bolt-build itself changed",)),
    ),
    "an operator": (
        source("graph/ops/lines/softmax.py"), dict.fromkeys(BEHIND[3:], ("bolt-build itself changed",)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_rebuilt_and_why(edit: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    change, expected = EDITS[edit]
    change(place, monkeypatch)
    assert place.stale() == expected


def test_another_compiler_rebuilds_all_that_it_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = json.loads((place.path / "generated/tiny/host/plan.json").read_text())["facts"]["tools"]
    (before,) = (known["version"] for known in tools if known["name"] == "cxx")
    tool("cxx", "99.1", "d" * 64)(place, monkeypatch)
    found = place.stale()
    assert {*COMPILES, RUNTIME, *BEHIND[:2]} <= set(found)
    assert found[RUNTIME] == (f"the C++ compiler changed {before} -> 99.1",)


def test_another_onednn_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("onednn", "99.1", "d" * 64)(place, monkeypatch)
    found = place.stale()
    assert RUNTIME not in found
    assert found[KERNELS][0].startswith("oneDNN changed ")


def test_another_batch_makes_one_plan_more(place: Place) -> None:
    place.replace("[1, 3]", "[1, 4]")
    found = place.stale()
    assert found["compile plan_b4.cpp"] == ("not built yet",)
    assert {found[label] for label in ("compile engine.cpp", *BEHIND)} == {(OTHER_BATCH,)}
    assert not {"compile plan_b1.cpp", RUNTIME} & set(found)


def test_a_build_that_was_cut_off_goes_on_for_the_reason_it_began_for(place: Place) -> None:
    """Its first tasks are done, `engine.o` among them; the plan that it began with lies there."""
    place.replace("epilogue: true", "epilogue: false")
    begun = load_recipe(place.path / "tiny.yaml")
    labels = [each.task.label for each in place.asked()]
    pretend_built(begun, place.options, cut_off=labels.index(COMPILES[1]))
    assert place.stale() == dict.fromkeys((*COMPILES[1:], *BEHIND), (POLICY,))


def test_a_renamed_recipe_is_another_engine(place: Place) -> None:
    place.replace("name: tiny", "name: other")
    found = place.stale()
    assert found.pop(BEHIND[3]) == ("not verified yet",)
    assert set(found.values()) == {("not built yet",)}


def test_a_checkout_that_was_moved_builds_nothing(place: Place, tmp_path: Path) -> None:
    """Its plan is written again, as paths stand in it."""
    moved = Place(tmp_path / "moved")
    shutil.copytree(place.path, moved.path)
    assert moved.stale() == {}


@pytest.mark.parametrize("what", ["conv1", "relu1"])
def test_a_layer_is_in_the_plan_of_each_batch(what: str, place: Place) -> None:
    place.replace("epilogue: true", "epilogue: false")
    assert [(each.task.label, each.stale is not None) for each in place.asked(what)] == [
        ("compile plan_b1.cpp", True), ("compile plan_b3.cpp", True),
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["link-library", "link libtiny.so", "libtiny.so"])
def test_a_task_is_known_by_its_name_its_label_and_its_file(what: str, place: Place) -> None:
    (found, *_) = place.asked(what)
    assert found.task.label == "link libtiny.so"


def test_what_there_is_not_is_refused_with_what_was_meant(place: Place) -> None:
    with pytest.raises(BoltError) as raised:
        place.asked("conv11")
    (said,) = raised.value.diagnostics
    assert (said.code, said.hint, raised.value.exit_code) == ("unknown-task", "did you mean 'conv1'?", ExitCode.USAGE)
    assert said.message == f"{place.path}/tiny.yaml has no task, file or layer 'conv11'"


def test_the_line_of_a_task_that_runs_and_later_why_have_the_same_reasons(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.replace("samples: 2", "samples: 3")
    reason = f"verify.samples changed ({place.path}/tiny.yaml:6): 2 -> 3"
    told: list[TaskEvent] = []
    ran = TaskEvent(EventKind.FINISHED, "host", "verify", BEHIND[3], 1.25)

    def run_session(*given: object) -> SessionResult:
        given[-1](ran)  # type: ignore[operator]
        return SessionResult(interrupted=False, failed=(), finished=(ran,))

    class Kept(QuietProgress):
        def event(self, event: TaskEvent) -> None:
            told.append(event)

    monkeypatch.setattr(builder, "run_session", run_session)
    recipe = load_recipe(place.path / "tiny.yaml")
    result = build(recipe, place.options, Kept())
    assert [event.reasons for event in (*told, *result.finished)] == [(reason,), (reason,)]
    pretend_built(recipe, place.options)
    (found,) = place.asked("verify")
    first = replace(found, last=LastRun("verify", (NEVER_BUILT,), 1.25, False))
    assert why_text([first]) == "tiny/host: verify against onnxruntime: up to date; ran 1.2 s last: not built before\n"
    assert why_text([found]) == (f"tiny/host: verify against onnxruntime: up to date; ran 1.2 s last: {reason}\n")


def test_the_verb_says_what_would_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.path)
    words = ["why", "tiny.yaml", "--cache", str(place.path / "cache")]
    assert main([*words, "--set", "verify.samples=7"]) == ExitCode.OK
    said = "tiny/host: verify against onnxruntime: would run: verify.samples changed (--set:1): 2 -> 7\n"
    assert capsys.readouterr().out == said
    assert main([*words, "verify.json", "--format", "json"]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["task"], found["would_run"], found["last"]) == ("verify", False, None)
    assert main([*words, "verify.json"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("up to date; why it ran last is not known\n")


def test_recipes_that_are_built_together_are_asked_together(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.path)
    (place.path / "other.yaml").write_text(RECIPE.replace("name: tiny", "name: other"))
    (place.path / "conv1").mkdir()
    options = ["--cache", str(place.path / "cache"), "--set", "verify.samples=7"]
    assert main(["why", ".", *options]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "other/host: compile engine.cpp: would run: not built yet" in lines
    assert lines[-1] == "tiny/host: verify against onnxruntime: would run: verify.samples changed (--set:1): 2 -> 7"
    assert main(["why", "tiny.yaml", "verify", "conv1", "other.yaml", *options]) == ExitCode.OK
    assert [line.split(": ")[:2] for line in capsys.readouterr().out.splitlines()] == [
        [f"{name}/host", task]
        for name in ("tiny", "other")
        for task in ("compile plan_b1.cpp", "compile plan_b3.cpp", "verify against onnxruntime")
    ]
    assert main(["why", "tiny.yaml", "other.yaml", "verify", "cnov1", "qqq", *options]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "planning other for host\n"
        "error[unknown-task]: none of 2 recipes has a task, file or layer 'cnov1'\n"
        "  hint: did you mean 'conv1'?\n"
        "error[unknown-task]: none of 2 recipes has a task, file or layer 'qqq'\n"
        "  hint: 'bolt-build why RECIPE' lists the tasks, 'plan' the layers\n"
    )


def test_a_task_that_two_targets_have_is_taken_from_the_first(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.path)
    for name in ("one", "two"):
        (place.path / f"{name}.yaml").write_text(RECIPE.replace("name: tiny", f"name: {name}"))
    assert main(["why", "one.yaml", "two.yaml", RUNTIME, "--cache", str(place.path / "empty")]) == ExitCode.OK
    assert capsys.readouterr().out == (
        f"one/host: {RUNTIME}: would run: not built yet\n"
        f"two/host: {RUNTIME}: would be taken from one/host: not built yet\n"
    )


def test_recipes_of_which_nothing_can_be_said_keep_nothing_from_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.path)
    (place.path / "other.yaml").write_text(RECIPE.replace("name: tiny", "name: other").replace("tiny.onnx", "o.onnx"))
    (place.path / "o.onnx").write_bytes(b"no model")
    assert main(["why", "other.yaml", "tiny.yaml", "verify", "--cache", str(place.path / "cache")]) == ExitCode.INVALID
    said = capsys.readouterr()
    assert said.out == "tiny/host: verify against onnxruntime: up to date; why it ran last is not known\n"
    assert said.err == (
        "planning other for host\n"
        f"other.yaml:3:15: error[not-onnx]: '{place.path}/o.onnx' cannot be parsed as an ONNX file\n"
        "  3 | model: {onnx: o.onnx, batch: [1, 3]}\n"
        "    |               ^^^^^^ it may be truncated; export or download it again\n"
    )
