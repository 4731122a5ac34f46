"""A classifier behind an image: one product over the image as it lies."""

from __future__ import annotations

import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200 = target_named("h200")


def net(flat: str = "", product: str = "matmul(%f, %v, %b) transpose_b=true") -> Graph:
    return graph(f"""
        graph g batch=4 (%x: f32[4,64,7,5]) -> (%y) {{
          const %w: f32[64,64,3,3] #
          const %v: f32[128,2240] #
          const %t: f32[2240,128] #
          const %b: f32[128] #
          %c = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "conv"
          %f = reshape(%c) shape=[4,2240] // "flat"
          {flat}
          %p = {product} // "fc"
          %y = relu(%p) // "relu"
        }}""")


def planned(of: Graph) -> PlannedEngine:
    return plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))


def refusals(engine: PlannedEngine) -> list[str]:
    return [each.reason for each in engine.plan.refusals if (each.family, each.what) == ("cutlass", "flat")]


def test_the_product_reads_the_image_channels_last() -> None:
    of = net()
    engine = planned(of)
    (plan,) = engine.plan.plans
    steps = {step.name: step for step in plan.steps}
    assert list(steps)[1:4] == ["conv", "relu.0", "relu"]
    whole = steps["relu.0"]
    assert whole.covers == ("flat", "fc", "relu")
    assert [str(tensor.operand.format) for tensor in whole.inputs] == ["f16/channels_last", "f16/row", "f32/row"]
    assert whole.inputs[1].operand.shape == (128, 64, 7, 5)
    assert steps["relu"].view
    code = Cutlass().emit(
        whole.problem, whole.candidate, H200, StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"))
    )
    assert "GemmArguments{.m = 4, .n = 128, .k = 2240" in code.member_arguments
    packed = "Filter{.outputs = 128, .channels = 64, .rows = 7, .taps = 5, .to_taps = 5, .to_channels = 64}"
    assert packed in code.member_arguments
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 1e-2)


FLAT = """
    %g = softmax(%f) axis=1
    %q = matmul(%g, %v) transpose_b=true
    %h = matmul(%f, %v) transpose_b=true
"""
WHY_NOT = {
    "the B operand is stored by rows of the image, not by columns of the result": net(product="matmul(%f, %t, %b)"),
    "what it flattens is read flat by others than one matrix product": net(FLAT, "add(%q, %h)"),
    "what it flattens is read by 'g', softmax": net("%g = softmax(%f) axis=1", "matmul(%g, %v) transpose_b=true"),
}


@pytest.mark.parametrize("reason", WHY_NOT)
def test_why_not(reason: str) -> None:
    of = WHY_NOT[reason]
    engine = planned(of)
    assert reason in refusals(engine)
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, engine.plan.plans[0], inputs), evaluate(of, inputs), 2e-2)
