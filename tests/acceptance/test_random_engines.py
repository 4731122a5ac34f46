"""Random graphs, built into engines by the real way, agree with onnxruntime in every layer.

Ten graphs of one opset stand side by side in an engine: most of an engine's time goes into what does not grow with its
steps. Every layer is compared by its own inputs, so no graph hides what is wrong with another.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_builds import passing_engine
from lifetimes import overlaps
from onnx import ModelProto, compose
from random_graphs import OPSETS, random_model

from bolt_build.planner.engine_plan import BatchPlan, Location, StepTensor

ENGINES = len(OPSETS)
GRAPHS = 10
"""Of one engine."""
IN_EVERY_RUN = 1
"""Engines that every run of the tests builds; the others are of `pytest -m large`."""


def prefix(seed: int) -> str:
    return f"g{seed}_"


def side_by_side(seeds: list[int]) -> ModelProto:
    """One model of the graphs of all seeds, which share nothing; their names begin with `prefix`."""
    first, *others = (compose.add_prefix(random_model(seed), prefix(seed)) for seed in seeds)
    for other in others:
        first = compose.merge_models(first, other, io_map=[])
    del first.opset_import[1:]  # it names ONNX's own once a graph
    return first


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.large] * (number >= IN_EVERY_RUN)) for number in range(ENGINES)]
)
def test_random_graphs_become_a_right_engine(number: int, tmp_path: Path, cache: Path) -> None:
    seeds = [number + len(OPSETS) * i for i in range(GRAPHS)]
    model, batch = side_by_side(seeds), 1 + number % 3
    with passing_engine(tmp_path / "p", f"random_{number}", model, cache, batch=[batch]) as built:
        (plan,), (checked,) = built.plan.plans, built.report.batches
        assert plan.batch == checked.batch == batch
        for seed in seeds:
            assert sum(layer.name.startswith(prefix(seed)) for layer in checked.layers) >= 3
        assert overlaps(plan) == []
        assert plan.live_peak <= plan.arena_bytes
        if number == 0:
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
