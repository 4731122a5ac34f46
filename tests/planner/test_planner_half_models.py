"""Models whose own numbers are half precision: a target computes in the precision that it was asked for, and only
inputs and outputs keep the model's types."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, random_inputs
from planner_fakes import AS_MODEL, recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.families import load
from bolt_build.graph.ops.moves.shape import Cast, Convert
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.reference import evaluate
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import IoSpec, TargetSpec
from bolt_build.targets import target_named
from bolt_build.verify.taps import taps_of

NET = """
graph g batch=2 (%x: DTYPE[2,3,8,8]) -> (%p, %a) {
  const %w: DTYPE[8,3,3,3] #
  const %b: DTYPE[8] #
  const %d: DTYPE[8,4] #
  %c = conv(%x, %w, %b)
  %a = relu(%c)
  %m = reduce(%a) mode="mean" axes=[2,3] keepdims=false
  %l = matmul(%m, %d)
  %p = softmax(%l) axis=1
}"""

MIXED = """
graph g batch=1 (%x: f32[1,64,16,16]) -> (%y) {
  const %w: f16[64,64,3,3] #
  %h = cast(%x) to="f16"
  %c = conv(%h, %w)
  %y = cast(%c) to="f32"
}"""

TARGETS = [("host", "fp32"), ("host", "bf16"), ("h200", "fp16"), ("t4", "fp16")]


def planned(text: str, target: str, precision: str, io: IoSpec = AS_MODEL) -> PlannedEngine:
    row = target_named(target)
    return plan_engine([graph(text)], recipe(io), TargetSpec(target, precision), row, load(row))


def computing(plan: BatchPlan) -> list[Step]:
    return [step for step in plan.steps if not isinstance(step.problem.op, Convert | Cast)]


@pytest.mark.parametrize(("target", "precision"), TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_step_reads_and_keeps_numbers_in_the_targets_precision(dtype: str, target: str, precision: str) -> None:
    engine = planned(NET.replace("DTYPE", dtype), target, precision)
    (plan,) = engine.plan.plans
    ports = {port.name for port in (*plan.inputs, *plan.outputs)}
    for step in computing(plan):
        inside = [t for t in (*step.inputs, *step.outputs) if not t.operand.constant and t.value not in ports]
        assert {t.operand.format.dtype for t in inside} <= {PRECISIONS[precision]}, step.name


@pytest.mark.parametrize(("target", "precision"), TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_of_a_model_in_half_precision_are_those_of_the_same_model_in_fp32(
    dtype: str, target: str, precision: str
) -> None:
    found = {}
    for of in ("f32", dtype):
        (plan,) = planned(NET.replace("DTYPE", of), target, precision, IoSpec("fp32", "model")).plan.plans
        products = [step for step in plan.steps if isinstance(step.problem.op, Conv | MatMul)]
        found[of] = [(step.problem, step.candidate) for step in products]
    assert len(found["f32"]) == 2
    assert found[dtype] == found["f32"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_inputs_and_outputs_keep_the_models_types(dtype: str) -> None:
    (plan,) = planned(NET.replace("DTYPE", dtype), "host", "fp32").plan.plans
    assert [port.operand.format.dtype.value for port in (*plan.inputs, *plan.outputs)] == [dtype] * 3


def test_weights_are_widened_in_the_table_and_nowhere_else() -> None:
    engine = planned(NET.replace("DTYPE", "f16"), "host", "fp32")
    assert {slot.dtype for slot in engine.plan.weights} == {DType.F32}
    narrow = [array for array in engine.constants if not np.array_equal(array, array.astype(np.float16))]
    assert narrow == []


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 2e-3), ("bf16", 2e-2)])
def test_the_plan_computes_what_the_model_means(dtype: str, tolerance: float) -> None:
    before = graph(NET.replace("DTYPE", dtype))
    engine = planned(NET.replace("DTYPE", dtype), "host", "fp32")
    inputs = random_inputs(before, 0)
    found, expected = run_plan(engine, engine.plan.plans[0], inputs), evaluate(before, inputs)
    for name in before.outputs:
        assert found[name].dtype == expected[name].dtype
        apart = np.abs(found[name].astype(np.float64) - expected[name].astype(np.float64)).max()
        assert apart <= tolerance * max(1.0, float(np.abs(expected[name].astype(np.float64)).max()))


def test_casts_into_half_precision_and_back_move_nothing() -> None:
    (plan,) = planned(MIXED, "host", "fp32").plan.plans
    assert [step.view for step in plan.steps if isinstance(step.problem.op, Cast)] == [True, True]
    assert [step.candidate.family for step in plan.steps if step.name == "c"] == ["onednn"]


def test_behind_a_cast_into_half_precision_the_reference_is_no_finer_than_that() -> None:
    """The engine keeps fp32 there, the reference rounds: fp32's tolerance would call that a fault."""
    (plan,) = planned(MIXED, "host", "fp32").plan.plans
    assert {tap.tensor: tap.coarsest for tap in taps_of(plan)} == dict.fromkeys(("h", "c", "y"), DType.F16)
