"""Builds from a lock: what is planned again and what is not, what is said of a lock that is missing, stale, foreign or
has gaps, and what `--locked` refuses. Nothing is compiled here, and no GPU is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from locked_net import FLAGS, HERE, RECIPE, TOOLS, TUNE, Net, carried_manifest, codes, new_net, written_plan
from tuning_evidence import H200

from bolt_build.errors import BoltError
from bolt_build.lockfile.fingerprint import TuningTools
from bolt_build.lockfile.reading import load_lock
from bolt_build.toolchain import Tool, Toolchain


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.chdir(tmp_path)
    return new_net()


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
    plan = written_plan(planned)
    for step in (step for batch in plan.plans for step in batch.steps if not step.view):
        assert step.candidate == winners[step.problem.digest]
    assert net.kernels(planned) != predicted
    manifest = carried_manifest(planned)
    statement = manifest["predicate"]["buildDefinition"]["internalParameters"]
    assert statement["tuning"] == {
        "source": "lock", "lock": "net.lock.yaml", "gpu": "NVIDIA H200", "stale": False, "predicted": 0,
    }  # fmt: skip


def test_without_a_lock_kernels_are_predicted_and_that_is_said(net: Net) -> None:
    planned = net.plan()
    assert planned.notes == (
        f"net/h200: kernels chosen by prediction: net.lock.yaml is not there yet; tune with: {TUNE}",
    )
    assert planned.warnings == ()
    manifest = carried_manifest(planned)
    statement = manifest["predicate"]["buildDefinition"]["internalParameters"]
    assert statement["tuning"] == {"source": "predictions"}


def test_a_lock_that_is_a_link_to_what_is_not_there_is_said_to_be_one(net: Net) -> None:
    Path("net.lock.yaml").symlink_to("store/net.lock")
    why = "net.lock.yaml is a link to store/net.lock, which is not there"
    assert net.plan().notes == (f"net/h200: kernels chosen by prediction: {why}; tune with: {TUNE}",)


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
        text.replace("lock: 3\n", "# A remark.\nlock: 3\n"),
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


def test_a_lock_that_is_not_there_is_one_cause(net: Net) -> None:
    (found,) = net.refused()
    assert found.code == "no-lock"
    assert found.message == "kernels of 'h200' are not locked: net.lock.yaml is not there yet"


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
