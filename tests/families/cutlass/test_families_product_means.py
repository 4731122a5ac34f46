"""Convolutions on tensor cores that also leave the means of their results: the ends of networks, whose results nobody
else reads, and squeezes."""

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
from bolt_build.families.cutlass.kinds.norms.mean_tiles import MeanBandTile, MeanGroupTile, MeanWgmmaTile
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.chains import chains_of
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import target_named

H200, A100, FAMILY = target_named("h200"), target_named("a100"), Cutlass()
SPACE = "bolt::cutlass_kernels"


Tile = MeanWgmmaTile | MeanBandTile | MeanGroupTile


def headed(
    batch: int = 32, channels: int = 320, filters: int = 1280, kernel: int = 1, extent: int = 7, groups: int = 1,
    mean: str = "mode=mean axes=[2,3] keepdims=true", outputs: str = "%m",
) -> Graph:  # fmt: skip
    """A convolution `a` and its mean `m`."""
    pad = kernel // 2
    return graph(f"""
        graph g batch={batch} (%x: f32[{batch},{channels},{extent},{extent}]) -> ({outputs}) {{
          const %w: f32[{filters},{channels // groups},{kernel},{kernel}] #
          const %b: f32[{filters}] #
          %y = conv(%x, %w, %b) pads_begin=[{pad},{pad}] pads_end=[{pad},{pad}] groups={groups} | silu // "a"
          %m = reduce(%y) {mean} // "m"
        }}""")


def proposed(of: Graph, target: str = "h200") -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of both nodes, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target_named(target), DType.F16)
    about = [(each.what, each.reason) for each in refusals if "," in each.what]
    return [each for each in found if len(each.region) > 1], about


def problem_of_both(of: Graph) -> KernelProblem:
    return proposed(of)[0][0].steps[0].problem


def stated(tile: Tile) -> Candidate:
    return Candidate("cutlass", tile.parameters)


TILE = MeanWgmmaTile(64, 128, 64, False)


def test_a_convolution_and_the_means_that_alone_read_it_are_one_step_that_stores_means() -> None:
    (alternative,), reasons = proposed(headed())
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("a", "m"), [])
    assert (step.inputs, step.outputs, step.pitched, step.may_share) == (("x", "w", "b"), ("m",), (), ())
    assert alternative.apart == parts(step.problem)
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    assert describe_problem(step.problem) == (
        "conv(f16[32,320,7,7] channels_last, f16[1280,320,1,1], f32[1280]) strides=[1,1] pads_begin=[0,0] "
        "pads_end=[0,0] dilations=[1,1] | silu | reduce(_) mode=mean axes=[2,3] -> f16[32,1280,1,1] channels_last"
    )
    assert in_words(step.problem) == (
        "1x1 convolution, 320 to 1280 channels, 7x7, batch 32 + bias + silu then mean over axes 2, 3 of 32x1280x7x7"
    )


@pytest.mark.parametrize("outputs", ["%m", "%m, %y"])
def test_means_may_be_rows(outputs: str) -> None:
    of = headed(mean="mode=mean axes=[2,3] keepdims=false", outputs=outputs)
    (alternative,), reasons = proposed(of)
    (step,) = alternative.steps
    assert (step.outputs[-1], reasons) == ("m", [])
    assert describe_problem(step.problem).endswith("f16[32,1280]")
    assert alternative.apart == parts(step.problem)
    assert FAMILY.refuse(step.problem, stated(TILE), H200) is None


def test_what_others_read_is_stored_as_well() -> None:
    (alternative,), _ = proposed(headed(outputs="%m, %y"))
    (step,) = alternative.steps
    assert (step.outputs, step.pitched) == (("y", "m"), (0,))
    assert describe_problem(step.problem).endswith("f16[32,1280,7,7] channels_last, f16[32,1280,1,1] channels_last")


@pytest.mark.parametrize(
    ("of", "tile", "kernel"),
    [
        (headed(), TILE, f"Gemm<{SPACE}::WarpgroupTile<64, 128, 64, false, 1, 1>, "),
        (headed(kernel=3, channels=64, filters=64), TILE, f"Conv<{SPACE}::WarpgroupTile<64, 128, 64, false, 1, 1>, "),
        (
            headed(kernel=3, channels=64, filters=64), MeanBandTile(64, 64, 64, False, 2),
            f"Conv<{SPACE}::BandTile<64, 64, 64, false, 2, 1, 88, 2, 4, 3, 3, 1, 64, 1>, ",
        ),
        (
            headed(kernel=3, channels=224, filters=224, groups=2),
            MeanGroupTile(TILE, 1),
            f"Conv<{SPACE}::GroupTile<{SPACE}::WarpgroupTile<64, 128, 64, false, 1, 1>>, ",
        ),
    ],
)  # fmt: skip
def test_the_code_is_that_of_the_convolution_with_means_behind_its_epilogue(of: Graph, tile: Tile, kernel: str) -> None:
    problem, at = problem_of_both(of), StepExpressions(("x", "w", "b"), ("m",), (None, "pw", "pb"), (0,), (0, 0, 0))
    stages = f"{SPACE}::Epilogue<{SPACE}::Map<bolt::portable::Silu>>"
    positions = 64 if isinstance(tile, MeanBandTile) else 49
    code = FAMILY.emit(problem, stated(tile), H200, at)
    of_means = f"{SPACE}::WithMeans<{stages}, false>"
    assert code.member_type == f"{SPACE}::LeavesMeans<{SPACE}::{kernel}{of_means}, {SPACE}::AsItIs>>"
    assert code.member_arguments.startswith(f"32, {positions}, 49, {SPACE}::")
    assert f"{SPACE}::with_means<false>({SPACE}::epilogue(" in code.member_arguments
    assert (code.includes, code.counts) == (("bolt_cutlass/plans/leaves_means.h",), False)
    assert code.call == "kernel.run(r, x, nullptr, nullptr, m);"
    (unit,) = FAMILY.units([(problem, stated(tile))], H200)
    assert f"const {of_means}&, void*);" in unit.text


def test_the_call_names_both_outputs_where_results_are_stored() -> None:
    at = StepExpressions(("x", "w", "b"), ("y", "m"), (None, "pw", "pb"), (1344, 0), (0, 0, 0))
    code = FAMILY.emit(problem_of_both(headed(outputs="%m, %y")), stated(TILE), H200, at)
    assert code.call == "kernel.run(r, x, nullptr, y, m);"
    assert ".y_row = 1344" in code.member_arguments
    assert code.member_type is not None
    assert "Silu>>, true>" in code.member_type


@pytest.mark.parametrize(
    ("of", "tile", "reason"),
    [
        (
            headed(), MeanWgmmaTile(128, 128, 64, True),
            "warpgroups that share a tile have one image, and 49 positions are not most of its 128 rows",
        ),
        (headed(extent=14, filters=256), MeanWgmmaTile(256, 128, 64, True), None),
        (
            headed(kernel=3, channels=64, filters=64), MeanBandTile(256, 64, 64, True, 1),
            "warpgroups that share a tile have one image, and 64 positions are not most of its 256 rows",
        ),
        (headed(extent=14), TILE, "an image has 196 positions, a tile 64 rows"),
        (headed(), MeanWgmmaTile(128, 128, 64, False), None),
        (
            headed(kernel=3, channels=64, filters=64, extent=8), MeanBandTile(64, 64, 64, False, 2),
            "an image has 81 positions, a tile 64 rows",
        ),
        (
            headed(kernel=3, channels=224, filters=224, groups=2, extent=14),
            MeanGroupTile(MeanWgmmaTile(128, 128, 64, False), 1),
            "an image has 196 positions, a tile 128 rows",
        ),
    ],
)  # fmt: skip
def test_why_tiles_leave_no_means(of: Graph, tile: Tile, reason: str | None) -> None:
    assert FAMILY.refuse(problem_of_both(of), stated(tile), H200) == reason


def test_slices_leave_none() -> None:
    sliced = Candidate("cutlass", (*TILE.parameters, ("partial", 1)), (("slices", 2),))
    reason = "slices of the depth leave sums that are no results yet"
    assert FAMILY.refuse(problem_of_both(headed(channels=2048)), sliced, H200) == reason


def test_gpus_without_wgmma_leave_none() -> None:
    found, reasons = proposed(headed(), "a100")
    assert (found, reasons) == ([], [("a, m", "needs WGMMA")])


@pytest.mark.parametrize("mean", ["mode=max axes=[2,3] keepdims=true", "mode=mean axes=[3] keepdims=true"])
def test_other_reductions_are_left_to_others(mean: str) -> None:
    assert proposed(headed(mean=mean)) == ([], [])


@pytest.mark.parametrize(
    ("of", "one"),
    [
        (headed(), True),
        (headed(batch=1, channels=512, filters=2048), True),
        (headed(channels=512, filters=512, kernel=3), True),
        (headed(batch=8, channels=1088, filters=768, extent=14, outputs="%m, %y"), True),
        (headed(channels=256, filters=1024, extent=14, outputs="%m, %y"), True),
        (headed(channels=336, filters=336, extent=14, kernel=3, groups=14, outputs="%m, %y"), False),
        (headed(channels=888, filters=888, kernel=3, groups=37, outputs="%m, %y"), False),
        (headed(batch=8, channels=1232, filters=1232, extent=14, kernel=3, groups=11, outputs="%m, %y"), False),
    ],
)
def test_one_kernel_is_predicted_to_take_less_than_two_where_an_h200_took_less(of: Graph, one: bool) -> None:
    problem = problem_of_both(of)
    conv, mean = parts(problem)
    assert (fastest(problem) < fastest(conv) + fastest(mean)) is one


def fastest(problem: KernelProblem) -> float:
    """Predicted seconds of the best kernel of any family."""
    found = [(family, each) for family in load(H200) for each in family.candidates(problem, H200)[0]]
    return min(family.predict(problem, each, H200) for family, each in found)


def test_images_that_no_tile_has_whole_leave_their_means_to_a_kernel_behind() -> None:
    found, reasons = proposed(headed(extent=28))
    assert found == []
    assert ("a, m", "an image has 784 positions, a tile 256 rows") in reasons


@pytest.mark.parametrize("persistent", ["auto", "never"])
def test_an_engine_computes_the_end_of_a_network_in_one_step_where_the_recipe_leaves_a_choice(persistent: str) -> None:
    of = graph("""
        graph g batch=32 (%x: f32[32,320,7,7]) -> (%z) {
          const %w: f32[1280,320,1,1] #
          const %b: f32[1280] #
          const %u: f32[1000,1280,1,1] #
          %y = conv(%x, %w, %b) | silu // "a"
          %m = reduce(%y) mode=mean axes=[2,3] keepdims=true // "m"
          %z = conv(%m, %u) // "z"
        }""")
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert (kinds.count("chain"), kinds.count("reduce")) == ((1, 0) if persistent == "auto" else (0, 1))
    for each in chains_of(engine.graphs[0], engine.plan, engine.chains, H200).legal:
        # The results are neither written nor read.
        assert each.split is not None
        assert each.split.nbytes == 2 * 2 * 32 * 1280 * 7 * 7
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)
