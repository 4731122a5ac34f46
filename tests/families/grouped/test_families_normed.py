"""Depthwise convolutions with the normalisation of their results over channels in one kernel, as in ConvNeXt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.normed import tile_of
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.chains import chains_of
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import Target, target_named

H200, T4, FAMILY = target_named("h200"), target_named("t4"), Grouped()
SPACE = "bolt::grouped"
POINT = "strides=[1,1] pads_begin=[3,3] pads_end=[3,3] dilations=[1,1]"


def block(
    channels: int = 96, groups: int = 96, w: str = "96,1,7,7", stages: str = "", scale: str = "const %s: f32[96] #",
    norm: str = "statistic=variance axes=[3] epsilon=1e-06", more: str = "", outputs: str = "%z", inputs: str = "",
) -> Graph:  # fmt: skip
    """A convolution `a`, the move of channels `t` and their normalisation `n`, which a product reads."""
    more_inputs = ", %o" * ("%o" in stages)
    return graph(f"""
        graph g batch=4 (%x: f32[4,{channels},14,14]{inputs}) -> ({outputs}) {{
          const %w: f32[{w}] #
          const %b: f32[{channels}] #
          {scale}
          const %h: f32[{channels}] #
          const %u: f32[{channels},16] #
          %y = conv(%x, %w, %b{more_inputs}) pads_begin=[3,3] pads_end=[3,3] groups={groups}{stages} // "a"
          %t = transpose(%y) perm=[0,2,3,1] // "t"
          %n = norm(%t, %s, %h) {norm} // "n"
          %z = matmul(%n, %u) // "z"
          {more}
        }}""")


IN_PLACE = graph("""
    graph g batch=4 (%x: f32[4,96,14,14]) -> (%n) {
      const %w: f32[96,1,7,7] #
      const %s: f32[96,1,1] #
      const %h: f32[96,1,1] #
      %y = conv(%x, %w) pads_begin=[3,3] pads_end=[3,3] groups=96 // "a"
      %n = norm(%y, %s, %h) statistic=variance axes=[1] epsilon=1e-06 | relu // "n"
    }""")


def proposed(of: Graph, target: Target = H200) -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of several nodes, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target, DType.F16)
    about = [(each.what, each.reason) for each in refusals if "," in each.what]
    return [each for each in found if len(each.region) > 1], about


@pytest.mark.parametrize(("of", "region"), [(block(), ("a", "t", "n")), (IN_PLACE, ("a", "n"))], ids=["moved", "there"])
@pytest.mark.parametrize("target", [H200, T4], ids=lambda target: target.name)
def test_a_depthwise_convolution_and_the_normalisation_over_channels_are_one_kernel(
    of: Graph, region: tuple[str, ...], target: Target
) -> None:
    (alternative,), reasons = proposed(of, target)
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (region, [])
    assert (step.inputs[0], step.outputs, step.pitched, step.may_share) == ("x", ("n",), (0,), ())
    assert parts(step.problem) == (alternative.apart[0], alternative.apart[-1])
    candidates, _ = FAMILY.candidates(step.problem, target)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], target)
    assert all(FAMILY.refuse(step.problem, each, target) is None for each in candidates)
    assert not any(FAMILY.variants(step.problem, each, target) for each in candidates)
    # Blocks share statistics in clusters, which came with Hopper.
    assert any(tile_of(each).parts > 1 for each in candidates) == (target is H200)


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(block())
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        f"conv(f16[4,96,14,14] channels_last, f16[96,1,7,7], f32[96]) {POINT} groups=96 | "
        "transpose(_) perm=[0,2,3,1] | norm(_, f32[96], f32[96]) statistic=variance axes=[3] "
        "epsilon=1e-06 -> f16[4,14,14,96]"
    )
    assert in_words(problem) == (
        "7x7 convolution, 96 to 96 channels in 96 groups, 14x14, batch 4 + bias then norm of 4x14x14x96"
    )


def test_its_call_has_both_and_rows_may_lie_apart() -> None:
    (alternative,), _ = proposed(IN_PLACE)
    (step,) = alternative.steps
    candidate = FAMILY.candidates(step.problem, H200)[0][0]
    at = StepExpressions(("x", "w", "s", "h"), ("y",), (None, "pw", "ps", "ph"), (128,))
    code = FAMILY.emit(step.problem, candidate, H200, at)
    assert code.includes == ("bolt_grouped/normed.h",)
    assert code.call == "kernel.run(r, x, y, bolt::portable::chain(bolt::portable::apply(bolt::portable::Relu{})));"
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::NormedConv<{SPACE}::BandTile<{SPACE}::Window<7, 7, 1, 1, 1, 1>, ")
    assert ".y_row = 128" in code.member_arguments
    assert ".centred = true, .epsilon = " in code.member_arguments
    assert 'Constant{ps, "ps", 384}' in code.member_arguments
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert unit.text.startswith('#include "bolt_grouped/normed_kernel.h"\n')


REFUSED = {
    "another reader": (block(more='%o = tanh(%y) // "o"', outputs="%z, %o"), "2 nodes read what lies between"),
    "an output": (block(outputs="%z, %t"), "what lies between is an output of the graph"),
    "groups of several": (
        block(groups=24, w="96,4,7,7"), "convolves single channels, here groups have 4 to 4",
    ),
    "odd channels": (
        block(100, 100, "100,1,7,7", scale="const %s: f32[100] #"),
        "loads and stores 8 channels at once, 100 is no multiple",
    ),
    "another tensor between": (
        block(stages=" | add(%o)", inputs=", %o: f32[4,96,14,14]"), "another tensor joins in between",
    ),
    "other statistics": (
        block(norm="statistic=l2 axes=[3]"), "normalises by mean and variance or by mean squares, not by l2",
    ),
    "a scale of the input": (
        block(scale="", inputs=", %s: f32[96]"), "scale and bias must be constants, to be kept when the engine loads",
    ),
    "one scale": (
        block(scale="const %s: f32[1] #"), "scale and bias have a number for each of 96 channels, not 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("of", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals(of: Graph, reason: str) -> None:
    assert proposed(of) == ([], [("a, t, n", reason)])


@pytest.mark.parametrize("norm", ["axes=[2,3]", "axes=[2]"])
def test_other_normalisations_are_left_to_others(norm: str) -> None:
    of = block(scale="const %s: f32[14,96] #", norm=f"statistic=variance {norm}")
    assert proposed(of) == ([], [])


def test_blocks_without_channels_or_room_are_refused() -> None:
    (alternative,), _ = proposed(block())
    _, refusals = FAMILY.candidates(alternative.steps[0].problem, T4)
    reasons = {refusal.reason for refusal in refusals}
    assert "blocks share statistics in clusters on Hopper alone" in reasons
    assert any("bytes of shared memory, a block has" in reason for reason in reasons)


@pytest.mark.parametrize("persistent", ["always", "never"])
def test_an_engine_has_the_step_where_the_recipe_wants_it(persistent: str) -> None:
    of = block()
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert ("normed" in kinds) == (persistent == "always")
    for each in chains_of(engine.graphs[0], engine.plan, engine.chains, H200).legal:
        assert each.split is not None
        assert each.split.nbytes == 2 * 2 * 4 * 96 * 14 * 14
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)
