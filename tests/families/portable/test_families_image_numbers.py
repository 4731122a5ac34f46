"""Products whose kernels combine what they store with one number of each image and channel: what is proposed, why not,
the C++, and engines whose gates are known before the convolution that they gate."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_models import gated_blocks
from graph_models import bound
from pair_graphs import A100, FAMILY, H200, T4, proposed
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target, target_named

SPACE = "bolt::cutlass_kernels"


LAST = "f32[4,72,13,11]"


def gated(
    behind: str = "mul(%y, %g, %r) | add(%r) | relu", gate: str = "f32[4,72,1,1]", more: str = "", outputs: str = "%z",
) -> Graph:  # fmt: skip
    """A convolution `a`, and what combines its result with numbers of images, `b`."""
    return graph(f"""
        graph g batch=4 (%x: f32[4,136,13,11], %g: {gate}, %h: {gate}, %r: {LAST}, %q: {LAST}) -> ({outputs}) {{
          const %w: f32[72,136,1,1] #
          const %c: f32[72] #
          %y = conv(%x, %w, %c) // "a"
          %z = {behind} // "b"
          {more}
        }}""")


# What is proposed.


def test_a_convolution_and_its_gate_are_one_kernel() -> None:
    (alternative,), reasons = proposed(gated())
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("a", "b"), [])
    assert step.inputs == ("x", "w", "c", "g", "r")
    assert (step.may_share, step.reads_apart) == (((4, 0),), (0, 4))
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    assert all("warpgroups" in dict(each.parameters) for each in candidates)
    assert describe_problem(step.problem) == (
        "conv(f16[4,136,13,11] channels_last, f16[72,136,1,1], f32[72], f16[4,72,1,1] channels_last, "
        "f16[4,72,13,11] channels_last) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] | mul(@3) | "
        "add(@4) | relu -> f16[4,72,13,11] channels_last"
    )
    assert in_words(step.problem) == (
        "1x1 convolution, 136 to 72 channels, 13x11, batch 4 + bias + mul by numbers of the image + residual + relu"
    )


def test_it_is_predicted_to_take_longer_than_without_numbers_and_less_than_both_kernels() -> None:
    (alternative,), _ = proposed(gated())
    joint = alternative.steps[0].problem
    product, _ = alternative.apart
    candidate = FAMILY.candidates(joint, H200)[0][0]
    assert FAMILY.predict(product, candidate, H200) < FAMILY.predict(joint, candidate, H200)
    assert alternative.seconds < FAMILY.predict(product, candidate, H200) + 1e-6 + joint.nbytes / H200.bandwidth


def test_windows_may_have_such_numbers_too() -> None:
    """What a time embedding adds. Kernels with weights in registers do not know of which image a row is."""
    of = graph("""
        graph g batch=2 (%x: f32[2,64,14,14], %g: f32[2,64,1,1]) -> (%z) {
          const %w: f32[64,64,3,3] #
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "a"
          %z = sub(%g, %y) // "b"
        }""")
    (alternative,), _ = proposed(of)
    (step,) = alternative.steps
    assert step.problem.epilogue[0].swapped
    candidates, refusals = FAMILY.candidates(step.problem, H200)
    names = {name for each in candidates for name, _ in each.parameters}
    assert not names & {"resident", "deep_cluster"}
    assert "bands" in names
    reason = "a stage reads numbers of images, and its store does not say of which image a row is"
    assert reason in {each.reason for each in refusals}


def test_slices_are_added_up_by_a_kernel_that_knows_the_image_on_any_gpu() -> None:
    deep = graph("""
        graph g batch=2 (%x: f32[2,2048,7,7], %g: f32[2,64,1,1]) -> (%z) {
          const %w: f32[64,2048,1,1] #
          %y = conv(%x, %w) // "a"
          %z = mul(%y, %g) // "b"
        }""")
    (alternative,), _ = proposed(deep, A100)
    stated = [dict(each.parameters) for each in FAMILY.candidates(alternative.steps[0].problem, A100)[0]]
    assert all(each["partial"] == 1 for each in stated)


@pytest.mark.parametrize("target", [A100, T4], ids=lambda target: target.name)
def test_instructions_of_a_warp_store_without_knowing_the_image(target: Target) -> None:
    found, reasons = proposed(gated(), target)
    assert found == []
    reason = "a stage reads numbers of images, and its store does not say of which image a row is"
    assert ("a, b", reason) in reasons


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (gated(more='%t = exp(%y) // "t"', outputs="%z, %t"), "'t' reads 'y' as well"),
        (gated(outputs="%z, %y"), "'y' is an output of the graph"),
    ],
)
def test_why_the_store_does_not_gate(of: Graph, reason: str) -> None:
    found, refusals = FAMILY.propose(of, of.nodes[0], H200, DType.F16)
    assert not any("b" in each.region for each in found)
    assert ("a, b", reason) in [(each.what, each.reason) for each in refusals]


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (gated("mul(%y, %g, %h) | add(%h)"), "reads one tensor with a number of each image and channel, not 2"),
        (gated("mul(%y, %g, %r, %q) | add(%r) | mul(%q)"), "reads one residual, not 2"),
    ],
)
def test_why_no_kernel_gates(of: Graph, reason: str) -> None:
    found, reasons = proposed(of)
    assert (found, reasons) == ([], [("a, b", reason)])


@pytest.mark.parametrize("gate", ["1,72,1,1", "4,1,1,1", "4,72,13,1"])
def test_numbers_of_all_images_or_channels_are_others(gate: str) -> None:
    assert proposed(gated("mul(%y, %g)", gate=f"f32[{gate}]")) == ([], [])


# The C++ that calls them.


def test_a_call_is_told_the_numbers() -> None:
    (alternative,), _ = proposed(gated())
    (step,) = alternative.steps
    candidate = FAMILY.candidates(step.problem, H200)[0][0]
    names, prepare = tuple(f"x{index}" for index in range(5)), (None, "p1", "p2", None, None)
    code = FAMILY.emit(step.problem, candidate, H200, StepExpressions(names, ("y",), prepare))
    stages = (
        f"{SPACE}::OfImages<{SPACE}::Epilogue<{SPACE}::Image<bolt::portable::Mul, false>, "
        f"{SPACE}::Join<bolt::portable::Add, false>, {SPACE}::Map<bolt::portable::Relu>>>"
    )
    assert code.call == "kernel.run(r, x0, x4, x3, y);"
    assert code.member_type is not None
    assert code.member_type.endswith(f">, {stages}, {SPACE}::AsItIs>")
    assert code.member_arguments.endswith(
        f"{SPACE}::of_images({SPACE}::epilogue({SPACE}::image<bolt::portable::Mul, false>(), "
        f"{SPACE}::join<bolt::portable::Add, false>(), {SPACE}::map(bolt::portable::Relu{{}})), 143)"
    )
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert f"const {stages}&, void*);" in unit.text


# In an engine.


def test_gated_blocks_have_no_pass_over_what_they_gate(tmp_path: Path) -> None:
    """A squeezed block and one of ECA on Hopper: a convolution with its mean, the gate, and the convolution that gates
    what it stores."""
    of = bound(tmp_path, gated_blocks(), 2)
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    named = [step.name for step in plan.steps if not step.view and "@" not in step.name]
    assert named == ["s.mean.early", "s.sigmoid", "s.last", "e.mean.early", "e.sigmoid.early", "e.last"]
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 1e-2)


@pytest.mark.parametrize(("target", "precision"), [(T4, "fp16"), (target_named("host"), "fp32")])
def test_elsewhere_a_mean_is_of_fewer_channels_and_a_pass_gates(target: Target, precision: str, tmp_path: Path) -> None:
    """Not ECA's, whose product would read more weights where the result is gone through anyway."""
    of = bound(tmp_path, gated_blocks(), 2)
    engine = plan_engine([of], recipe(), TargetSpec(target.name, precision), target, load(target))
    (plan,) = engine.plan.plans
    means = [step.inputs[0].operand.shape for step in plan.steps if step.problem.op.kind == "reduce"]
    assert means == [(2, 16, 9, 9), (2, 64, 9, 9)]
    assert sum(step.problem.op.kind == "binary" for step in plan.steps) == 2
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 1e-2)
