"""Whole plans of random and of well-known models, run byte by byte in NumPy and compared with the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planner_checks import compare, graph, no_step_overwrites_what_is_read_later, random_graph, random_inputs
from planner_fakes import AS_MODEL, FAKE, HOST_TARGET, LAST, ROW, SPEC, Fake, recipe
from planner_interpreter import random_order, run_plan

from bolt_build.families import load
from bolt_build.families.base import Family
from bolt_build.graph.ir import Layout, Node
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import IoSpec, TargetSpec

EXPORTED = Path(__file__).parents[1] / "data" / "models" / "resnet50_transformers.onnx"


def moody(node: Node) -> tuple[Layout, ...]:
    """Layouts that change from node to node, so that plans are full of conversions."""
    return (ROW, LAST, ROW, ROW)[len(node.name) % 4 : len(node.name) % 4 + 1] or (ROW,)


FAMILIES: dict[str, tuple[Family, ...]] = {
    "fake": (FAKE,), "moody": (Fake(layouts=moody),), "host": load(HOST_TARGET),
}  # fmt: skip


@pytest.mark.parametrize("families", FAMILIES)
@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_plan_computes_what_the_graph_means(seed: int, queues: int, families: str, tmp_path: Path) -> None:
    """With several queues: in any order that the dependencies allow."""
    before = random_graph(seed, tmp_path)
    target = replace(HOST_TARGET, queues=queues)
    engine = plan_engine([before], recipe(), SPEC, target, FAMILIES[families])
    (plan,) = engine.plan.plans
    assert plan.arena_bytes >= plan.live_peak
    no_step_overwrites_what_is_read_later(plan)
    inputs = random_inputs(before, seed)
    expected = evaluate(before, inputs)
    compare(run_plan(engine, plan, inputs), expected, 1e-4)
    if queues > 1:
        compare(run_plan(engine, plan, inputs, random_order(plan, seed)), expected, 1e-4)


CORNERS = {
    "an output that is the input": "(%x: f32[2,4]) -> (%x) {",
    "an output that is a constant": "(%x: f32[2,4]) -> (%c) {\n const %c: f32[2,3,2] #",
    "an output that is a view of the input": "(%x: f32[2,4]) -> (%y) {\n %y = reshape(%x) shape=[4,2]",
    "a copy of integers": "(%x: i64[2,4]) -> (%y) {\n %y = identity(%x)",
    "two outputs with the same bytes": "(%x: f32[2,6]) -> (%y, %a) {\n %a = relu(%x)\n %y = reshape(%a) shape=[12]",
    "a residual that is also the data": (
        "(%x: f32[2,4,3,3]) -> (%y) {\n const %w: f32[4,4,1,1] #\n %a = conv(%x, %w)\n %y = add(%x, %a)"
    ),
    "a constant of the image's shape": (
        "(%x: f32[2,4,3,3]) -> (%y) {\n const %c: f32[2,4,3,3] #\n %y = sub(%c, %x)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("io", [AS_MODEL, IoSpec("model", "channels_last"), IoSpec("bf16", "row")], ids=str)
@pytest.mark.parametrize("corner", CORNERS)
def test_corner_cases(corner: str, io: IoSpec) -> None:
    before = graph(f"graph g batch=1 {CORNERS[corner]}\n}}")
    engine = plan_engine([before], recipe(io), SPEC, HOST_TARGET, FAMILIES["host"])
    inputs = random_inputs(before, 0)
    found = run_plan(engine, engine.plan.plans[0], inputs)
    assert list(found) == list(before.outputs)
    compare(found, evaluate(before, inputs), 1e-2 if io.dtype == "bf16" else 1e-5)


@pytest.mark.parametrize("seed", [2, 5])
def test_inputs_and_outputs_may_have_another_format(seed: int, tmp_path: Path) -> None:
    before = random_graph(seed, tmp_path)
    engine = plan_engine([before], recipe(IoSpec("bf16", "channels_last")), SPEC, HOST_TARGET, FAMILIES["host"])
    inputs = random_inputs(before, seed)
    compare(run_plan(engine, engine.plan.plans[0], inputs), evaluate(before, inputs), 5e-2)


def test_a_plan_in_bf16_computes_about_the_same(tmp_path: Path) -> None:
    before = random_graph(3, tmp_path)
    spec = TargetSpec("host", "bf16")
    engine = plan_engine([before], recipe(AS_MODEL), spec, HOST_TARGET, FAMILIES["host"])
    inputs = random_inputs(before, 3)
    compare(run_plan(engine, engine.plan.plans[0], inputs), evaluate(before, inputs), 1e-1)


def test_resnet50_needs_one_conversion_and_no_more_memory_than_is_live() -> None:
    """Batch 32, fp32: every Conv with what follows it is one step; the arena is within a tenth of the live peak."""
    before = load_model(EXPORTED).bind(32, ())
    engine = plan_engine([before], recipe(), SPEC, HOST_TARGET, FAMILIES["host"])
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps]
    assert {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)} == {
        "convert": 1, "conv": 53, "pool": 1, "reduce": 1, "reshape": 1, "matmul": 1,
    }  # fmt: skip
    assert plan.live_peak <= plan.arena_bytes <= 1.1 * plan.live_peak
