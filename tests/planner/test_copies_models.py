"""What is planned of the models whose engines copy nothing inside: that they do not."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from copies_models import branches
from planner_checks import compare, no_step_overwrites_what_is_read_later, random_graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.families import load
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named


@pytest.mark.parametrize("target", ["h200", pytest.param("a100", marks=pytest.mark.large)])
def test_branches_meet_where_they_are_written(target: str, tmp_path: Path) -> None:
    """Kernels of warpgroups, of warps, and of slices store rows apart; run in NumPy, they do not disturb each other."""
    onnx.save(branches(), str(tmp_path / "branches.onnx"))
    of, chosen = load_model(tmp_path / "branches.onnx").bind(2, ()), target_named(target)
    engine = plan_engine([of], recipe(), TargetSpec(target, "fp16"), chosen, load(chosen))
    (plan,) = engine.plan.plans
    said = {d.subject: d.action for d in engine.plan.decisions if d.stage in ("write-in-place", "pad-channels")}
    assert said == {
        "batch 2: met": "copies nothing", "batch 2: together": "copies nothing", "narrow": "padded 46 channels to 48",
    }  # fmt: skip
    apart = {step.name: step.outputs[0].pitch for step in plan.steps if step.outputs[0].pitch}
    assert apart == {"pooled": 224, "wide1": 224, "wide3": 224, "deep3": 128, "deep1": 128, "odd": 128}
    products = [step for step in plan.steps if step.name in apart and step.name != "pooled"]
    kinds = {name for step in products for name, _ in step.candidate.parameters} & {"warpgroups", "resident", "warp_m"}
    assert kinds == ({"warpgroups", "resident"} if target == "h200" else {"warp_m"})
    assert any("partial" in dict(step.candidate.parameters) for step in plan.steps if step.name in apart)
    no_step_overwrites_what_is_read_later(plan)
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.large) for seed in range(1, 6))])
def test_random_models_stay_right_on_a_gpu(seed: int, tmp_path: Path) -> None:
    """Channels of any number: padded by their producers, copied, or read as they are, in half precision."""
    of, target = random_graph(seed, tmp_path), target_named("h200")
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), target, load(target))
    (plan,) = engine.plan.plans
    no_step_overwrites_what_is_read_later(plan)
    inputs = random_inputs(of, seed)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 3e-2)
