"""Builds from a lock: what is planned again and what is not, what is said of a lock that is missing, stale, foreign or
has gaps, and what `--locked` refuses. Nothing is compiled here, and no GPU is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tuning_evidence import H200, ok

from bolt_build.build.builder import BuildOptions
from bolt_build.build.engine_planning import parse
from bolt_build.build.planning import PlannedTarget, Planner
from bolt_build.cli.main import main
from bolt_build.emit.manifest import embedded_manifest
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.planner.plan_engine import plan_engine, search_spaces
from bolt_build.planner.selection import ChosenCover
from bolt_build.planner.tuning_set import TuningSet, tuning_set
from bolt_build.schema import load_recipe
from bolt_build.targets import target_named
from bolt_build.toolchain import Tool, Toolchain
from bolt_build.tuning.lock import Lock, LockedEngine, LockedTarget, load_lock, lock_from, lock_text
from bolt_build.tuning.record import Device, Fingerprint, TuningTools
from bolt_build.tuning.select import select

RECIPE = """\
bolt: 1
model: {onnx: net.onnx, batch: [1, 4]}
targets: {h200: {precision: fp16}}
tuning: {lock: net.lock.yaml}
"""
TUNE = "bolt-build tune net.yaml --target h200"
TOOLS = Toolchain(
    (
        Tool("cxx", "/usr/bin/g++", "12", "c"),
        Tool("nvcc", "/cuda/bin/nvcc", "13.0.88", "n", ("/cuda/include",), ("/cuda/lib",)),
        Tool("cutlass", "/cutlass/include", "4.2.0.0", "u", ("/cutlass/include",)),
    )
)
FLAGS = " ".join(target_named("h200").compile_flags)
HERE = TuningTools("13.0.88", "4.2.0.0", FLAGS, "f00d" * 16)


def write_model(path: Path, channels: int = 16) -> None:
    """Two 3x3 convolutions with ReLU and a third of its own size."""
    sizes = ((channels, channels), (channels, channels), (2 * channels, channels))
    weights = [
        numpy_helper.from_array(np.full((k, c, 3, 3), 0.1, np.float32), f"w{index}")
        for index, (k, c) in enumerate(sizes)
    ]  # fmt: skip
    nodes = []
    for index in range(len(sizes)):
        source = f"r{index - 1}" if index else "x"
        nodes.append(helper.make_node("Conv", [source, f"w{index}"], [f"c{index}"], f"conv{index}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], f"relu{index}"))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, 14, 14])]
    outputs = [helper.make_tensor_value_info("r2", TensorProto.FLOAT, ["N", 2 * channels, 14, 14])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@dataclass
class Net:
    """A recipe with a model, in the current directory."""

    tools: Toolchain = TOOLS
    said: list[str] = field(default_factory=list)

    def planner(self, **more: bool) -> Planner:
        recipe = load_recipe(Path("net.yaml"))
        directory = BuildOptions().directory(recipe)
        return Planner(recipe, directory, self.said.append, self._probe, lambda target: "no GPU here", **more)

    def _probe(self, names: Sequence[str]) -> Toolchain:
        return self.tools

    def plan(self, **more: bool) -> PlannedTarget:
        """Plan as a build does, and leave the plan where the next one finds it."""
        planner = self.planner(**more)
        planned = planner.plan(planner.recipe.targets[0])
        planned.write()
        return planned

    def refused(self) -> tuple[Diagnostic, ...]:
        with pytest.raises(BoltError) as raised:
            self.plan(locked=True)
        assert raised.value.exit_code is ExitCode.LOCK
        return raised.value.diagnostics

    def problems(self) -> TuningSet:
        planner = self.planner()
        recipe, spec, target = planner.recipe, planner.recipe.targets[0], target_named("h200")
        graphs = [parse(planner.model.path).bind(batch, ()) for batch in recipe.model.batch]
        spaces = search_spaces(graphs, recipe, spec, target, load(target))
        return tuning_set(spaces, load(target), target, 3)

    def tuned(
        self, fastest: int = 1, device: Device = H200, tools: TuningTools = HERE, without: Callable[[str], bool] = bool
    ) -> LockedTarget:
        """A lock's part in which the candidate in this place of the prediction is the fastest, but for problems that
        occur `without` a measurement."""
        found = self.problems()
        records = [
            (Fingerprint(device, tools), ok(each.problem.digest, trial.candidate, 5.0 if index == fastest else 9.0))
            for each in found.problems
            if without is bool or not any(map(without, each.occurs))
            for index, trial in enumerate(each.trials)
        ]
        planner, target = self.planner(), target_named("h200")
        graphs = [parse(planner.model.path).bind(batch, ()) for batch in planner.recipe.model.batch]
        engine = plan_engine(
            graphs, planner.recipe, planner.recipe.targets[0], target, load(target), select(found, records)
        )
        return lock_from(found, records, engine.covers)

    def lock(self, *parts: LockedTarget) -> None:
        Path("net.lock.yaml").write_text(lock_text(Lock(parts)))

    def kernels(self, planned: PlannedTarget) -> list[str]:
        plan, _ = planned.emission_inputs()
        return [f"{step.name}: {step.candidate}" for step in plan.plans[0].steps if step.candidate.family == "cutlass"]


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(RECIPE)
    write_model(Path("net.onnx"))
    return Net()


def codes(found: Sequence[Diagnostic]) -> list[str]:
    return [each.code for each in found]


def test_the_engine_has_the_kernels_of_the_lock_and_says_so(net: Net) -> None:
    part = net.tuned()
    predicted = net.kernels(net.plan())
    net.lock(part)
    planned = net.plan(locked=True)
    assert planned.notes == ()
    assert planned.warnings == ()
    assert planned.kernels is not None
    assert vars(planned.kernels) == {
        "source": "lock", "lock": "net.lock.yaml", "gpu": "NVIDIA H200", "stale": False, "predicted": 0,
    }  # fmt: skip
    winners = {entry.problem: entry.winner for entry in part.entries}
    plan, facts = planned.emission_inputs()
    for step in (step for batch in plan.plans for step in batch.steps if not step.view):
        assert step.candidate == winners[step.problem.digest]
    assert net.kernels(planned) != predicted
    statement = json.loads(embedded_manifest(plan, facts))["predicate"]["buildDefinition"]["internalParameters"]
    assert statement["tuning"] == {
        "source": "lock", "lock": "net.lock.yaml", "gpu": "NVIDIA H200", "stale": False, "predicted": 0,
    }  # fmt: skip


def test_without_a_lock_kernels_are_predicted_and_that_is_said(net: Net) -> None:
    planned = net.plan()
    assert planned.notes == (
        f"net/h200: kernels chosen by prediction: net.lock.yaml is not there yet; tune with: {TUNE}",
    )
    assert planned.warnings == ()
    plan, facts = planned.emission_inputs()
    statement = json.loads(embedded_manifest(plan, facts))["predicate"]["buildDefinition"]["internalParameters"]
    assert statement["tuning"] == {"source": "predictions"}


@pytest.mark.parametrize(
    ("recipe", "lock", "why"),
    [
        (RECIPE.replace("tuning: {lock: net.lock.yaml}\n", ""), None, "the recipe names no lock"),
        (RECIPE, "lock: 1\ntargets: {}\n", "net.lock.yaml has nothing for it"),
    ],
)
def test_why_there_is_nothing_to_choose_from(net: Net, recipe: str, lock: str | None, why: str) -> None:
    Path("net.yaml").write_text(recipe)
    if lock is not None:
        Path("net.lock.yaml").write_text(lock)
    assert net.plan().notes == (f"net/h200: kernels chosen by prediction: {why}; tune with: {TUNE}",)


def test_a_cpu_has_nothing_to_tune(net: Net) -> None:
    Path("net.yaml").write_text(RECIPE.replace("h200: {precision: fp16}", "host: "))
    net.tools = Toolchain((*TOOLS.tools[:1], Tool("onednn", "/dnnl.so", "3.2", "d")))
    planned = net.plan(locked=True)
    assert (planned.notes, planned.warnings, planned.kernels) == ((), (), None)


def test_what_changes_nothing_for_the_engine_plans_nothing(net: Net) -> None:
    net.lock(net.tuned())
    assert net.plan().fresh
    text = Path("net.lock.yaml").read_text()
    for changed in (
        text.replace("lock: 1\n", "# A remark.\nlock: 1\n"),
        text.replace("predicted: ", "predicted: 1"),
        text + text.partition("targets:\n")[2].replace("  h200:\n", "  l4:\n"),
    ):
        Path("net.lock.yaml").write_text(changed)
        assert not net.plan().fresh
    part = load_lock(Path("net.lock.yaml")).targets[0]
    net.lock(replace(part, entries=(*part.entries, replace(part.entries[0], problem="0" * 64))))
    assert not net.plan().fresh
    for key in ("candidates: 3", "budget: 90s", "foreign: true", "engine: false"):
        Path("net.yaml").write_text(RECIPE.replace("{lock", f"{{{key}, lock"))
        assert net.said[-1] == "planning net for h200"
        count = len(net.said)
        net.plan()
        assert len(net.said) == count


def test_another_winner_is_planned(net: Net) -> None:
    net.lock(net.tuned(fastest=1))
    first = net.kernels(net.plan())
    net.lock(net.tuned(fastest=2))
    again = net.plan()
    assert again.fresh
    assert net.kernels(again) != first
    Path("net.lock.yaml").unlink()
    assert net.plan().fresh


def whole_engine(part: LockedTarget, *swaps: tuple[str, Candidate, float]) -> LockedTarget:
    """The lock's part with swaps in the engine of batch 1."""
    (cover,) = [cover for cover in part.covers if cover.batch == 1]
    name = part.fingerprints[0][0]
    return replace(part, engines=(LockedEngine(1, cover.graph, "e" * 64, 50.0, 45.0, 0.1, 3, swaps, name),))


def test_what_the_whole_engine_is_faster_with_is_planned_and_locked(net: Net) -> None:
    part = net.tuned(fastest=1)
    net.lock(part)
    alone = net.plan(locked=True)
    swapped = next(entry for entry in part.entries if entry.winner.family == "cutlass" and entry.what.find("[1,") > 0)
    trials = next(each for each in net.problems().problems if each.problem.digest == swapped.problem).trials
    other = next(trial.candidate for trial in trials if trial.candidate not in (swapped.winner,))
    net.lock(whole_engine(part, (swapped.problem, other, 9.0)))
    planned = net.plan(locked=True)
    assert planned.fresh
    assert not net.plan(locked=True).fresh
    plan, _ = planned.emission_inputs()
    kernels = {step.problem.digest: step.candidate for batch in plan.plans for step in batch.steps if not step.view}
    assert kernels[swapped.problem] == other
    assert [kernel for problem, kernel in kernels.items() if problem != swapped.problem] == [
        entry.winner for problem in kernels if problem != swapped.problem
        for entry in part.entries if entry.problem == problem
    ]  # fmt: skip
    assert net.kernels(planned) != net.kernels(alone)
    kept = json.loads((planned.directory.path / "selection.json").read_text())
    assert [len(each["swaps"]) for each in kept["engines"]] == [1]
    net.lock(whole_engine(part))
    assert net.kernels(net.plan(locked=True)) == net.kernels(alone)


def without_a_node(cover: ChosenCover) -> ChosenCover:
    return replace(cover, alternatives=cover.alternatives[1:])


@pytest.mark.parametrize(
    ("change", "batches", "reason"),
    [
        (lambda cover: None, (1, 4), "it has none for this batch"),
        (lambda cover: cover if cover.batch == 1 else None, (4,), "it has none for this batch"),
        (lambda cover: replace(cover, graph="0" * 64), (1, 4), "it was found for another graph"),
        (
            lambda cover: without_a_node(cover) if cover.batch == 4 else cover, (4,),
            "no family offers every node as it was chosen",
        ),
    ],
    ids=["none", "not of all batches", "another graph", "not of all nodes"],
)  # fmt: skip
def test_a_cover_that_is_not_the_lock_s_is_a_warning_and_refused_where_it_must_be(
    net: Net, change: Callable[[ChosenCover], ChosenCover | None], batches: Sequence[int], reason: str
) -> None:
    part = net.tuned()
    found = [change(cover) for cover in part.covers]
    net.lock(replace(part, covers=tuple(cover for cover in found if cover is not None)))
    messages = [
        f"the cover of batch {batch} of 'h200' is not taken from net.lock.yaml: {reason}" for batch in batches
    ]  # fmt: skip
    for fresh in (True, False):
        planned = net.plan()
        assert planned.fresh is fresh
        assert [(each.code, each.severity, each.message) for each in planned.warnings] == [
            ("cover-not-locked", "warning", message) for message in messages
        ]
    refused = net.refused()
    assert [(each.code, each.severity, each.message) for each in refused] == [
        ("cover-not-locked", "error", message) for message in messages
    ]
    for each in (*planned.warnings, *refused):
        assert each.hint == f"tune with: {TUNE}"
        assert each.mark is not None
        assert (each.mark.file, each.mark.line) == ("net.yaml", 4)
    net.lock(part)
    assert net.plan(locked=True).warnings == ()


def test_the_whole_engine_s_kernels_that_are_not_taken_are_a_warning_and_refused(net: Net) -> None:
    part = net.tuned()
    swapped = next(entry for entry in part.entries if entry.winner.family == "cutlass" and entry.what.find("[1,") > 0)
    assert swapped.runner_up is not None
    locked = whole_engine(part, (swapped.problem, swapped.runner_up, 9.0))
    net.lock(replace(locked, engines=tuple(replace(engine, graph="0" * 64) for engine in locked.engines)))
    message = (
        "the whole engine's kernels of batch 1 of 'h200' are not taken from net.lock.yaml: "
        "they were measured in another graph"
    )
    for fresh in (True, False):
        planned = net.plan()
        assert planned.fresh is fresh
        (warning,) = planned.warnings
        assert (warning.code, warning.severity, warning.message) == ("engine-not-locked", "warning", message)
    (error,) = net.refused()
    assert (error.code, error.severity, error.message) == ("engine-not-locked", "error", message)
    assert (error.hint, error.mark) == (f"tune with: {TUNE}", warning.mark)
    # Without what does not fit, and with what does, there is nothing to say.
    for good in (part, locked):
        net.lock(good)
        planned = net.plan(locked=True)
        assert planned.fresh
        assert planned.warnings == ()


def test_the_weights_are_planned_with_the_same_choice(net: Net) -> None:
    """`selection.json` holds of the lock what this engine can take."""
    part = net.tuned()
    net.lock(replace(part, entries=(*part.entries, replace(part.entries[0], problem="f" * 64))))
    planned = net.plan()
    kept = json.loads((planned.directory.path / "selection.json").read_text())
    assert kept["source"] == "net.lock.yaml"
    assert [each["problem"] for each in kept["winners"]] == [entry.problem for entry in part.entries]
    assert [each["batch"] for each in kept["covers"]] == [1, 4]


def test_a_lock_with_gaps_is_a_warning_and_refused_where_it_must_be_whole(net: Net) -> None:
    net.lock(net.tuned(without=lambda place: "relu2" in place))
    (warning,) = net.plan().warnings
    assert (warning.code, warning.severity) == ("incomplete-lock", "warning")
    assert warning.message == "2 of 8 kernels of 'h200' are not in net.lock.yaml, and chosen by prediction"
    assert warning.hint == f"tune with: {TUNE}"
    assert warning.mark is not None
    assert (warning.mark.file, warning.mark.line) == ("net.yaml", 4)
    found = net.refused()
    assert codes(found) == ["incomplete-lock", "not-locked", "not-locked"]
    assert found[0].message == "2 of 8 kernels of 'h200' are not in net.lock.yaml"
    assert sorted(str(each.subject) for each in found[1:]) == ["net/h200: batch 1: relu2", "net/h200: batch 4: relu2"]
    assert all(each.message.startswith("no measured kernel for conv(f16[") for each in found[1:])


def test_without_a_lock_every_problem_is_named(net: Net) -> None:
    found = net.refused()
    assert codes(found)[:1] == ["no-lock"]
    assert found[0].message == "kernels of 'h200' are not locked: net.lock.yaml is not there yet"
    assert set(codes(found)[1:]) == {"not-locked"}
    places = {place.strip() for each in found[1:] for place in str(each.subject).split(": ", 1)[1].split(",")}
    assert places >= {f"batch {batch}: relu{index}" for batch in (1, 4) for index in range(3)}


def test_a_recipe_without_a_lock_is_told_how_to_name_one(net: Net) -> None:
    Path("net.yaml").write_text(RECIPE.replace("tuning: {lock: net.lock.yaml}\n", ""))
    assert net.refused()[0].hint == f"name one with 'tuning: {{lock: FILE}}', and tune with: {TUNE}"


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (replace(HERE, cuda="12.9.1"), "CUDA 12.9.1, not 13.0.88"),
        (replace(HERE, cutlass="4.1.0.0"), "CUTLASS 4.1.0.0, not 4.2.0.0"),
        (replace(HERE, flags="-O2"), f"flags -O2, not {FLAGS}"),
    ],
)
def test_another_toolchain_is_a_warning_and_refused_where_it_must_be_the_same(
    net: Net, tools: TuningTools, why: str
) -> None:
    net.lock(net.tuned(tools=tools))
    planned = net.plan()
    (warning,) = planned.warnings
    assert (warning.code, warning.severity) == ("stale-lock", "warning")
    assert warning.message == f"8 of 8 kernels of 'h200' were measured with {why}"
    assert planned.kernels is not None
    assert planned.kernels.stale
    assert [(each.code, each.severity) for each in net.refused()] == [("stale-lock", "error")]


def test_other_headers_of_the_kernels_leave_a_lock_good(net: Net) -> None:
    net.lock(net.tuned(tools=replace(HERE, kernels="0" * 64)))
    assert net.plan(locked=True).warnings == ()


def test_a_toolchain_that_comes_later_makes_what_is_planned_stale(net: Net) -> None:
    net.lock(net.tuned())
    net.plan(locked=True)
    net.tools = Toolchain((TOOLS.tools[0], replace(TOOLS.tools[1], version="13.1.0", digest="m"), TOOLS.tools[2]))
    assert codes(net.refused()) == ["stale-lock"]


def test_another_gpu_s_kernels_are_refused_unless_the_recipe_allows_them(net: Net) -> None:
    net.lock(net.tuned(device=replace(H200, name="NVIDIA H100 80GB HBM3")))
    with pytest.raises(BoltError) as raised:
        net.plan()
    (found,) = raised.value.diagnostics
    assert found.code == "foreign-lock"
    assert found.message == "the kernels of 'h200' in net.lock.yaml were measured on NVIDIA H100 80GB HBM3"
    assert found.hint == "tune on the target's GPU, or take them all the same with 'tuning: {foreign: true}'"
    assert found.mark is not None
    assert (found.mark.file, found.mark.line) == ("net.yaml", 4)
    Path("net.yaml").write_text(RECIPE.replace("{lock", "{foreign: true, lock"))
    planned = net.plan(locked=True)
    assert planned.kernels is not None
    assert planned.kernels.gpu == "NVIDIA H100 80GB HBM3"


def test_another_model_does_not_take_the_cover(net: Net) -> None:
    net.lock(net.tuned())
    write_model(Path("net.onnx"), channels=32)
    plan, _ = net.plan().emission_inputs()
    assert [d.reason for d in plan.decisions if d.action == "declined the cover of net.lock.yaml"] == [
        "it was found for another graph"
    ] * 2


@pytest.fixture
def command(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Net:
    """`bolt-build` with these tools and no GPU."""
    planner = partial(Planner, find_tools=lambda names: net.tools, why_not_here=lambda target: "no GPU here")
    monkeypatch.setattr("bolt_build.build.builder.Planner", planner)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return net


def test_the_dry_run_of_a_build_without_a_lock_says_how_to_tune(
    command: Net, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["net.yaml", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"net/h200: kernels chosen by prediction: net.lock.yaml is not there yet; tune with: {TUNE}\n" in said


def test_the_command_line_ends_with_6_where_it_must_be_locked(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    command.lock(command.tuned(without=lambda place: "batch 4: relu2" in place))
    for words in (["net.yaml", "--locked"], ["build", "net.yaml", "--locked"], ["net.yaml", "--locked", "--dry-run"]):
        assert main(words) == ExitCode.LOCK
        assert (
            capsys.readouterr().err
            == """\
net.yaml:4:16: error[incomplete-lock]: 1 of 8 kernels of 'h200' are not in net.lock.yaml
  4 | tuning: {lock: net.lock.yaml}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
net/h200: batch 4: relu2: error[not-locked]: no measured kernel for \
conv(f16[4,16,14,14] channels_last, f16[32,16,3,3]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] \
| relu -> f16[4,32,14,14] channels_last
"""
        )
    assert not Path("generated/net/h200").exists()


def test_the_command_line_ends_with_6_where_the_lock_s_plan_is_not_taken(
    command: Net, capsys: pytest.CaptureFixture[str]
) -> None:
    part = command.tuned()
    swapped = next(entry for entry in part.entries if entry.winner.family == "cutlass" and entry.what.find("[1,") > 0)
    assert swapped.runner_up is not None
    locked = whole_engine(part, (swapped.problem, swapped.runner_up, 9.0))
    command.lock(replace(locked, covers=tuple(cover for cover in locked.covers if cover.batch == 4)))
    assert main(["net.yaml", "--locked"]) == ExitCode.LOCK
    said = """\
net.yaml:4:16: {severity}[cover-not-locked]: the cover of batch 1 of 'h200' is not taken from net.lock.yaml: \
it has none for this batch
  4 | tuning: {{lock: net.lock.yaml}}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
net.yaml:4:16: {severity}[engine-not-locked]: the whole engine's kernels of batch 1 of 'h200' are not taken from \
net.lock.yaml: they were measured with its cover
  4 | tuning: {{lock: net.lock.yaml}}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
"""
    assert capsys.readouterr().err == said.format(severity="error")
    assert not Path("generated/net/h200").exists()
    assert main(["net.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().err == said.format(severity="warning")


def test_every_target_that_is_not_locked_is_named(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(RECIPE.replace("{h200:", "{a100: {precision: fp16}, h200:"))
    assert main(["net.yaml", "--locked", "--format", "json"]) == ExitCode.LOCK
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert data["exit_code"] == 6
    assert {each["message"] for each in data["diagnostics"] if each["code"] == "no-lock"} == {
        f"kernels of '{name}' are not locked: net.lock.yaml is not there yet" for name in ("a100", "h200")
    }


def test_the_dry_run_has_the_warnings_in_both_forms(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    command.lock(command.tuned(tools=replace(HERE, cuda="12.9.1")))
    assert main(["net.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == (
        "net.yaml:4:16: warning[stale-lock]: 8 of 8 kernels of 'h200' were measured with CUDA 12.9.1, not 13.0.88"
    )
    assert main(["net.yaml", "--dry-run", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [each["code"] for each in data["diagnostics"]] == ["stale-lock"]


def test_a_lock_that_is_none_is_said_with_its_place(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.lock.yaml").write_text("lock: 1\ntarget: {}\n")
    assert main(["net.yaml", "--dry-run"]) == ExitCode.INVALID
    assert (
        capsys.readouterr().err
        == """\
net.lock.yaml:1:1: error[missing-key]: a lock needs the key 'targets'
  1 | lock: 1
    | ^
net.lock.yaml:2:1: error[unknown-key]: 'target' is not a key of a lock
  2 | target: {}
    | ^^^^^^ did you mean 'targets'?
"""
    )
