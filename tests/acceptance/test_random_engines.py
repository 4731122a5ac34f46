"""Fifty random graphs, each built into an engine by the real way, agree with onnxruntime in every layer.

A graph costs some five seconds on one core: its plan and its border compile (2.5 s), five small Python tasks run, and
everything that engines have in common comes from the cache.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_builds import passing_engine
from lifetimes import overlaps
from random_graphs import random_model

from bolt_build.planner.engine_plan import BatchPlan, Location, StepTensor

GRAPHS = 50


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_a_random_graph_becomes_a_right_engine(seed: int, tmp_path: Path, cache: Path) -> None:
    with passing_engine(tmp_path / "p", f"random_{seed}", random_model(seed), cache, batch=[1 + seed % 3]) as built:
        (plan,), (checked,) = built.plan.plans, built.report.batches
        assert plan.batch == checked.batch == 1 + seed % 3
        assert len(checked.layers) >= 3
        assert overlaps(plan) == []
        assert plan.live_peak <= plan.arena_bytes
        if seed == 0:
            assert_overlaps_are_found(plan)


def assert_overlaps_are_found(plan: BatchPlan) -> None:
    """Every tensor of the arena put at its start: what was apart for a reason is reported."""

    def at_start(tensor: StepTensor) -> StepTensor:
        moved = tensor.location.kind == "arena"
        return replace(tensor, location=Location("arena", 0)) if moved else tensor

    steps = tuple(
        replace(step, inputs=tuple(map(at_start, step.inputs)), outputs=tuple(map(at_start, step.outputs)))
        for step in plan.steps
    )
    assert overlaps(replace(plan, steps=steps)) != []
