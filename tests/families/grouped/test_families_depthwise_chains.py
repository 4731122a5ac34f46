"""Depthwise convolutions in one kernel with the products around them: what is proposed, why not, and the C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, Candidate, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.chain import chain_shape, tile_of
from bolt_build.families.grouped.neighbours.inverted_tile import ExpandedTile, InvertedTile
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.chains import chains_of
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import HOST, Target, target_named

H200, T4 = target_named("h200"), target_named("t4")
FAMILY = Grouped()
SPACE = "bolt::grouped"
CLIP = "bolt::portable::Chain<bolt::portable::Apply<bolt::portable::Clip>>"


def inverted(
    stages: str = " | clip beta=6.0", groups: int = 144, w: str = "144,1,3,3", v: str = "24,144,1,1", behind: str = "",
    more: str = "", outputs: str = "%z", up: str = "",
) -> Graph:  # fmt: skip
    """A 1x1 convolution `a`, a depthwise one `b`, and another 1x1 `c` with the residual."""
    return graph(f"""
        graph g batch=4 (%x: f32[4,24,28,28]) -> ({outputs}) {{
          const %u: f32[144,24,1,1] #
          const %a: f32[144] #
          const %w: f32[{w}] #
          const %b: f32[{w.split(",")[0]}] #
          const %v: f32[{v}] #
          const %c: f32[{v.split(",")[0]}] #
          %p = conv(%x, %u, %a) {up}| clip beta=6.0 // "a"
          %y = conv(%p, %w, %b) pads_begin=[1,1] pads_end=[1,1] groups={groups}{stages} // "b"
          %z = conv(%y, %v, %c{", %x" * (not behind)}) {behind or "| add(%x)"} // "c"
          {more}
        }}""")


def proposed(
    of: Graph, node: int, target: Target = H200, without: str = "a, b"
) -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of several nodes from one of them on, but for the first two, and why no more."""
    found, refusals = FAMILY.propose(of, of.nodes[node], target, DType.F16)
    about = [(each.what, each.reason) for each in refusals if "," in each.what and each.what != without]
    return [each for each in found if len(each.region) > 1 and ", ".join(each.region) != without], about


# What is proposed.


@pytest.mark.parametrize(("node", "region"), [(0, ("a", "b", "c")), (1, ("b", "c"))])
@pytest.mark.parametrize("target", [H200, T4], ids=lambda target: target.name)
def test_a_depthwise_convolution_and_the_products_around_it_are_one_kernel(
    node: int, region: tuple[str, ...], target: Target
) -> None:
    (alternative,), reasons = proposed(inverted(), node, target)
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (region, [])
    assert [each.op for each in parts(step.problem)] == [each.op for each in alternative.apart]
    candidates, _ = FAMILY.candidates(step.problem, target)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], target)
    assert all(FAMILY.refuse(step.problem, each, target) is None for each in candidates)
    assert not any(FAMILY.variants(step.problem, each, target) for each in candidates)


def test_a_depthwise_convolution_and_the_product_in_front_are_one_kernel() -> None:
    """Whatever reads what they leave, such as squeeze and excitation."""
    of = inverted(more='%t = tanh(%y) // "t"', outputs="%z, %t")
    (alternative,), _ = proposed(of, 0, without="")
    (step,) = alternative.steps
    assert (alternative.region, step.outputs, step.pitched) == (("a", "b"), ("y",), (0,))
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    prepare = (None, "p1", "p2", "p3", "p4")
    code = FAMILY.emit(step.problem, candidates[0], H200, StepExpressions(("x", "", "", "", ""), ("y",), prepare))
    assert code.call == "kernel.run(r, x, y);"
    assert code.member_type is not None
    assert code.member_type.startswith(
        f"{SPACE}::ExpandedConv<{SPACE}::ExpandedTile<{SPACE}::Window<3, 3, 1, 1, 1, 1>, "
    )
    (unit,) = FAMILY.units([(step.problem, candidates[0])], H200)
    assert unit.text.startswith('#include "bolt_grouped/expanded_kernel.h"\n')


@pytest.mark.parametrize(("halos", "cxx"), [(2, 2), (1, 0)])
def test_slabs_of_channels_lie_in_turn_where_a_block_has_one_halo(halos: int, cxx: int) -> None:
    (alternative,), _ = proposed(inverted(), 0)
    (step,) = alternative.steps
    chain = chain_shape(step.problem)
    tile = InvertedTile(8, 16, 2, 1, 48, 1, halos)
    candidate = Candidate("grouped", tile.parameters)
    assert (dict(tile.parameters).get("halos"), tile_of(candidate)) == ({2: None, 1: 1}[halos], tile)
    assert FAMILY.refuse(step.problem, candidate, H200) is None
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert f", 32, 8, 2, 2, 1, 48, {cxx}, 3, 8, 8>" in unit.text
    # Of 229,376 bytes: four blocks of a multiprocessor in the place of two.
    assert tile.shared_bytes(chain) == {2: 76544, 1: 49024}[halos]


def test_one_slab_alone_does_not_lie_in_turn() -> None:
    """Of 144 channels in two parts."""
    of = inverted(more='%t = tanh(%y) // "t"', outputs="%z, %t")
    (alternative,), _ = proposed(of, 0, without="")
    stated = "kind=expanded rows=8 columns=16 pairs=2 across=1 slab=80 parts=2 halos=1"
    candidate = Candidate("grouped", ExpandedTile(8, 16, 2, 1, 80, 2, 1).parameters)
    assert str(candidate) == f"grouped {stated}"
    assert FAMILY.refuse(alternative.steps[0].problem, candidate, H200) == f"grouped {stated} is none of its candidates"


@pytest.mark.parametrize(("slab", "parts", "halos"), [(48, 1, 2), (48, 2, 2), (64, 2, 2), (80, 2, 1), (16, 2, 2)])
def test_a_block_with_one_slab_of_channels_has_one_halo(slab: int, parts: int, halos: int) -> None:
    """Of 144 channels: nothing is expanded while another slab is convolved."""
    of = inverted(more='%t = tanh(%y) // "t"', outputs="%z, %t")
    (alternative,), _ = proposed(of, 0, without="")
    (step,) = alternative.steps
    sizes = {"rows": 8, "columns": 16, "pairs": 2, "across": 1, "slab": slab, "parts": parts}
    candidate = Candidate("grouped", (("kind", "expanded"), *sizes.items()))
    assert FAMILY.refuse(step.problem, candidate, H200) is None
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert f", 32, 8, 2, 2, 1, {slab}, {halos}, 8, 8>" in unit.text


def test_a_residual_that_windows_read_keeps_its_memory() -> None:
    """Neighbours still read the input that is also added; of two operators it is no input of the window."""
    shares = [proposed(inverted(), node)[0][0].steps[0].may_share for node in (0, 1)]
    assert shares == [(), ((5, 0),)]


def test_its_problem_says_all_of_it_in_one_line() -> None:
    (alternative,), _ = proposed(inverted(), 0)
    point = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"
    assert describe_problem(alternative.steps[0].problem) == (
        f"conv(f16[4,24,28,28] channels_last, f16[144,24,1,1], f32[144]) {point} | clip beta=6.0 | "
        "conv(_, f16[144,1,3,3], f32[144]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=144 | "
        f"clip beta=6.0 | conv(_, f16[24,144,1,1], f32[24], f16[4,24,28,28] channels_last) {point} | add(@7) -> "
        "f16[4,24,28,28] channels_last"
    )


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(inverted(), 0)
    assert in_words(alternative.steps[0].problem) == (
        "1x1 convolution, 24 to 144 channels, 28x28, batch 4 + bias + clip then 3x3 convolution, 144 to 144 channels "
        "in 144 groups, 28x28, batch 4 + bias + clip then 1x1 convolution, 144 to 24 channels, 28x28, batch 4 + bias + "
        "residual"
    )


NOT_BY_POINTS = "the second convolution is not 1x1 with a stride of one, without padding and without groups"
REFUSED = {
    "another reader": (inverted(more='%t = tanh(%y) // "t"', outputs="%z, %t"), "2 nodes read what lies between"),
    "an output": (inverted(outputs="%z, %y"), "what lies between is an output of the graph"),
    "a stride behind": (inverted(behind="strides=[2,2]"), NOT_BY_POINTS),
    "groups of several": (
        inverted(groups=36, w="144,4,3,3"), "keeps results of single channels in registers, here groups have 4 to 4",
    ),
    "a reciprocal": (inverted(stages=" | reciprocal"), "the zeros that pad channels have no reciprocal"),
}  # fmt: skip


@pytest.mark.parametrize(("of", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals(of: Graph, reason: str) -> None:
    assert proposed(of, 0) == ([], [("a, b, c", reason)])
    assert proposed(of, 1) == ([], [("b, c", reason)])


def test_squeeze_and_excitation_needs_the_whole_image_first() -> None:
    of = graph("""
        graph g batch=4 (%x: f32[4,96,28,28]) -> (%z) {
          const %w: f32[96,1,3,3] #
          const %v: f32[24,96,1,1] #
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] groups=96 | silu // "a"
          %m = reduce(%y) mode=mean axes=[2,3] keepdims=true // "m"
          %g = sigmoid(%m) // "g"
          %s = mul(%y, %g) // "s"
          %z = conv(%s, %v) // "b"
        }""")
    (reason,) = [reason for what, reason in proposed(of, 0, without="")[1] if what == "a, b"]
    assert reason == "the gate in front of the product takes the mean of all that the convolution leaves of an image"


@pytest.mark.parametrize("target", [H200, T4], ids=lambda target: target.name)
def test_a_pooling_behind_the_convolution_is_no_product(target: Target) -> None:
    """The product in front may still join; in an engine the pooling is a step of its own."""
    of = graph("""
        graph g batch=2 (%x: f32[2,16,12,12]) -> (%z) {
          const %u: f32[16,16,1,1] #
          const %w: f32[16,1,3,3] #
          %p = conv(%x, %u) | relu // "a"
          %y = conv(%p, %w) groups=16 | relu // "b"
          %z = pool(%y) mode=max kernel=[2,2] strides=[2,2] // "c"
        }""")
    assert [each.region for each in proposed(of, 0, target, without="")[0]] == [("a", "b")]
    assert proposed(of, 1, target, without="") == ([], [])
    engine = plan_engine([of], recipe(), TargetSpec(target.name, "fp16"), target, load(target))
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, engine.plan.plans[0], inputs), evaluate(of, inputs), 2e-2)


def test_hosts_have_none() -> None:
    assert proposed(inverted(), 1, HOST)[0] == []


TOO_LARGE = "takes 269184 bytes of shared memory, a block has 232448"
STATED = "kind=chain rows=12 columns=16 pairs=2 across=1 slab=48 stages=3 parts=1"


@pytest.mark.parametrize(
    ("node", "changed", "reason"),
    [
        (1, {}, None),
        (1, {"rows": 12}, f"grouped {STATED} is none of its candidates"),
        (1, {"rows": 16, "columns": 32, "slab": 96, "stages": 2}, TOO_LARGE),
        (0, {"kind": "inverted"}, None),
    ],
)  # fmt: skip
def test_tiles_that_a_lock_may_name(node: int, changed: dict[str, int | str], reason: str | None) -> None:
    (alternative,), _ = proposed(inverted(), node)
    sizes = {"rows": 8, "columns": 16, "pairs": 2, "across": 1, "slab": 48, "stages": 3, "parts": 1}
    known: dict[str, int | str] = {"kind": "chain", **sizes, **changed}
    if known["kind"] == "inverted":
        del known["stages"]
    assert FAMILY.refuse(alternative.steps[0].problem, Candidate("grouped", tuple(known.items())), H200) == reason


# The C++ that calls them.


def test_a_call_names_weights_and_layouts_of_all_three() -> None:
    (alternative,), _ = proposed(inverted(), 0)
    (step,) = alternative.steps
    tile = {"kind": "inverted", "rows": 8, "columns": 16, "pairs": 2, "across": 1, "slab": 32, "parts": 1}
    candidate = Candidate("grouped", tuple(tile.items()))
    prepare = (None, *(f"p{index}" for index in range(1, 7)), None)
    names = tuple(f"x{index}" for index in range(8))
    code = FAMILY.emit(step.problem, candidate, H200, StepExpressions(names, ("y",), prepare, (32,)))
    clip = "bolt::portable::chain(bolt::portable::apply(bolt::portable::Clip{0.0f, 6.0f}))"
    assert code.includes == ("bolt_grouped/chained.h",)
    assert code.call == (
        "kernel.run(r, x0, y, bolt::portable::chain(bolt::portable::combine<bolt::portable::Add>("
        "bolt::portable::same<bolt::portable::f16>(x7))));"
    )
    window = f"{SPACE}::Window<3, 3, 1, 1, 1, 1>"
    kernel = f"{SPACE}::InvertedTile<{window}, 32, 8, 2, 2, 1, 32, 2, 3, 8, 8>"
    assert code.member_type == f"{SPACE}::InvertedResidual<{kernel}, {CLIP}, {CLIP}>"
    assert code.member_arguments == (
        f"{SPACE}::InvertedArguments{{.chain = {SPACE}::ChainArguments{{.conv = {SPACE}::Arguments{{.batch = 4, "
        ".height = 28, .width = 28, .channels = 24, .out_h = 28, .out_w = 28, .out_channels = 24, .pad_h = 1, "
        ".pad_w = 1, .run = 1, .y_row = 32}, .parts = 1}, .expanded = 144}, "
        f'{SPACE}::Constant{{p1, "p1", 6912}}, {SPACE}::Fragments{{.groups = 1, .joined = 1, .in_each = 24, '
        ".out_each = 144, .taps = 1, .to_units = 1, .to_tiles = 20, .instruction = 16}, "
        f'{SPACE}::Constant{{p2, "p2", 576}}, 160, {clip}, '
        f'{SPACE}::Constant{{p3, "p3", 2592}}, {SPACE}::Columns{{.channels = 144, .rows = 3, .columns = 3, .tall = 4, '
        f'.to_channels = 160}}, {SPACE}::Constant{{p4, "p4", 576}}, 160, {clip}, '
        f'{SPACE}::Constant{{p5, "p5", 6912}}, {SPACE}::Fragments{{.groups = 1, .joined = 1, .in_each = 144, '
        ".out_each = 24, .taps = 1, .to_units = 1, .to_tiles = 3, .instruction = 16}, "
        f'{SPACE}::Constant{{p6, "p6", 96}}, 24'
    )
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert unit.text.startswith('#include "bolt_grouped/inverted_kernel.h"\n')


# In an engine.


@pytest.mark.parametrize(("wish", "kernels"), [("always", ["a b c"]), ("never", ["a", "b", "c"])])
def test_the_recipe_says_whether_all_three_are_one_step(wish: str, kernels: list[str]) -> None:
    of = inverted()
    asked = replace(recipe(), policy=Policy(FusionPolicy(True, wish)))
    engine = plan_engine([of], asked, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    chains = [each for each in engine.chains if each.fused]
    assert [" ".join(each.chain.region) for each in chains] == [each for each in kernels if " " in each]
    assert sum(step.problem.op.kind in ("conv", "chain") for step in plan.steps) == len(kernels)
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)


def test_the_gain_of_three_is_split_over_both_tensors_between() -> None:
    asked = replace(recipe(), policy=Policy(FusionPolicy(True, "always")))
    of = inverted()
    engine = plan_engine([of], asked, TargetSpec("h200", "fp16"), H200, load(H200))
    (shown,) = [each for each in chains_of(of, engine.plan, engine.chains, H200).legal if each.nodes == ("a", "b", "c")]
    assert shown.split is not None
    assert shown.split.nbytes == 2 * 2 * 2 * 4 * 144 * 28 * 28
    assert shown.split.launch == pytest.approx(2e6 * H200.launch_seconds)
