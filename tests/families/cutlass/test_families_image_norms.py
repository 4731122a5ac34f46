"""Convolutions and the normalisation of their images in one step: kernels leave mean and squares of parts of images,
and one pass normalises behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, Candidate, KernelProblem, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.norms.moment_tiles import Tile, with_moments
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.families.cutlass.kinds.windows.resident import ResidentTile
from bolt_build.families.cutlass.kinds.windows.rolling import RollingTile
from bolt_build.families.cutlass.settings import Settings
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.space import search_space
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import target_named

H200, A100, FAMILY = target_named("h200"), target_named("a100"), Cutlass()
SPACE = "bolt::cutlass_kernels"
WGMMA = WgmmaTile(128, 64, 64, False)


def normed(
    batch: int = 8, channels: int = 64, filters: int = 64, kernel: int = 3, extent: int = 56, groups: int = 1,
    norm: str = "statistic=variance axes=[2,3] epsilon=1e-05", scale: str = "[64,1,1]", outputs: str = "%z",
    behind: str = "| relu",
) -> Graph:  # fmt: skip
    """A convolution `a` and the normalisation `n` of its images."""
    pad = kernel // 2
    return graph(f"""
        graph g batch={batch} (%x: f32[{batch},{channels},{extent},{extent}]) -> ({outputs}) {{
          const %w: f32[{filters},{channels // groups},{kernel},{kernel}] #
          const %b: f32[{filters}] #
          const %s: f32{scale} #
          const %t: f32{scale} #
          %y = conv(%x, %w, %b) pads_begin=[{pad},{pad}] pads_end=[{pad},{pad}] groups={groups} // "a"
          %z = norm(%y, %s, %t) {norm} {behind} // "n"
        }}""")


def proposed(of: Graph, target: str = "h200") -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of both nodes, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target_named(target), DType.F16)
    about = [(each.what, each.reason) for each in refusals if "," in each.what]
    return [each for each in found if len(each.region) > 1], about


def problem_of_both(of: Graph) -> KernelProblem:
    return proposed(of)[0][0].steps[0].problem


def stated(tile: Tile) -> Candidate:
    settings = Settings(strip=8).named if isinstance(tile, RollingTile) else ()
    return Candidate("cutlass", with_moments(tile).parameters, settings)


def test_a_convolution_and_the_normalisation_of_its_images_are_one_step() -> None:
    (alternative,), reasons = proposed(normed())
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("a", "n"), [])
    assert (step.inputs, step.outputs) == (("x", "w", "b", "s", "t"), ("z",))
    # What the convolution leaves is normalised in its place, so no input may lie there.
    assert (step.pitched, step.may_share) == ((0,), ())
    assert alternative.apart == parts(step.problem)
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    assert {dict(each.parameters)["sums"] for each in candidates} == {"moments"}
    assert describe_problem(step.problem) == (
        "conv(f16[8,64,56,56] channels_last, f16[64,64,3,3], f32[64]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
        "dilations=[1,1] | norm(_, f32[64,1,1], f32[64,1,1]) statistic=variance axes=[2,3] epsilon=1e-05 | relu -> "
        "f16[8,64,56,56] channels_last"
    )
    assert in_words(step.problem) == (
        "3x3 convolution, 64 to 64 channels, 56x56, batch 8 + bias then norm of 8x64x56x56 + relu"
    )


def test_what_others_read_is_stored_as_well() -> None:
    (alternative,), _ = proposed(normed(outputs="%z, %y"))
    (step,) = alternative.steps
    assert (step.outputs, step.pitched) == (("y", "z"), (0, 1))


@pytest.mark.parametrize(
    ("tile", "kernel", "moments", "joining"),
    [
        (WGMMA, "WarpgroupTile<128, 64, 64, false, 1, 1>", (3136, 25088, 128), 128),
        (WgmmaTile(256, 64, 64, True), "WarpgroupTile<256, 64, 64, true, 1, 1>", (3136, 25088, 64), 256),
        (BandTile(128, 64, 64, False, 2), "BandTile<128, 64, 64, false, 2, 1, 248, 2, 4, 3, 3, 1, 64, 1>",
         (57 * 57, 8 * 57 * 57 - 58, 128), 128),
        (ResidentTile(8, 4, False), "ResidentTile<8, 4, false, 3, 3, 8>", (49, 392, 1), 256),
        (RollingTile(16, 64, 2), "RollingTile<64, 64, 1, 3, 3, 16, 2>", (28, 224, 1), 128),
    ],
)  # fmt: skip
def test_the_code_is_that_of_the_convolution_and_of_the_pass(
    tile: Tile, kernel: str, moments: tuple[int, int, int], joining: int
) -> None:
    at = StepExpressions(("x", "w", "b", "s", "t"), ("z",), (None, "pw", "pb", "ps", "pt"), (96,), (0,) * 5)
    code = FAMILY.emit(problem_of_both(normed()), stated(tile), H200, at)
    of_moments = f"{SPACE}::WithMoments<{SPACE}::Epilogue<>>"
    assert code.member_type == f"{SPACE}::NormsImages<{SPACE}::Conv<{SPACE}::{kernel}, {of_moments}, {SPACE}::AsItIs>>"
    positions, rows, granule = moments
    assert code.member_arguments.startswith(
        f"bolt::portable::ImageMoments{{.images = 8, .positions = {positions}, .rows = {rows}, .granule = {granule}, "
        '.channels = 64}, {bolt::portable::PassedConstant{ps, "ps", 256}, '
        'bolt::portable::PassedConstant{pt, "pt", 256}}, '
    )
    assert ".y_row = 96" in code.member_arguments
    assert (code.includes, code.counts) == (("bolt_cutlass/plans/normed_images.h",), False)
    assert code.call == (
        "kernel.run(r, x, nullptr, z, [&](const bolt::portable::ImageMoments& moments, void* joined) { "
        f"bolt::portable::norm_applied<bolt::portable::AppliedShape<64, 1, {joining}, 4>, "
        "bolt::portable::NormVariance, bolt::portable::f16, float, float, bolt::portable::f16>(r, moments, joined, "
        "{3136, 96, 96}, {64, 1, 1, 1, 0}, "
        "1e-05f, z, kernel.constant(0), kernel.constant(1), z, "
        "bolt::portable::chain(bolt::portable::apply(bolt::portable::Relu{}))); });"
    )
    (unit,) = FAMILY.units([(problem_of_both(normed()), stated(tile))], H200)
    assert f"const {of_moments}&, void*);" in unit.text


def test_the_pass_reads_what_is_stored_and_stores_beside_it_where_others_read_it() -> None:
    at = StepExpressions(("x", "w", "b", "s", "t"), ("y", "z"), (None, "pw", "pb", "ps", "pt"), (96, 80), (0,) * 5)
    code = FAMILY.emit(problem_of_both(normed(outputs="%z, %y")), stated(WGMMA), H200, at)
    assert "{3136, 96, 80}" in code.call
    assert ", y, kernel.constant(0), kernel.constant(1), z, " in code.call
    assert ".y_row = 96" in code.member_arguments


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (
            normed(norm="statistic=rms axes=[2,3]"),
            "normalises by mean and variance of whole images, of each channel or of groups of them",
        ),
        (
            normed(scale="[8,64,1,1]"),
            "scale and bias are numbers of channels, not [8, 64, 1, 1]",
        ),
        (
            normed(filters=60, scale="[60,1,1]"),
            "60 channels are no multiple of the 8 that a thread loads at once",
        ),
        (
            normed(filters=4096, scale="[4096,1,1]", kernel=1, extent=7),
            "4096 channels are more than the 2048 of a block's threads",
        ),
        (
            normed(groups=2),
            "kernels of convolutions with groups leave no mean and squares of images",
        ),
        (
            normed(channels=1, filters=64, kernel=7),
            "a row of the product is 2 pixels of an image",
        ),
    ],
)  # fmt: skip
def test_refusals_name_both_and_why(of: Graph, reason: str) -> None:
    found, reasons = proposed(of)
    assert found == []
    assert ("a, n", reason) in reasons


def test_gpus_without_wgmma_leave_none() -> None:
    assert proposed(normed(), "a100") == ([], [("a, n", "needs WGMMA")])


VOLUME = """
    graph g batch=1 (%x: f32[1,64,8,14,14]) -> (%z) {
      const %w: f32[64,192,3,3] #
      const %s: f32[64,1,1,1] #
      const %t: f32[64,1,1,1] #
      %k = stack(%x) axis=2 count=3 stride=1 dilation=1 begin=1 extent=8 channels=192 // "k"
      %i = fold-depth(%k) // "i"
      %y = conv(%i, %w) pads_begin=[1,1] pads_end=[1,1] // "a"
      %v = unfold-depth(%y) depth=8 // "v"
      %z = norm(%v, %s, %t) statistic=variance axes=[2,3,4] epsilon=1e-05 | relu // "n"
    }"""


def test_volumes_are_normalised_in_one_step_with_the_convolution_that_reads_their_depths() -> None:
    of = graph(VOLUME)
    found, reasons = FAMILY.propose(of, of.nodes[0], H200, DType.F16)
    (one,) = (each for each in found if "n" in each.region)
    (step,) = one.steps
    assert (one.region, [each for each in reasons if "n" in each.what.split(", ")]) == (("k", "i", "a", "v", "n"), [])
    assert (step.inputs, step.outputs) == (("x", "w", "s", "t"), ("z",))
    assert [each.op.kind for each in one.apart] == ["stack", "fold-depth", "conv", "unfold-depth", "norm"]
    candidate = FAMILY.candidates(step.problem, H200)[0][0]
    at = StepExpressions(step.inputs, ("z",), (None, "pw", "ps", "pt"), (0,), (0,) * 4)
    code = FAMILY.emit(step.problem, candidate, H200, at)
    assert "ImageMoments{.images = 1, .positions = " in code.member_arguments
    # Pixels of all eight depths.
    assert "{1568, 64, 64}" in code.call


def test_so_are_volumes_whose_depths_are_convolved_by_themselves() -> None:
    of = graph(
        VOLUME.replace("%i = fold-depth(%k)", "%i = fold-depth(%x)").replace("f32[64,192,3,3]", "f32[64,64,3,3]")
    )
    conv = next(node for node in of.nodes if node.name == "a")
    found, _ = FAMILY.propose(of, conv, H200, DType.F16)
    assert [each.region for each in found if "n" in each.region] == [("a", "v", "n")]


def test_slices_leave_none() -> None:
    problem = problem_of_both(normed(channels=512))
    sliced = Candidate("cutlass", (*with_moments(WGMMA).parameters, ("partial", 1)), (("slices", 2),))
    assert FAMILY.refuse(problem, sliced, H200) == "slices of the depth leave sums that are no results yet"


@pytest.mark.parametrize("persistent", ["auto", "never"])
def test_an_engine_normalises_images_in_one_step_where_the_recipe_leaves_a_choice(persistent: str) -> None:
    norm = "statistic=variance axes=[1,2,3] epsilon=1e-05 groups=8"
    of = normed(batch=1, channels=32, filters=32, extent=256, norm=norm, scale="[32,1,1]", outputs="%z, %y")
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert (kinds.count("kept"), kinds.count("norm")) == ((1, 0) if persistent == "auto" else (0, 1))
    if persistent == "never":
        return
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)


@pytest.mark.parametrize("made", ["%v = tanh(%y)", "%v = relu(%x)"])
def test_they_are_apart_where_what_is_added_behind_is_made_of_what_lies_between(made: str) -> None:
    """One kernel could neither wait for that nor begin without it."""
    net = graph(f"""
        graph g batch=2 (%x: f32[2,64,16,16]) -> (%z) {{
          const %w: f32[64,64,3,3] #
          const %s: f32[64,1,1] #
          const %t: f32[64,1,1] #
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "a"
          {made} // "v"
          %z = norm(%y, %s, %t, %v) statistic=variance axes=[2,3] epsilon=1e-05 | add(%v) // "n"
        }}""")
    space = search_space(net, recipe(), TargetSpec("h200", "fp16"), H200, load(H200))
    reason = "'n' reads 'v', which is made of 'y' outside of the kernel"
    assert (reason in {each.reason for each in space.refusals}) is ("%y" in made)
    assert (("a", "n") in {each.region for each in space.alternatives}) is ("%x" in made)
