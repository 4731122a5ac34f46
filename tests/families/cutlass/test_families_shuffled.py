"""A convolution whose results become pixels of a larger image: one product that stores them where they lie there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer
from gpu_pairs import graph_of_both, pair, steps_of
from gpu_products import RESIDUAL, conv
from gpu_shuffles import shuffled
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.shuffled import Shuffle, shuffle_of
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.products.chain import Chain
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
TILE = Candidate("cutlass", (("m", 64), ("n", 64), ("k", 64), ("warpgroups", "pingpong"), ("shuffled", 1)))


def problem_of(sides: tuple[int, ...] = (2, 2), cut: int = 0, filters: int = 128) -> KernelProblem:
    window = (3,) * len(sides)
    layer = shuffled(conv("s", (2, 64, *(9, 7)[: len(sides)]), filters, window), sides, cut)
    return steps_of(layer)[0].problem


def moved(op: Rearrange) -> KernelProblem:
    """The same convolution, and another movement behind it."""
    problem = problem_of()
    assert isinstance(problem.op, Chain)
    shape = replace(problem.outputs[0], shape=op.shape)
    return replace(problem, op=replace(problem.op, second=op), outputs=(shape,))


SPLIT = """
    graph g batch=1 (%x: f32[2,64,64,64], %z: f32[2,64,128,128]) -> (%y) {
      const %w: f32[256,64,3,3] #
      const %b: f32[256] #
      const %v: f32[64,128,3,3] #
      %a = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] // "a"
      %r = relu(%a) // "r"
      %s = reshape(%r) shape=[2,64,2,2,64,64] // "s"
      %t = transpose(%s) perm=[0,1,4,2,5,3] // "t"
      %p = reshape(%t) shape=[2,64,128,128] // "p"
      %q = abs(%z) // "q"
      %c = concat(%q, %p) axis=1 // "c"
      %y = conv(%c, %v) pads_begin=[1,1] pads_end=[1,1] // "y"
    }"""


def test_no_step_moves_pixels_and_they_are_stored_where_they_are_concatenated() -> None:
    of = graph(SPLIT)
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    (step,) = [step for step in plan.steps if "shuffled" in dict(step.candidate.parameters)]
    assert [type(each.op).__name__ for each in step.problem.op.sequence] == ["Conv", "Rearrange"]
    assert step.problem.outputs[0].shape == (2, 64, 128, 128)
    assert step.outputs[0].pitch == 128
    assert not any(each.problem.op.kind == "rearrange" for each in plan.steps)
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 1e-2)


@pytest.mark.parametrize(
    ("problem", "shuffle"),
    [
        (problem_of(), Shuffle(2, 2, 32, (9, 7), (18, 14), (0, 0))),
        (problem_of((1, 4), 1), Shuffle(1, 4, 32, (9, 7), (7, 26), (1, 1))),
        (problem_of((8,), 4), Shuffle(1, 8, 16, (1, 9), (1, 64), (0, 4))),
        # A channel's pixels beside each other in memory are not those of a pixel.
        (moved(Rearrange((2, 32, 2, 2, 9, 7), (0, 1, 4, 2, 5, 3), (2, 32, 18, 14), 0, (2, 32, 18, 14))), None),
        # Patches that become channels.
        (moved(Rearrange((2, 128, 3, 3, 7), (0, 2, 1, 3, 4), (2, 384, 3, 7), 0, (2, 384, 3, 7))), None),
        # Half of the channels.
        (moved(Rearrange((2, 2, 2, 32, 9, 7), (0, 3, 4, 1, 5, 2), (2, 32, 18, 14), 16, (2, 16, 18, 14))), None),
    ],
)  # fmt: skip
def test_channels_become_pixels(problem: KernelProblem, shuffle: Shuffle | None) -> None:
    assert shuffle_of(parts(problem)[1]) == shuffle


def test_the_kernel_is_told_where_pixels_lie() -> None:
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"), input_pitches=(80, 0, 0), pitches=(48,))
    code = FAMILY.emit(problem_of(cut=1), TILE, H200, at)
    assert code.member_type.startswith(
        "bolt::cutlass_kernels::Conv<bolt::cutlass_kernels::ShuffledTile<bolt::cutlass_kernels::WarpgroupTile<64, 64, "
    )
    where = (
        ".height = 9, .width = 7, .across = 2, .channels = 32, .made_h = 16, .made_w = 12, .first_h = 1, .first_w = 1"
    )
    assert f".shuffle = bolt::cutlass_kernels::Shuffle{{{where}}}" in code.member_arguments
    assert ".y_row = 48" in code.member_arguments
    assert ".x_column = 80" in code.member_arguments
    (unit,) = FAMILY.units([(problem_of(), TILE)], H200)
    assert unit.text.startswith('#include "bolt_cutlass/units/conv_shuffled_kernel.h"\n')


def test_a_product_has_a_kernel_too() -> None:
    layer = shuffled(conv("s", (2, 64, 9, 7), 128, (1, 1)), (2, 2))
    (step,) = steps_of(layer)
    (unit,) = FAMILY.units([(step.problem, TILE)], H200)
    assert unit.text.startswith('#include "bolt_cutlass/units/gemm_shuffled_kernel.h"\n')


RUNS = Rearrange((2, 128, 3, 3, 7), (0, 2, 1, 3, 4), (2, 384, 3, 7), 0, (2, 384, 3, 7))
"""Rows of an image that become channels."""


@pytest.mark.parametrize(
    ("layer", "target", "reason"),
    [
        (shuffled(conv("s", (2, 64, 9, 7), 48, (3, 3)), (2, 2)), H200,
         "stores 8 channels of a pixel at once, 12 are no multiple"),
        (pair(conv("s", (2, 64, 9, 7), 128, (3, 3)), Layer("runs", RUNS, (Input((2, 128, 9, 7)),))), H200,
         "moves no channels between pixels alone, each a run of channels"),
        (shuffled(conv("s", (2, 64, 9, 7), 128, (3, 3), epilogue=RESIDUAL), (2, 2)), H200,
         "another tensor joins in between"),
        (shuffled(conv("s", (2, 64, 9, 7), 128, (3, 3)), (2, 2)), A100, "needs WGMMA"),
    ],
)  # fmt: skip
def test_other_movements_are_steps(layer: Layer, target: Target, reason: str) -> None:
    of, node = graph_of_both(layer)
    found, refused = FAMILY.propose(of, node, target, DType.F16)
    assert not any(each.apart for each in found)
    (last,) = [each.name for each in of.nodes if each is not node]
    assert [each.reason for each in refused if each.what == f"{node.name}, {last}"] == [reason]
