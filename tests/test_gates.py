"""Gates of squeeze and excitation on GPUs: both products of single pixels in one kernel, or why not."""

from __future__ import annotations

import pytest
from planner_checks import graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan
from test_planner_plans import compare

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

ONE = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=1"
GATED = """
    graph g batch=2 (%x: f32[2,{channels},4,4]) -> (%y) {{
      const %u: f32[{between},{channels},1,1] #
      const %a: f32[{between}] #
      const %v: f32[{out},{between},1,1] #
      const %b: f32[{out}] #
      %m = reduce(%x) mode=mean axes=[2,3] keepdims=true // "mean"
      %f = conv(%m, %u, %a) {one} // "up"
      %g = relu(%f) // "between"
      %s = conv(%g, %v, %b) {one} // "down"
      %t = sigmoid(%s) // "gate"
      %y = mul(%x, %t) // "scaled"
    }}"""


def planned(target: str, channels: int = 480, between: int = 20) -> PlannedEngine:
    """The engine of a gate, whose plan has been run and compared."""
    of = graph(GATED.format(channels=channels, between=between, out=channels, one=ONE))
    chosen = target_named(target)
    engine = plan_engine([of], recipe(), TargetSpec(target, "fp16"), chosen, load(chosen))
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, engine.plan.plans[0], inputs), evaluate(of, inputs), 2e-2)
    return engine


@pytest.mark.parametrize("target", ["h200", "a100", "t4"])
def test_a_gate_is_one_kernel_between_a_mean_and_a_product_of_whole_tensors(target: str) -> None:
    (plan,) = planned(target).plan.plans
    steps = [(step.name, step.candidate.family, step.problem.op.kind) for step in plan.steps if not step.view]
    gate = [step for step in steps if step[0] in ("up", "between", "down", "gate")]
    assert gate == [("gate", "portable", "chain")]


def test_its_call_names_the_products_their_stages_and_the_loads() -> None:
    """20 channels between are padded to whole loads."""
    (plan,) = planned("h200").plan.plans
    (step,) = [step for step in plan.steps if step.problem.op.kind == "chain"]
    names = tuple(f"x{index}" for index in range(5))
    code = Portable().emit(
        step.problem, step.candidate, target_named("h200"), StepExpressions(names, ("y",), (None,) * 5)
    )
    assert code.includes == ("bolt_portable/cuda/squeeze.h",)
    p, f16 = "bolt::portable", "bolt::portable::f16"
    assert code.call == (
        f"{p}::squeeze<1024, 1, 1, 8, 8, {f16}, {f16}, {f16}, {f16}>(r, {p}::Squeeze{{.images = 2, .channels = 480, "
        f".between = 24, .out = 480, .blocks = 2}}, x0, x1, x3, y, "
        f"{p}::chain({p}::combine<{p}::Add>({p}::channel<float>(x2)), "
        f"{p}::apply({p}::Relu{{}})), {p}::chain({p}::combine<{p}::Add>({p}::channel<float>(x4)), "
        f"{p}::apply({p}::Sigmoid{{}})));"
    )


def test_more_channels_than_shared_memory_has_room_for_are_refused() -> None:
    refused = {(r.family, r.what): r.reason for r in planned("h200", 4104, 8).plan.refusals}
    assert (
        refused["portable", "between, gate"]
        == "4104 channels and 8 between the products, at most 4096 and 1024 are supported"
    )


def test_the_host_computes_them_apart() -> None:
    of, host = graph(GATED.format(channels=24, between=6, out=24, one=ONE)), target_named("host")
    (node,) = [node for node in of.nodes if node.name == "up"]
    assert all(len(found.region) == 1 for found in Portable().propose(of, node, host, DType.F32)[0])
