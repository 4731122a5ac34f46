"""A convolution that stores its results and an activation of them: one product with two outputs."""

from __future__ import annotations

import pytest
from families_harness import Layer
from gpu_kept import LEAKY, with_activation
from gpu_products import RESIDUAL, conv
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
TILE = Candidate("cutlass", (("m", 64), ("n", 64), ("k", 64), ("warpgroups", "pingpong"), ("kept", 1)))
PADS = "pads_begin=[1,1] pads_end=[1,1]"


def block() -> Graph:
    """The end of a residual block, and the next one, which begins with an activation."""
    return graph(f"""
        graph g batch=4 (%x: f32[4,64,56,56]) -> (%y) {{
          const %w: f32[64,64,3,3] #
          %a = conv(%x, %w) {PADS} // "a"
          %b = add(%a, %x) // "b"
          %c = leaky_relu(%b) alpha=0.1 // "c"
          %d = conv(%c, %w) {PADS} // "d"
          %y = add(%d, %b) // "y"
        }}""")


def test_a_block_that_begins_with_an_activation_is_its_convolutions() -> None:
    of = block()
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    (step,) = [step for step in plan.steps if "kept" in dict(step.candidate.parameters)]
    assert [each.value for each in step.outputs] == ["b", "c"]
    assert [each.problem.op.kind for each in plan.steps if each.problem.op.kind != "convert"] == ["kept", "conv"]
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 1e-2)


def test_the_kernel_has_both_functions_and_both_results() -> None:
    _, step = with_activation(conv("k", (2, 64, 9, 7), 72, (3, 3), epilogue=RESIDUAL))
    at = StepExpressions(
        ("x", "w", "b", "r"), ("y", "z"), (None, "w", "b", None), pitches=(96, 80), input_pitches=(0, 0, 0, 88)
    )
    code = FAMILY.emit(step.problem, TILE, H200, at)
    assert code.member_type is not None
    assert code.member_type.startswith("bolt::cutlass_kernels::Conv<bolt::cutlass_kernels::KeptTile<")
    after = "bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::LeakyRelu>>>"
    assert f"{after}, bolt::cutlass_kernels::AsItIs>" in code.member_type
    assert ".y_row = 96, .residual_row = 88, .second_row = 80" in code.member_arguments
    assert code.call == "kernel.run_both(r, x, r, y, z);"
    (unit,) = FAMILY.units([(step.problem, TILE)], H200)
    assert unit.text.startswith('#include "bolt_cutlass/units/conv_kept_kernel.h"\n')


def test_products_have_a_kernel_too() -> None:
    _, step = with_activation(conv("k", (2, 64, 9, 7), 72, (1, 1)))
    (unit,) = FAMILY.units([(step.problem, TILE)], H200)
    assert unit.text.startswith('#include "bolt_cutlass/units/gemm_kept_kernel.h"\n')


@pytest.mark.parametrize(
    ("layer", "function", "reason"),
    [
        (conv("k", (2, 64, 56, 56), 64, (3, 3)), LEAKY, None),
        (conv("k", (2, 64, 9, 7), 60, (3, 3)), LEAKY, "stores 8 columns at once, 60 is no multiple"),
        (conv("k", (2, 3, 9, 7), 64, (3, 3)), LEAKY, "windows have positions of whole loads"),
    ],
)
def test_which_convolutions_suit(layer: Layer, function: Activation, reason: str | None) -> None:
    problem = with_activation(layer, function)[1].problem
    found, refused = FAMILY.candidates(problem, H200)
    assert bool(found) is (reason is None)
    assert reason is None or reason in [each.reason for each in refused]


def test_an_activation_that_alone_reads_a_result_is_its_epilogue() -> None:
    of = graph(f"""
        graph g batch=1 (%x: f32[4,64,56,56]) -> (%y) {{
          const %w: f32[64,64,3,3] #
          %a = conv(%x, %w) {PADS} // "a"
          %y = leaky_relu(%a) alpha=0.1 // "y"
        }}""")
    found, _ = FAMILY.propose(of, of.nodes[0], H200, DType.F16)
    assert all(each.region == ("a",) for each in found)


@pytest.mark.parametrize(
    ("first", "activation", "reason"),
    [
        (
            f"conv(%x, %w) {PADS}",
            "relu(%a) | tanh",
            "the activation has an epilogue, which a kernel that stores both does not compute",
        ),
        ("matmul(%x, %w)", "relu(%a)", "no matrix product's kernel stores its results and an activation of them"),
    ],
)
def test_why_an_activation_beside_is_a_step_of_its_own(first: str, activation: str, reason: str) -> None:
    shapes = ("4,64,56,56", "64,64,3,3") if "conv" in first else ("256,64", "64,64")
    of = graph(f"""
        graph g batch=4 (%x: f32[{shapes[0]}]) -> (%y, %a) {{
          const %w: f32[{shapes[1]}] #
          %a = {first} // "a"
          %y = {activation} // "y"
        }}""")
    found, refused = FAMILY.propose(of, of.nodes[0], H200, DType.F16)
    assert all(each.region == ("a",) for each in found)
    assert [each.reason for each in refused if each.what == "a, y"] == [reason]


def test_other_gpus_compute_the_activation_apart() -> None:
    of = graph(f"""
        graph g batch=1 (%x: f32[4,64,56,56]) -> (%y, %a) {{
          const %w: f32[64,64,3,3] #
          %a = conv(%x, %w) {PADS} // "a"
          %y = leaky_relu(%a) alpha=0.1 // "y"
        }}""")
    found, refused = FAMILY.propose(of, of.nodes[0], A100, DType.F16)
    assert all(each.region == ("a",) for each in found)
    assert [each.reason for each in refused if each.what == "a, y"] == ["needs WGMMA"]
