"""Depthwise convolutions that also leave the means of their results, as squeeze and excitation takes them."""

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
from bolt_build.families.grouped import means
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import Sums
from bolt_build.families.grouped.shape import shape_of
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


def squeezed(
    groups: int = 96, mean: str = "mode=mean axes=[2,3] keepdims=true", w: str = "96,1,3,3", batch: int = 4,
    extent: int = 28,
) -> Graph:  # fmt: skip
    """A convolution `a`, its mean `m`, and another reader of what it leaves."""
    return graph(f"""
        graph g batch={batch} (%x: f32[{batch},96,{extent},{extent}]) -> (%g, %z) {{
          const %w: f32[{w}] #
          const %b: f32[96] #
          %y = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] groups={groups} | silu // "a"
          %m = reduce(%y) {mean} // "m"
          %g = tanh(%m) // "g"
          %z = tanh(%y) // "z"
        }}""")


def proposed(of: Graph) -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of both nodes, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], H200, DType.F16)
    about = [(each.what, each.reason) for each in refusals if "," in each.what]
    return [each for each in found if len(each.region) > 1], about


def test_a_depthwise_convolution_and_the_means_of_its_results_are_one_step() -> None:
    (alternative,), reasons = proposed(squeezed())
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("a", "m"), [])
    assert (step.outputs, step.pitched, step.may_share) == (("y", "m"), (0,), ())
    assert alternative.apart == parts(step.problem)
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    assert {dict(each.parameters)["kind"] for each in candidates} == {"depthwise", "rows", "sliding"}


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(squeezed())
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        "conv(f16[4,96,28,28] channels_last, f16[96,1,3,3], f32[96]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
        "dilations=[1,1] groups=96 | silu | reduce(_) mode=mean axes=[2,3] -> "
        "f16[4,96,28,28] channels_last, f16[4,96,1,1] channels_last"
    )
    assert in_words(problem) == (
        "3x3 convolution, 96 to 96 channels in 96 groups, 28x28, batch 4 + bias + silu then mean over axes 2, 3 of "
        "4x96x28x28"
    )


def test_its_call_names_both_outputs_and_the_tiles_of_an_image() -> None:
    (alternative,), _ = proposed(squeezed())
    (step,) = alternative.steps
    (candidate, *_) = [
        each
        for each in FAMILY.candidates(step.problem, H200)[0]
        if dict(each.parameters)["kind"] == "rows" and means.split(each)[1] == means.SECOND
    ]
    at = StepExpressions(("x", "w", "b"), ("y", "m"), (None, "pw", "pb"), (128, 0))
    code = FAMILY.emit(step.problem, candidate, H200, at)
    assert code.includes == ("bolt_grouped/averaged.h",)
    assert code.call == "kernel.run(r, x, y, m, bolt::portable::chain(bolt::portable::apply(bolt::portable::Silu{})));"
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::AveragedConv<{SPACE}::WithSums<{SPACE}::RowsTile<")
    tiles = -(-28 // int(dict(candidate.parameters)["rows"])) * -(-28 // int(dict(candidate.parameters)["columns"]))
    assert code.member_arguments.startswith(f"{tiles}, 784, {SPACE}::Arguments{{.batch = 4")
    assert ".y_row = 128" in code.member_arguments
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert f"{SPACE}::WithSums<{SPACE}::RowsTile<" in unit.text
    assert not code.counts


ROWS = (("kind", "rows"), ("vector", 4), ("lanes", 24), ("columns", 28), ("each", 4), ("rows", 7), ("stages", 4))
TILED = (("kind", "depthwise"), ("vector", 4), ("lanes", 8), ("rows", 4), ("columns", 8), ("each", 2))


def rows_in(way: str) -> Candidate:
    """Four tiles an image."""
    return means.joined(Candidate("grouped", ROWS, (("run", 1),)), way)


def tiled_in(way: str, run: int) -> Candidate:
    """28 tiles an image, three parts of the channels."""
    return means.joined(Candidate("grouped", (*TILED, ("weights", "registers")), (("run", run),)), way)


def problem_of_both(of: Graph) -> KernelProblem:
    return proposed(of)[0][0].steps[0].problem


@pytest.mark.parametrize(("way", "cluster", "counts"), [(means.LAST, "false", True), (means.CLUSTER, "true", False)])
def test_blocks_of_an_image_put_means_together_themselves(way: str, cluster: str, counts: bool) -> None:
    problem, candidate = problem_of_both(squeezed()), rows_in(way)
    assert FAMILY.refuse(problem, candidate, H200) is None
    assert way in {means.split(each)[1] for each in FAMILY.candidates(problem, H200)[0]}
    at = StepExpressions(("x", "w", "b"), ("y", "m"), (None, "pw", "pb"), (0, 0))
    code = FAMILY.emit(problem, candidate, H200, at)
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::ConvWithMeans<{SPACE}::RowsTile<")
    assert code.member_type.endswith(f"8>, {cluster}>")
    assert code.member_arguments.startswith(f"4, 784, {SPACE}::Arguments{{.batch = 4")
    assert (code.includes, code.counts) == (("bolt_grouped/averaged.h",), counts)
    assert code.call == "kernel.run(r, x, y, m, bolt::portable::chain(bolt::portable::apply(bolt::portable::Silu{})));"
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert unit.text.startswith('#include "bolt_grouped/rows_kernel.h"\n#include "bolt_grouped/image_means.h"\n\n')
    assert f"launch(\n    {SPACE}::WithMeans<{SPACE}::RowsTile<" in unit.text


def test_blocks_share_an_image_whose_tiles_are_whole_runs() -> None:
    """Or have whole images, and are not counted."""
    at, few = StepExpressions(("x", "w", "b"), ("y", "m"), (None, "pw", "pb"), (0, 0)), squeezed()
    code = FAMILY.emit(problem_of_both(few), tiled_in(means.CLUSTER, 4), H200, at)
    assert code.member_arguments.startswith("7, 784, ")
    small = replace(
        tiled_in(means.LAST, 2),
        parameters=(*TILED[:3], ("rows", 8), *TILED[4:], ("weights", "registers"), ("sums", "last")),
    )
    code = FAMILY.emit(problem_of_both(squeezed(extent=7)), small, H200, at)
    assert (code.member_arguments[:7], code.counts) == ("1, 49, ", False)


@pytest.mark.parametrize(
    ("candidate", "target", "batch", "reason"),
    [
        (rows_in(means.CLUSTER), T4, 4, "blocks form clusters from sm_90 on"),
        (rows_in(means.LAST), T4, 4, None),
        (rows_in("first"), H200, 4, f"{rows_in('first')} is none of its candidates"),
        (tiled_in(means.CLUSTER, 1), H200, 4, "28 blocks of an image are more than the 8 of a cluster"),
        (tiled_in(means.LAST, 8), H200, 4, "28 tiles of an image are no whole runs of 8"),
        (tiled_in(means.SECOND, 8), H200, 4, None),
        (tiled_in(means.LAST, 1), H200, 1365, None),
        (
            tiled_in(means.LAST, 1), H200, 1366,
            "4098 parts of images are more than the 4096 that there are counters for",
        ),
    ],
)  # fmt: skip
def test_why_blocks_do_not_add_up_their_sums(
    candidate: Candidate, target: Target, batch: int, reason: str | None
) -> None:
    assert FAMILY.refuse(problem_of_both(squeezed(batch=batch)), candidate, target) == reason


def test_a_block_with_whole_images_has_none_to_form_a_cluster_with() -> None:
    whole = means.joined(Candidate("grouped", (*ROWS[:5], ("rows", 28), ROWS[6]), (("run", 1),)), means.CLUSTER)
    reason = "a block has whole images, and there is none to form a cluster with"
    assert FAMILY.refuse(problem_of_both(squeezed()), whole, H200) == reason


def test_a_cluster_is_predicted_to_take_least_and_the_last_of_several_blocks_most() -> None:
    """As an H200 had it where no block has a whole image: `mean_kernels.json`."""
    problem = problem_of_both(squeezed())
    second, last, cluster = (
        FAMILY.predict(problem, rows_in(way), H200) for way in (means.SECOND, means.LAST, means.CLUSTER)
    )
    assert cluster < second < last
    found = [FAMILY.predict(problem, each, H200) for each in FAMILY.candidates(problem, H200)[0]]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("tiles", "images", "nbytes", "waits"),
    [
        pytest.param(8, 64, 55680, True, id="many blocks that fill shared memory"),
        pytest.param(8, 1, 55680, False, id="few blocks"),
        pytest.param(8, 64, 4096, False, id="blocks that take little"),
        pytest.param(2, 256, 55680, False, id="pairs"),
    ],
)
def test_large_clusters_wait_for_room_where_blocks_fill_shared_memory(
    tiles: int, images: int, nbytes: int, waits: bool
) -> None:
    shape, sums = shape_of(parts(problem_of_both(squeezed()))[0]), Sums.of_tiles(tiles, images, nbytes)
    more = means.seconds(20e-6, shape, sums, means.CLUSTER, 1, H200) - 20e-6
    assert (more > 10e-6, more < 1e-6) == (waits, not waits)


def test_a_block_with_whole_images_is_predicted_to_leave_means_for_nothing() -> None:
    shape, sums = shape_of(parts(problem_of_both(squeezed()))[0]), Sums.of_tiles(1, 64, 4096)
    assert means.seconds(20e-6, shape, sums, means.LAST, 1, H200) == 20e-6


def test_variants_of_a_way_are_of_that_way() -> None:
    problem = problem_of_both(squeezed())
    found = FAMILY.variants(problem, tiled_in(means.LAST, 1), H200)
    assert found == tuple(tiled_in(means.LAST, run) for run in (2, 4))
    assert tiled_in(means.SECOND, 8) in FAMILY.variants(problem, tiled_in(means.SECOND, 1), H200)


@pytest.mark.parametrize(
    "of",
    [
        squeezed(mean="mode=max axes=[2,3] keepdims=true"), squeezed(mean="mode=mean axes=[3] keepdims=true"),
    ],
)  # fmt: skip
def test_other_reductions_are_left_to_others(of: Graph) -> None:
    assert proposed(of) == ([], [])


def test_means_may_be_rows() -> None:
    (alternative,), reasons = proposed(squeezed(mean="mode=mean axes=[2,3] keepdims=false"))
    assert (alternative.steps[0].outputs, reasons) == (("y", "m"), [])
    assert describe_problem(alternative.steps[0].problem).endswith("f16[4,96,28,28] channels_last, f16[4,96]")


def test_tensor_cores_leave_no_sums() -> None:
    found, reasons = proposed(squeezed(groups=12, w="96,8,3,3"))
    assert (found, reasons) == ([], [("a, m", "results of products on tensor cores are not added up")])


@pytest.mark.parametrize("groups", [96, 1])
def test_a_mean_with_an_epilogue_is_a_step_of_its_own(groups: int) -> None:
    """Of depthwise convolutions and of any other: either family says so."""
    of = squeezed(groups, "mode=mean axes=[2,3] keepdims=true | relu", f"96,{96 // groups},3,3")
    family = FAMILY if groups > 1 else Cutlass()
    found, refusals = family.propose(of, of.nodes[0], H200, DType.F16)
    assert all("m" not in each.region for each in found)
    reasons = [each.reason for each in refusals if each.what == "a, m"]
    assert reasons == ["the mean has an epilogue, which a convolution's kernel does not compute"]


def test_volumes_leave_no_sums() -> None:
    of = graph("""
        graph g batch=4 (%x: f32[4,96,8,14,14]) -> (%m) {
          const %w: f32[96,1,3,3,3] #
          %y = conv(%x, %w) pads_begin=[1,1,1] pads_end=[1,1,1] groups=96 // "a"
          %m = reduce(%y) mode=mean axes=[2,3,4] keepdims=true // "m"
        }""")
    assert proposed(of) == ([], [("a, m", "results over volumes are not added up")])


@pytest.mark.parametrize("persistent", ["auto", "never"])
def test_an_engine_has_the_step_where_the_recipe_leaves_a_choice(persistent: str) -> None:
    of = squeezed(batch=8)
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert ("averaged" in kinds) == (persistent == "auto")
    for each in chains_of(engine.graphs[0], engine.plan, engine.chains, H200).legal:
        # The results are written for their other reader, and not read for their means.
        assert each.split is not None
        assert each.split.nbytes == 2 * 8 * 96 * 28 * 28
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)


def expanded(more: str = "", outputs: str = "%g, %z") -> Graph:
    """The same behind a 1x1 convolution `e`, as blocks of EfficientNet have it."""
    return graph(f"""
        graph g batch=4 (%x: f32[4,24,28,28]) -> ({outputs}) {{
          const %u: f32[96,24,1,1] #
          const %c: f32[96] #
          const %w: f32[96,1,5,5] #
          const %b: f32[96] #
          %e = conv(%x, %u, %c) | silu // "e"
          %y = conv(%e, %w, %b) pads_begin=[2,2] pads_end=[2,2] groups=96 | silu // "a"
          %m = reduce(%y) mode=mean axes=[2,3] keepdims=true // "m"
          %g = tanh(%m) // "g"
          %z = tanh(%y) // "z"
          {more}
        }}""")


def test_a_product_in_front_is_in_the_same_kernel() -> None:
    found, reasons = proposed(expanded())
    (alternative,) = [each for each in found if "m" in each.region]
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("e", "a", "m"), [])
    assert (step.inputs, step.outputs, step.pitched) == (("x", "u", "c", "w", "b"), ("y", "m"), (0,))
    assert alternative.apart == parts(step.problem)
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    tile = (
        ("kind", "expanded"),
        ("rows", 14),
        ("columns", 16),
        ("pairs", 1),
        ("across", 1),
        ("slab", 32),
        ("parts", 1),
    )
    at = StepExpressions(("x", "", "", "", ""), ("y", "m"), (None, "pu", "pc", "pw", "pb"))
    # A sum for each strip of each tile of an image of 784 positions; or for each of these, in one kernel.
    for way, sums, text in (
        (means.SECOND, 4 * 14, f"AveragedExpanded<{SPACE}::WithSums<{SPACE}::ExpandedTile<"),
        (means.LAST, 4, f"ExpandedWithMeans<{SPACE}::ExpandedTile<"),
        (means.CLUSTER, 4, f"ExpandedWithMeans<{SPACE}::ExpandedTile<"),
    ):
        candidate = means.joined(Candidate("grouped", tile), way)
        assert FAMILY.refuse(step.problem, candidate, H200) is None
        code = FAMILY.emit(step.problem, candidate, H200, at)
        assert (code.includes, code.call) == (("bolt_grouped/averaged.h",), "kernel.run(r, x, y, m);")
        assert code.member_type is not None
        assert code.member_type.startswith(f"{SPACE}::{text}")
        assert code.member_arguments.startswith(f"{sums}, 784, {SPACE}::InvertedArguments{{")
        assert code.counts == (way == means.LAST)
        (unit,) = FAMILY.units([(step.problem, candidate)], H200)
        with_means = f"WithMeans<{SPACE}::ExpandedTile<" if way else f"WithSums<{SPACE}::ExpandedTile<"
        assert f"launch_chain(\n    {SPACE}::{with_means}" in unit.text


def test_what_lies_between_must_have_no_other_reader() -> None:
    found, reasons = proposed(expanded(more='%o = tanh(%e) // "o"', outputs="%g, %z, %o"))
    assert found == []
    assert reasons == [(what, "2 nodes read what lies between") for what in ("e, a", "e, a, m")]


def test_an_engine_with_all_three_computes_the_same() -> None:
    of = expanded()
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent="auto")))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert [kind for kind in kinds if kind != "convert"] == ["averaged", "activation", "activation"]
    (shown,) = [
        each for each in chains_of(engine.graphs[0], engine.plan, engine.chains, H200).legal if len(each.nodes) == 3
    ]
    assert shown.split is not None
    # What the product leaves is neither written nor read, what the convolution leaves is not read for its means.
    assert shown.split.nbytes == (2 + 1) * 2 * 4 * 96 * 28 * 28
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)
