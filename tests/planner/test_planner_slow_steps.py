"""What is said of steps whose kernels leave most of the hardware unused: which they are, how slow, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from locked_net import new_net, write_model
from onnx import helper, numpy_helper
from planner_checks import graph
from planner_fakes import recipe

from bolt_build.emit.manifest import BuildFacts, embedded_manifest
from bolt_build.families import load
from bolt_build.families.base import bound
from bolt_build.planner.engine_plan import SlowSteps
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.selection import PREDICTED, Selection, Winner
from bolt_build.report.explained.explain import render as render_explanation
from bolt_build.report.explained.explainer import explain
from bolt_build.report.plan import render
from bolt_build.schema.recipe import IoSpec, TargetSpec
from bolt_build.targets import target_named
from bolt_build.tuning.trials.tuning_set import TuningSet
from bolt_build.workflows.evidence import Evidence

H200 = replace(target_named("h200"), families=("cutlass", "portable"))
"""A GPU for which nobody wrote kernels for groups of channels."""

GROUPED = """
graph g batch=8 (%x: f32[8,64,56,56]) -> (%y) {
  const %w: f32[128,64,1,1] #
  const %g: f32[128,4,7,7] #
  const %v: f32[8,128,1,1] #
  %a = conv(%x, %w)
  %b = conv(%a, %g) groups=32 pads_begin=[3,3] pads_end=[3,3]
  %c = conv(%b, %g) groups=32 pads_begin=[3,3] pads_end=[3,3]
  %y = conv(%c, %v)
}"""

DENSE = GROUPED.replace("128,4,7,7", "128,128,7,7").replace("groups=32 ", "")

GROUPED_LINE = (
    "slow: batch 8: b, c take 100% of the time at 0.1% of what the hardware allows (predicted): "
    "portable algorithm=direct, for cutlass: has no groups, here are 32"
)


def planned(text: str, target: str = "h200", by: Selection = PREDICTED) -> PlannedEngine:
    row = H200 if target == "h200" else target_named(target)
    io = IoSpec("model", "channels_last")  # so that no change of layout takes part
    return plan_engine([graph(text)], recipe(io), TargetSpec(target, row.precisions[0]), row, load(row), by)


def winners(engine: PlannedEngine, grouped: float, others: float = 0.0) -> Selection:
    """A selection of the engine's own kernels, with the seconds that both grouped convolutions, and half of what all
    others together, were measured at."""
    steps = [step for step in engine.plan.plans[0].steps if not step.view]
    rest = {step.problem.digest for step in steps if step.name not in ("b", "c")}
    found = {}
    for step in steps:
        digest = step.problem.digest
        seconds = 2 * others / len(rest) if digest in rest else grouped
        found[digest] = Winner(digest, step.candidate, seconds)
    return Selection("a test", tuple(found.values()))


def test_grouped_convolutions_on_a_gpu_are_named_with_what_was_refused() -> None:
    assert [str(each) for each in planned(GROUPED).plan.slow] == [GROUPED_LINE]


@pytest.mark.parametrize("target", ["h200", "t4", "host"])
def test_nothing_is_said_where_every_kernel_is_a_good_one(target: str) -> None:
    assert planned(DENSE, target).plan.slow == ()


def test_measured_times_count_before_predictions() -> None:
    engine = planned(GROUPED)
    (step,) = (step for step in engine.plan.plans[0].steps if step.name == "b")
    least = bound(step.problem, H200)
    assert planned(GROUPED, by=winners(engine, 3.9 * least)).plan.slow == ()
    (slow,) = planned(GROUPED, by=winners(engine, 10 * least)).plan.slow
    assert (slow.steps, slow.measured) == (("b", "c"), True)
    assert slow.seconds == pytest.approx(20 * least)
    assert slow.bound == pytest.approx(2 * least)


def test_steps_that_are_slow_alike_count_together() -> None:
    """Twenty layers of a twentieth each are no faster than one."""
    lines = [f"  %c{i} = conv(%c{i - 1}, %g) groups=32 pads_begin=[3,3] pads_end=[3,3]" for i in range(1, 20)]
    text = GROUPED.replace("%c = ", "%c0 = ").replace("  %y = conv(%c,", "\n".join([*lines, "  %y = conv(%c19,"]))
    (slow,) = planned(text).plan.slow
    assert len(slow.steps) == 21
    assert max(1 / len(slow.steps), 0.1) == 0.1
    assert "b, c0, c1 and 18 more take" in str(slow)


@pytest.mark.parametrize(("others", "said"), [(17, 1), (19, 0)])
def test_what_takes_under_a_tenth_of_the_time_is_not_worth_a_line(others: float, said: int) -> None:
    """Two steps at a tenth of their bound, beside two that take so many times as long each."""
    engine = planned(GROUPED)
    (step,) = (step for step in engine.plan.plans[0].steps if step.name == "b")
    slow = 10 * bound(step.problem, H200)
    found = planned(GROUPED, by=winners(engine, slow, slow * others / 2)).plan.slow
    assert sum("b" in each.steps for each in found) == said


@pytest.mark.parametrize(("others", "said"), [(190, 1), (210, 0)])
def test_what_is_under_a_twentieth_of_its_bound_is_named_from_a_hundredth_of_the_time_on(
    others: float, said: int
) -> None:
    """Two steps at a fortieth of their bound, beside two that take so many times as long."""
    engine = planned(GROUPED)
    (step,) = (step for step in engine.plan.plans[0].steps if step.name == "b")
    slow = 40 * bound(step.problem, H200)
    found = planned(GROUPED, by=winners(engine, slow, slow * others / 2)).plan.slow
    assert sum("b" in each.steps for each in found) == said


def test_the_line_stands_in_the_plan_as_text_and_the_facts_in_the_manifest() -> None:
    plan = planned(GROUPED).plan
    assert GROUPED_LINE in render(plan).splitlines()
    manifest = json.loads(embedded_manifest(plan, H200, BuildFacts()))
    (slow,) = manifest["predicate"]["buildDefinition"]["internalParameters"]["slow"]
    assert {key: slow[key] for key in ("batch", "steps", "kernel", "reasons", "measured", "share")} == {
        "batch": 8, "steps": ["b", "c"], "kernel": "portable algorithm=direct", "measured": False,
        "share": pytest.approx(0.998, abs=2e-3),
        "reasons": ["cutlass: has no groups, here are 32"],
    }  # fmt: skip
    quick = json.loads(embedded_manifest(planned(DENSE).plan, H200, BuildFacts()))
    assert "slow" not in quick["predicate"]["buildDefinition"]["internalParameters"]


def test_a_step_without_refusals_is_named_all_the_same() -> None:
    slow = SlowSteps(1, ("pool",), "portable algorithm=direct", (), 0.5, 1e-3, 1e-5, measured=True)
    assert str(slow) == (
        "slow: batch 1: pool takes 50% of the time at 1.0% of what the hardware allows (measured): "
        "portable algorithm=direct, for no other kernel is offered"
    )
    assert str(replace(slow, measured=False)).count("predicted") == 1


def test_explain_shows_it_with_its_batch() -> None:
    engine = planned(GROUPED)
    evidence = Evidence(engine, H200, load(H200), TuningSet("h200", (), ()), "predictions")
    explanation = explain(evidence)
    assert [each.slow for each in explanation.batches] == [engine.plan.slow]
    assert GROUPED_LINE in render_explanation(explanation).splitlines()


def test_a_build_says_it_when_it_has_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bolt_build.targets._BUILT_IN", (H200,))
    net = new_net()
    write_model(Path("net.onnx"), channels=128)
    model = onnx.load("net.onnx")
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones((128, 4, 7, 7), np.float32), "w1"))
    (pads,) = (each for each in model.graph.node[2].attribute if each.name == "pads")
    pads.ints[:] = [3, 3, 3, 3]
    model.graph.node[2].attribute.append(helper.make_attribute("group", 32))
    onnx.save(model, "net.onnx")
    notes = [note for note in net.plan().notes if "slow" in note]
    assert [note.partition(" take")[0] for note in notes] == [
        "net/h200: slow: batch 1: relu1", "net/h200: slow: batch 4: relu1",
    ]  # fmt: skip
    assert all(note.endswith("portable algorithm=direct, for cutlass: has no groups, here are 32") for note in notes)
    assert not [note for note in net.plan().notes if "slow" in note]
