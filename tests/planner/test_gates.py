"""Gates of squeeze and excitation on GPUs: both products of single pixels in one kernel, or why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
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


def gate_of(target: str, channels: int = 480, between: int = 20) -> KernelProblem:
    (plan,) = planned(target, channels, between).plan.plans
    (step,) = [step for step in plan.steps if step.problem.op.kind == "chain"]
    return step.problem


def direct(blocks: int) -> Candidate:
    return Candidate("portable", (("algorithm", "direct"),), (("blocks", blocks),))


def cores(warps: int, cluster: int, parts: int) -> Candidate:
    stated = (("algorithm", "tensor_cores"), ("warps", warps), ("cluster", cluster), ("parts", parts))
    return Candidate("portable", stated)


def call(problem: KernelProblem, chosen: Candidate) -> tuple[tuple[str, ...], str]:
    names = tuple(f"x{index}" for index in range(5))
    code = Portable().emit(problem, chosen, target_named("h200"), StepExpressions(names, ("y",), (None,) * 5))
    return code.includes, code.call


P, F16 = "bolt::portable", "bolt::portable::f16"
STAGES = (
    f"x0, x1, x3, y, {P}::chain({P}::combine<{P}::Add>({P}::channel<float>(x2)), {P}::apply({P}::Relu{{}})), "
    f"{P}::chain({P}::combine<{P}::Add>({P}::channel<float>(x4)), {P}::apply({P}::Sigmoid{{}})));"
)
"""Pointers, and the stages of both products."""


def test_the_plain_kernel_s_call_names_the_loads() -> None:
    """20 channels between are padded to whole loads."""
    numbers = ".images = 2, .channels = 480, .between = 24, .out = 480, .blocks = 2"
    how = f"squeeze<1024, 1, 1, 8, 8, {F16}, {F16}, {F16}, {F16}>(r, {P}::Squeeze{{{numbers}}}"
    assert call(gate_of("h200"), direct(2)) == (("bolt_portable/cuda/products/squeeze.h",), f"{P}::{how}, {STAGES}")


@pytest.mark.parametrize(
    ("tile", "deep", "deep_behind"),
    [((8, 1, 1), 4, 1), ((16, 1, 1), 8, 1), ((8, 8, 2), 16, 1)],
    ids=["four warps a tile", "eight", "one step a warp"],
)
def test_the_call_on_tensor_cores_says_how_warps_share_the_products(
    tile: tuple[int, int, int], deep: int, deep_behind: int
) -> None:
    """Two tiles of rows are between, of 15 steps each; 30 tiles behind, of one step."""
    numbers = ", ".join(map(str, (480, 24, 480, *tile, deep, deep_behind)))
    how = f"half_gate<{P}::HalfGate<{numbers}>, {F16}, {F16}>(r, 2"
    assert call(gate_of("h200"), cores(*tile)) == (
        ("bolt_portable/cuda/products/half_gate.h",),
        f"{P}::{how}, {STAGES}",
    )


def test_blocks_read_many_weights_once_for_eight_images() -> None:
    """Few weights have the plain kernel."""
    chosen = {
        (channels, between): Portable().candidates(gate_of("h200", channels, between), target_named("h200"))[0][0]
        for channels, between in ((1536, 64), (48, 16))
    }
    assert chosen == {(1536, 64): cores(8, 8, 4), (48, 16): direct(1)}


@pytest.mark.parametrize("target", ["a100", "t4"])
def test_gpus_without_clusters_have_blocks_that_share_results_alone(target: str) -> None:
    problem, chosen = gate_of(target, 960, 40), target_named(target)
    offered = [dict(each.parameters) for each in Portable().candidates(problem, chosen)[0]]
    assert {each["cluster"] for each in offered if each["algorithm"] == "tensor_cores"} == {1}
    assert Portable().refuse(problem, cores(8, 8, 1), chosen) == "blocks form clusters from sm_90 on"


def test_gates_in_fp32_and_in_bf16_on_old_tensor_cores_have_the_plain_kernel() -> None:
    half = gate_of("h200")

    def stored(dtype: DType) -> KernelProblem:
        inputs = (replace(each, format=replace(each.format, dtype=dtype)) for each in half.inputs)
        return replace(half, inputs=tuple(inputs))

    assert [
        Portable().refuse(stored(dtype), cores(8, 1, 1), target_named(name))
        for name, dtype in (("h200", DType.F32), ("t4", DType.BF16), ("h200", DType.BF16))
    ] == [
        "tensor_cores: multiplies weights and inputs that are all in f16, or all in bf16",
        "tensor_cores: the GPU's tensor cores do not multiply bf16",
        None,
    ]


@pytest.mark.parametrize("tile", [(4, 1, 1), (8, 3, 1), (8, 1, 3)])
def test_other_clusters_than_kernels_have_are_refused(tile: tuple[int, int, int]) -> None:
    assert (
        Portable().refuse(gate_of("h200"), cores(*tile), target_named("h200"))
        == "there are kernels of 8 or 16 warps, of 1, 2, 4 or 8 blocks a cluster, and of 1, 2 or 4 clusters"
    )


def test_products_of_many_steps_are_not_written_out() -> None:
    reason = Portable().refuse(gate_of("h200", 2048, 128), cores(8, 1, 1), target_named("h200"))
    assert reason == "a warp has 64 steps of a product, at most 32 are written out"


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
