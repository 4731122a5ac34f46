"""Windows over several depths of a volume: one product that reads each depth where it lies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_volumes import volume
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
BAND = Candidate("cutlass", (
    ("m", 64), ("n", 64), ("k", 64), ("warpgroups", "pingpong"), ("bands", 2), ("stage", "row"), ("volume", 1),
))  # fmt: skip


def net(lines: str, outputs: str = "%y") -> Graph:
    return graph(f"""
        graph g batch=1 (%x: f32[1,64,6,14,14]) -> ({outputs}) {{
          const %w: f32[64,64,3,3,3] #
          const %v: f32[64,64,3,3,3] #
          {lines}
        }}""")


WINDOW = "strides=[1,1,1] pads_begin=[1,1,1] pads_end=[1,1,1] dilations=[1,1,1]"


def planned(of: Graph) -> PlannedEngine:
    return plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))


def test_no_step_stacks_depths() -> None:
    of = net(f'%a = conv(%x, %w) {WINDOW} // "a"\n %y = relu(%a) // "y"')
    engine = planned(of)
    (plan,) = engine.plan.plans
    (step,) = [step for step in plan.steps if step.problem.op.kind == "chain"]
    assert [type(each.op).__name__ for each in step.problem.op.sequence] == ["Stack", "FoldDepth", "Conv"]
    assert step.inputs[0].operand.shape == (1, 64, 6, 14, 14)
    assert dict(step.candidate.parameters)["volume"] == 1
    assert not any(each.problem.op.kind == "stack" for each in plan.steps)
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 1e-2)


STACK = "stack(%x) axis=2 count=3 stride=1 dilation=1 begin=1 extent=6 channels=192"


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        (f'%s = {STACK} // "s"\n %f = fold-depth(%s) // "f"\n %g = abs(%f) // "g"', "%g"),
        (f'%s = {STACK} // "s"\n %f = fold-depth(%s) // "f"', "%f, %s"),
    ],
)
def test_depths_that_others_read_are_stacked(lines: str, outputs: str) -> None:
    of = net(lines, outputs)
    alternatives, refused = FAMILY.propose(of, of.nodes[0], H200, DType.F16)
    assert alternatives == ()
    assert [each.reason for each in refused] == ["what it stacks is read by others than one convolution over images"]


def problem_of(**changed: object) -> KernelProblem:
    return volume("v", (2, 64, 7, 14, 15), 64, (3, 3, 3), **changed)[1].problem  # type: ignore[arg-type]


def test_the_kernel_is_told_where_depths_lie() -> None:
    problem = problem_of(stride=(2, 1))
    code = FAMILY.emit(problem, BAND, H200, StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b")))
    assert code.member_type.startswith("bolt::cutlass_kernels::Conv<bolt::cutlass_kernels::VolumeTile<bolt::")
    given = code.member_arguments
    assert ".batch = 8, .height = 14, .width = 15, .channels = 192" in given
    assert ".x_image = 94080, .x_row = 960, .x_column = 64" in given
    depths = ".given = 7, .made = 4, .taps = 3, .stride = 2, .dilation = 1, .pad = 1, .x_depth = 13440"
    assert f".depths = bolt::cutlass_kernels::Depths{{{depths}}}" in given
    assert "VolumeFilter{.outputs = 64, .channels = 64, .depths = 3, .taps = 9}" in given


def test_pixels_of_the_volume_may_lie_apart() -> None:
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"), input_pitches=(80, 0, 0))
    code = FAMILY.emit(problem_of(), BAND, H200, at)
    assert ".x_image = 117600, .x_row = 1200, .x_column = 80" in code.member_arguments
    assert ".x_depth = 16800" in code.member_arguments


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (problem_of(), None),
        (
            volume("v", (2, 40, 7, 14, 15), 64, (3, 3, 3))[1].problem,
            "a step has 64 channels of one depth, 40 are no multiple",
        ),
        (
            volume("v", (2, 64, 7, 14, 15), 60, (3, 3, 3))[1].problem,
            "stores 8 columns at once, 60 is no multiple",
        ),
        (problem_of(begin=16), "windows reach over more than the 15 positions that TMA takes of volumes"),
        (
            volume("v", (1, 64, 40, 9, 9), 64, (2, 3, 3), begin=15, extent=40, dilation=32)[1].problem,
            "depths reach over 32 positions, TMA takes 31 at most",
        ),
        (volume("v", (1, 64, 4, 9, 9), 64, (3, 1, 1), begin=1)[1].problem,
         "windows over volumes have several positions of whole loads"),
    ],
)  # fmt: skip
def test_which_volumes_suit(problem: KernelProblem, reason: str | None) -> None:
    assert FAMILY.refuse(problem, BAND, H200) == reason


def test_other_gpus_stack_depths() -> None:
    problem = replace(problem_of(), target="a100")
    assert [each.reason for each in FAMILY.candidates(problem, A100)[1]] == ["needs WGMMA"]


def test_candidates_say_so() -> None:
    found, _ = FAMILY.candidates(problem_of(), H200)
    assert found
    assert all(dict(each.parameters)["volume"] == 1 for each in found)
