"""BatchNorm and gates that ride in the loads of the product behind them: what is proposed, why not, and the C++."""

from __future__ import annotations

import pytest
from pair_graphs import A100, F16_LAST, FAMILY, H200, T4, proposed
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.families import load
from bolt_build.families.base import Candidate, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_prologue import PrologueTile
from bolt_build.families.cutlass.prologue_kind import images_of
from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target

NAMES = tuple(f"x{index}" for index in range(6))
SPACE = "bolt::cutlass_kernels"


def normalized(
    channels: int = 136, filters: int = 72, stages: str = " | add(%h) | relu", behind: str = "", more: str = "",
    outputs: str = "%z", kernel: str = "1,1", scale: str = "{channels},1,1", batch: int = 4,
) -> Graph:  # fmt: skip
    """A multiplication `a` and a convolution `b`."""
    return graph(f"""
        graph g batch={batch} (%x: f32[{batch},{channels},28,28]) -> ({outputs}) {{
          const %s: f32[{scale.format(channels=channels)}] #
          const %h: f32[{channels},1,1] #
          const %w: f32[{filters},{channels},{kernel}] #
          const %b: f32[{filters}] #
          %y = mul(%x, %s{", %h" * ("%h" in stages)}){stages} // "a"
          %z = conv(%y, %w, %b) {behind} | relu // "b"
          {more}
        }}""")


def gated(pixels: str = "28,28", gate: str = "4,136,1,1", stages: str = "", between: str = "%g, %x") -> Graph:
    """The gate comes first, as torchvision writes it."""
    return graph(f"""
        graph g batch=4 (%x: f32[4,136,{pixels}], %g: f32[{gate}], %r: f32[4,72,{pixels}]) -> (%z) {{
          const %w: f32[72,136,1,1] #
          const %b: f32[72] #
          %y = mul({between}){stages} // "a"
          %z = conv(%y, %w, %b, %r) | add(%r) // "b"
        }}""")


# What is proposed.


@pytest.mark.parametrize("of", [normalized(), gated()], ids=["BatchNorm", "gate"])
def test_a_multiplication_and_the_1x1_behind_it_are_one_kernel(of: Graph) -> None:
    (alternative,), reasons = proposed(of)
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("a", "b"), [])
    assert alternative.apart == parts(step.problem)
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    assert not any(FAMILY.variants(step.problem, each, H200) for each in candidates)
    assert (step.problem.inputs[step.reads_apart[0]].format, step.pitched) == (F16_LAST, (0,))


def test_its_problem_says_all_of_it_in_one_line() -> None:
    (alternative,), _ = proposed(normalized())
    assert describe_problem(alternative.steps[0].problem) == (
        "mul(f16[4,136,28,28] channels_last, f32[136,1,1], f32[136,1,1]) | add(@2) | relu | "
        "conv(_, f16[72,136,1,1], f32[72]) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] | "
        "relu -> f16[4,72,28,28] channels_last"
    )


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(normalized())
    assert in_words(alternative.steps[0].problem) == (
        "mul of 4x136x28x28 and 136x1x1 + constant + relu then 1x1 convolution, 136 to 72 channels, 28x28, batch 4 + "
        "bias + relu"
    )


@pytest.mark.parametrize("target", [A100, T4], ids=lambda target: target.name)
def test_earlier_gpus_have_none(target: Target) -> None:
    assert proposed(normalized(), target) == ([], [("a, b", "needs WGMMA")])


REFUSED = {
    "another reader": (
        normalized(more='%t = tanh(%y) // "t"', outputs="%z, %t"), "2 nodes read what lies between",
    ),
    "an output": (normalized(outputs="%z, %y"), "what lies between is an output of the graph"),
    "a window": (
        normalized(kernel="3,3", behind="pads_begin=[1,1] pads_end=[1,1]"),
        "the convolution behind is not 1x1 with a stride of one, without padding and without groups",
    ),
    "a stride": (
        normalized(behind="strides=[2,2]"),
        "the convolution behind is not 1x1 with a stride of one, without padding and without groups",
    ),
    "channels that are no whole loads": (
        normalized(channels=140), "loads whole rows of 8 channels, 140 are no multiple or too few",
    ),
    "results that are no whole stores": (normalized(filters=76), "stores 8 columns at once, 76 is no multiple"),
    "an expensive activation": (
        normalized(stages=" | add(%h) | silu"),
        "'silu' takes too many instructions to be computed for every column of tiles again",
    ),
    "another function": (
        normalized(stages=" | sub(%h) | relu"),
        "between the scale and the product stands 'binary', which is no activation",
    ),
    "something behind a gate": (gated(stages=" | relu"), "nothing may follow a gate before the product"),
}  # fmt: skip


@pytest.mark.parametrize(("of", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals(of: Graph, reason: str) -> None:
    assert proposed(of) == ([], [("a, b", reason)])


@pytest.mark.parametrize("of", [gated(gate="4,1,28,28"), normalized(scale="1"), gated(between="%x, %x")])
def test_what_is_not_one_number_a_channel_is_not_asked_about(of: Graph) -> None:
    assert proposed(of) == ([], [])


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"images": 8}, "cutlass m=128 n=64 k=64 warpgroups=pingpong prologue=gate images=8 is none of its candidates"),
        ({"m": 64, "k": 128}, None),
        (
            {"k": 128, "n": 128},
            "its accumulators and A operand take 192 registers of a thread, over 176",
        ),
        ({"m": 64, "k": 128, "deep": 2}, None),
        (
            {"deep": 2},
            "cutlass m=128 n=64 k=64 warpgroups=pingpong deep=2 prologue=gate images=2 is none of its candidates",
        ),
        ({"m": 192, "k": 32, "warpgroups": "cooperative"}, None),
        (
            {"m": 256, "warpgroups": "pairs"},
            "its accumulators and A operand take 96 registers of a thread, over 80",
        ),
    ],
)
def test_tiles_that_a_lock_may_name(parameters: dict[str, int | str], reason: str | None) -> None:
    (alternative,), _ = proposed(gated())
    known = {"m": 128, "n": 64, "k": 64, "warpgroups": "pingpong", "prologue": "gate", "images": 2, **parameters}
    order = ("m", "n", "k", "warpgroups", "deep", "prologue", "images")
    stated = tuple((name, known[name]) for name in order if name in known)
    assert FAMILY.refuse(alternative.steps[0].problem, Candidate("cutlass", stated), H200) == reason


@pytest.mark.parametrize(
    ("parameters", "tile"),
    [
        ("m=64 n=64 k=128 warpgroups=pingpong prologue=affine", "64, 64, 128, false"),
        ("m=192 n=64 k=64 warpgroups=cooperative prologue=affine", "192, 64, 64, true"),
        ("m=128 n=64 k=64 warpgroups=pairs prologue=affine", "128, 64, 64, true, bolt::portable::f16, 2, 1"),
        ("m=64 n=64 k=128 warpgroups=pingpong deep=2 prologue=affine", "64, 64, 128, false, bolt::portable::f16, 2, 2"),
    ],
)
def test_a_tile_says_who_shares_it(parameters: str, tile: str) -> None:
    (alternative,), _ = proposed(normalized())
    (step,) = alternative.steps
    (candidate,) = [c for c in FAMILY.candidates(step.problem, H200)[0] if str(c) == f"cutlass {parameters}"]
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert f"{SPACE}::WarpgroupPrologue<{tile}>" in unit.text


def test_the_blocks_of_a_cluster_share_the_depth_of_few_tiles() -> None:
    """One image of 28 x 28 pixels is 13 tiles of 64 rows."""
    (alternative,), _ = proposed(normalized(992, 128, batch=1))
    problem = alternative.steps[0].problem
    found = FAMILY.candidates(problem, H200)[0]
    candidate = next(c for c in found if str(c) == "cutlass n=64 k=64 deep_cluster=4 prologue=affine")
    assert FAMILY.refuse(problem, candidate, H200) is None
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert '#include "bolt_cutlass/units/gemm_sliced_prologue_kernel.h"' in unit.text
    assert f"{SPACE}::SlicedPrologue<64, 64, 4>" in unit.text


def test_a_depth_of_few_steps_is_not_shared() -> None:
    (alternative,), _ = proposed(gated())
    stated = (("n", 128), ("k", 64), ("deep_cluster", 2), ("prologue", "gate"), ("images", 2))
    assert FAMILY.refuse(alternative.steps[0].problem, Candidate("cutlass", stated), H200) == (
        "3 steps are fewer than 2 for each of 2 blocks of a cluster"
    )


@pytest.mark.parametrize(
    ("of", "stated"),
    [
        (normalized(992, 128), "m=64 n=64 k=128 warpgroups=pingpong deep=2 prologue=affine"),
        (normalized(64, 128), "m=64 n=64 k=64 warpgroups=pingpong prologue=affine"),
    ],
    ids=["deep", "shallow"],
)
def test_warpgroups_share_the_depth_of_few_tiles_where_there_is_much_of_it(of: Graph, stated: str) -> None:
    (alternative,), _ = proposed(of)
    first, *_ = FAMILY.candidates(alternative.steps[0].problem, H200)[0]
    assert str(first) == f"cutlass {stated}"


@pytest.mark.parametrize(
    ("batch", "deep", "reason"),
    [
        (1, True, None),
        (1, False, "a narrow tile reads the rows again for every 32 of 128 columns"),
        (4, True, "a narrow tile reads the rows again for every 32 of 128 columns"),
    ],
)
def test_tiles_of_few_columns_share_a_depth_where_they_are_one_wave(batch: int, deep: bool, reason: str | None) -> None:
    (alternative,), _ = proposed(normalized(992, 128, batch=batch))
    tile = PrologueTile(WgmmaTile(64, 32, 128, cooperative=False), deep=2 if deep else 1)
    assert FAMILY.refuse(alternative.steps[0].problem, Candidate("cutlass", tile.parameters), H200) == reason


def test_prologues_have_tiles_that_fill_whole_waves() -> None:
    """25088 rows are 131 tiles of 192, of 132 multiprocessors."""
    (alternative,), _ = proposed(normalized(256, 128, batch=32))
    first, *_ = FAMILY.candidates(alternative.steps[0].problem, H200)[0]
    assert str(first) == "cutlass m=192 n=128 k=64 warpgroups=cooperative prologue=affine"


def test_a_tile_has_gates_of_as_many_images_as_its_rows_may_be_of() -> None:
    """Compared with all places where a tile may begin."""
    for rows, pixels in ((64, 49), (128, 49), (256, 49), (128, 196), (64, 64), (64, 1), (128, 127), (128, 128)):
        spans = {(first + rows - 1) // pixels - first // pixels + 1 for first in range(pixels)}
        assert images_of(rows, pixels) == max(spans)


@pytest.mark.parametrize(("pixels", "most"), [("7,7", 256), ("3,5", 64), ("2,2", 0)])
def test_tiles_of_too_many_images_are_none(pixels: str, most: int) -> None:
    found, _ = proposed(gated(pixels=pixels))
    tiles = [dict(each.parameters) for a in found for each in FAMILY.candidates(a.steps[0].problem, H200)[0]]
    assert max((int(tile["m"]) for tile in tiles), default=0) <= most


# The C++ that calls them.


def test_a_call_names_scales_shifts_and_their_function() -> None:
    (alternative,), _ = proposed(normalized())
    (step,) = alternative.steps
    candidate = FAMILY.candidates(step.problem, H200)[0][0]
    prepare = (None, *(f"p{index}" for index in range(1, 5)))
    code = FAMILY.emit(step.problem, candidate, H200, StepExpressions(NAMES[:5], ("y",), prepare, (80,), (200,)))
    relu = f"{SPACE}::Epilogue<{SPACE}::Map<bolt::portable::Relu>>"
    assert code.includes == ("bolt_cutlass/plans/prologue.h",)
    assert code.call == "kernel.run(r, x0, nullptr, nullptr, y);"
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::PrologueGemm<{SPACE}::WarpgroupPrologue<")
    assert code.member_type.endswith(f">, {SPACE}::Affine<{relu}>, {relu}>")
    assert code.member_arguments == (
        f"{SPACE}::GemmArguments{{.m = 3136, .n = 72, .k = 136, .y_row = 80}}, "
        f"{SPACE}::PrologueArguments{{.rows = 2, .pixels = 784, .x_row = 200}}, "
        f"{SPACE}::Affine<{relu}>{{{SPACE}::epilogue({SPACE}::map(bolt::portable::Relu{{}}))}}, "
        f'{SPACE}::Constant{{p1, "p1"}}, {SPACE}::Constant{{p2, "p2"}}, {SPACE}::Constant{{p3, "p3"}}, '
        f"{SPACE}::Filter{{.outputs = 72, .channels = 136, .rows = 1, .taps = 1, .to_taps = 1, .to_channels = 136}}, "
        f'{SPACE}::Constant{{p4, "p4"}}, {SPACE}::epilogue({SPACE}::map(bolt::portable::Relu{{}}))'
    )


def test_a_call_of_a_gate_names_it_and_the_residual() -> None:
    (alternative,), _ = proposed(gated())
    (step,) = alternative.steps
    candidate = FAMILY.candidates(step.problem, H200)[0][0]
    prepare = (None, None, "p2", "p3", None)
    code = FAMILY.emit(step.problem, candidate, H200, StepExpressions(NAMES[:5], ("y",), prepare))
    assert code.call == "kernel.run(r, x1, x0, x4, y);"
    assert f'{SPACE}::Gate<2>{{}}, {SPACE}::Constant{{nullptr, ""}}' in code.member_arguments
    (unit,) = FAMILY.units([(step.problem, candidate)], H200)
    assert unit.label.startswith("mul | gemm | add, tile ")
    assert f"const {SPACE}::Gate<2>&" in unit.text


# In an engine.


def test_a_dense_block_is_normalized_as_its_products_load_it() -> None:
    """Two layers of a block: what they read are the first channels of one buffer."""
    of = graph("""
        graph g batch=4 (%x: f32[4,64,28,28]) -> (%z) {
          const %s0: f32[64,1,1] #
          const %h0: f32[64,1,1] #
          const %w0: f32[32,64,1,1] #
          const %s1: f32[96,1,1] #
          const %h1: f32[96,1,1] #
          const %w1: f32[32,96,1,1] #
          const %u: f32[64,64,1,1] #
          %p = conv(%x, %u) // "stem"
          %n0 = mul(%p, %s0, %h0) | add(%h0) | relu // "norm0"
          %q = conv(%n0, %w0) // "conv0"
          %c = concat(%p, %q) axis=1 // "concat0"
          %n1 = mul(%c, %s1, %h1) | add(%h1) | relu // "norm1"
          %r = conv(%n1, %w1) // "conv1"
          %d = concat(%p, %q, %r) axis=1 // "concat1"
          %z = tanh(%d) // "end"
        }""")
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = {step.name: step.problem.op.kind for step in plan.steps if not step.view}
    assert (kinds["conv0"], kinds["conv1"]) == ("chain", "chain")
    assert "norm0" not in kinds
    assert "norm1" not in kinds
    assert not any(name.startswith("concat") for name in kinds)
    (first,) = [step for step in plan.steps if step.name == "conv0"]
    assert (first.inputs[0].pitch, first.outputs[0].pitch) == (128, 128)
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)
