"""Covers and whole engines of a lock: what of them a build takes, says of the others, and `--locked` refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from locked_net import TUNE, Net, new_net, whole_engine, write_model, written_plan

from bolt_build.planner.selection import ChosenCover


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.chdir(tmp_path)
    return new_net()


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
    plan = written_plan(planned)
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


def test_another_model_does_not_take_the_cover(net: Net) -> None:
    net.lock(net.tuned())
    write_model(Path("net.onnx"), channels=32)
    plan = written_plan(net.plan())
    assert [d.reason for d in plan.decisions if d.action == "declined the cover of net.lock.yaml"] == [
        "it was found for another graph"
    ] * 2
