"""Gated products in one kernel: what is proposed, why not, what is predicted, and the C++."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pair_fakes import with_policy
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, Candidate, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp, Graph, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.selection import PREDICTED
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200, FAMILY = target_named("h200"), Cutlass()
(PORTABLE,) = (each for each in load(H200) if each.name == "portable")
SPACE = "bolt::cutlass_kernels"


def two(columns: int = 3072, depth: int = 768, more: str = "", outputs: str = "%y", right: str = "%v") -> Graph:
    """SwiGLU of two products, the first with a bias."""
    return graph(f"""
        graph g batch=8 (%x: f32[8,512,{depth}]) -> ({outputs}) {{
          const %w: f32[{depth},{columns}] #
          const %v: f32[{depth},{columns}] #
          const %b: f32[{columns}] #
          %g = matmul(%x, %w, %b) | silu // "g"
          %y = matmul(%x, {right}, %g) | mul(%g) // "u"
          {more}
        }}""")


def one(columns: int = 1152) -> Graph:
    """GEGLU of the halves of one product."""
    return graph(f"""
        graph g batch=8 (%x: f32[8,512,768]) -> (%y) {{
          const %w: f32[{2 * columns},768] #
          %p = matmul(%x, %w) transpose_b=true // "p"
          %l = slice(%p) begin=[0,0,0] count=[8,512,{columns}] step=[1,1,1] // "l"
          %r = slice(%p) begin=[0,0,{columns}] count=[8,512,{columns}] step=[1,1,1] // "r"
          %y = gelu(%l, %r) | mul(%r) // "y"
        }}""")


GLU = graph("""
    graph g batch=4 (%x: f32[4,64,100]) -> (%y) {
      const %w: f32[128,64,1] #
      const %b: f32[128] #
      %p = conv(%x, %w, %b) strides=[1] pads_begin=[0] pads_end=[0] dilations=[1] // "p"
      %l = slice(%p) begin=[0,0,0] count=[4,64,100] step=[1,1,1] // "l"
      %r = slice(%p) begin=[0,64,0] count=[4,64,100] step=[1,1,1] // "r"
      %y = sigmoid(%r, %l) | mul(%l) // "y"
    }""")


def proposed(
    of: Graph, target: str = "h200", precision: DType = DType.F16
) -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of all nodes together, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target_named(target), precision)
    return [a for a in found if len(a.region) > 1], [(r.what, r.reason) for r in refusals if "," in r.what]


def test_two_products_are_one_step_that_reads_their_factor_once() -> None:
    (alternative,), reasons = proposed(two())
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("g", "u"), [])
    assert (step.inputs, step.outputs) == (("x", "w", "b", "v"), ("y",))
    assert (step.reads_apart, step.pitched, step.may_share) == ((0,), (0,), ())
    assert [describe_problem(each) for each in alternative.apart] == [
        "matmul(f16[8,512,768], f16[768,3072], f32[3072]) | silu -> f16[8,512,3072]",
        "matmul(f16[8,512,768], f16[768,3072], f16[8,512,3072]) | mul(@2) -> f16[8,512,3072]",
    ]


def test_every_candidate_states_its_gate_and_is_legal() -> None:
    for of in (two(), one(), GLU, two(depth=4096, columns=64)):
        (alternative,), _ = proposed(of)
        problem = alternative.steps[0].problem
        candidates, _ = FAMILY.candidates(problem, H200)
        assert candidates
        assert all(dict(each.parameters)["gate"] == 8 for each in candidates)
        assert all(FAMILY.refuse(problem, each, H200) is None for each in candidates)
        assert alternative.seconds == FAMILY.predict(problem, candidates[0], H200)


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(one())
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        "gated(f16[8,512,768], f16[2304,768]) product=matmul(transpose_b=true) operands=2 first=[gelu] "
        "-> f16[8,512,1152]"
    )
    words = in_words(problem)
    assert words == "gated 8 times 512x768 by 768x1152, gelu times identity"


def test_halves_and_their_gate_are_one_step() -> None:
    (alternative,), _ = proposed(one())
    (step,) = alternative.steps
    assert (alternative.region, step.inputs, step.outputs) == (("p", "l", "r", "y"), ("x", "w"), ("y",))


def test_a_convolution_and_its_gate_are_one_step_channels_last() -> None:
    (alternative,), _ = proposed(GLU)
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        "gated(f16[4,64,100] channels_last, f16[128,64,1], f32[128]) "
        "product=conv(strides=[1] pads_begin=[0] pads_end=[0] dilations=[1]) operands=3 second=[sigmoid] "
        "-> f16[4,64,100] channels_last"
    )


REFUSED = {
    "another reader": (
        two(more='%z = softmax(%g) axis=1 // "z"', outputs="%y, %z"), "h200", DType.F16, "'z' reads 'g' as well",
    ),
    "an output": (two(outputs="%y, %g"), "h200", DType.F16, "'g' is an output of the graph"),
    "odd columns": (
        two(columns=100), "h200", DType.F16, "columns of both sides alternate in runs of 8, 100 are no multiple",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("of", "target", "precision", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals(of: Graph, target: str, precision: DType, reason: str) -> None:
    assert proposed(of, target, precision) == ([], [("g, u", reason)])


def test_two_neighbours_that_are_one_row_are_none_of_two_sides() -> None:
    of = graph("""
        graph g batch=2 (%x: f32[2,3,20,20]) -> (%y) {
          const %w: f32[16,3,3,3] #
          const %v: f32[16,3,3,3] #
          %g = conv(%x, %w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] | silu // "g"
          %y = conv(%x, %v, %g) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] | mul(%g) // "u"
        }""")
    assert proposed(of) == ([], [("g, u", "two neighbours of few channels are one row of the product")])


def test_weights_that_are_computed_are_not_packed() -> None:
    of = graph("""
        graph g batch=8 (%x: f32[8,64], %v: f32[64,32]) -> (%y) {
          const %w: f32[64,32] #
          %g = matmul(%x, %w) | silu // "g"
          %y = matmul(%x, %v, %g) | mul(%g) // "u"
        }""")
    reason = "weights and biases must be constants, to be packed when the engine loads"
    assert proposed(of) == ([], [("g, u", reason)])


@pytest.mark.parametrize("target", ["t4", "a100"])
def test_earlier_gpus_have_kernels_of_warps(target: str) -> None:
    (alternative,), _ = proposed(two(), target)
    candidates, _ = FAMILY.candidates(alternative.steps[0].problem, target_named(target))
    assert all("warp_m" in dict(each.parameters) for each in candidates)


@pytest.mark.parametrize("of", [two(), one()], ids=["two products", "halves of one"])
def test_one_kernel_is_predicted_faster_than_those_apart(of: Graph) -> None:
    (alternative,), _ = proposed(of)
    apart = 0.0
    for problem in alternative.apart:
        if not isinstance(problem.op, Slice):  # halves are read where they lie
            family = FAMILY if isinstance(problem.op, MatMul) else PORTABLE
            apart += family.predict(problem, family.candidates(problem, H200)[0][0], H200)
    assert alternative.seconds < apart


def test_warpgroups_that_share_a_tile_gate_it_in_less_time_than_those_in_turns() -> None:
    """Measured: what warpgroups in turns gate is not hidden by the other's products."""
    (alternative,), _ = proposed(two(depth=2048))
    problem = alternative.steps[0].problem
    known: dict[str, int | str] = {"m": 128, "n": 128, "k": 64, "warpgroups": "pingpong"}
    plain = FAMILY.predict(alternative.apart[0], Candidate("cutlass", tuple(known.items())), H200)
    gated = FAMILY.predict(problem, Candidate("cutlass", (*known.items(), ("gate", 8))), H200)
    shared = {**known, "n": 256, "warpgroups": "cooperative", "gate": 8}
    assert FAMILY.predict(problem, Candidate("cutlass", tuple(shared.items())), H200) < gated
    assert gated < 2 * plain + 1e-5


def test_it_moves_what_it_reads_and_half_of_its_columns() -> None:
    (alternative,), _ = proposed(two())
    problem = alternative.steps[0].problem
    rows, weights, biases = 4096, 2 * 768 * 3072 * 2, 2 * 3072 * 4
    expense = FAMILY.expense(problem)
    assert expense.nbytes == rows * 768 * 2 + weights + biases + rows * 3072 * 2
    assert (expense.flops, expense.why) == (problem.flops, "")


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({}, None),
        ({"n": 80}, "cutlass m=128 n=80 k=64 warpgroups=pingpong gate=8 is none of its candidates"),
        ({"gate": 4}, "cutlass m=128 n=128 k=64 warpgroups=pingpong gate=4 is no kernel"),
    ],
)
def test_tiles_that_a_lock_may_name(parameters: dict[str, int | str], reason: str | None) -> None:
    (alternative,), _ = proposed(two())
    known: dict[str, int | str] = {"m": 128, "n": 128, "k": 64, "warpgroups": "pingpong", "gate": 8}
    known.update(parameters)
    assert FAMILY.refuse(alternative.steps[0].problem, Candidate("cutlass", tuple(known.items())), H200) == reason


def test_a_plain_product_has_no_gated_kernel() -> None:
    of = two(outputs="%y, %g")
    problem = FAMILY.propose(of, of.nodes[0], H200, DType.F16)[0][0].steps[0].problem
    gated = Candidate("cutlass", (("m", 128), ("n", 128), ("k", 64), ("warpgroups", "pingpong"), ("gate", 8)))
    assert FAMILY.refuse(problem, gated, H200) == f"{gated} is no kernel"


def test_the_kernel_and_its_call() -> None:
    (alternative,), _ = proposed(two())
    problem = alternative.steps[0].problem
    candidate = Candidate("cutlass", (("m", 128), ("n", 128), ("k", 64), ("warpgroups", "pingpong"), ("gate", 8)))
    at = StepExpressions(("x", "", "", ""), ("y",), (None, "w", "b", "v"), (3080,), (800,))
    code = FAMILY.emit(problem, candidate, H200, at)
    tile, none = f"{SPACE}::WarpgroupTile<128, 128, 64, false, 1, 1>", f"{SPACE}::Epilogue<>"
    gate = f"{SPACE}::Gated<{SPACE}::Epilogue<{SPACE}::Map<bolt::portable::Silu>>, {none}, {none}, true>"
    assert code.includes == ("bolt_cutlass/plans/gated.h",)
    assert code.member_type == f"{SPACE}::GatedGemm<{tile}, {gate}, {SPACE}::AsItIs>"
    assert code.call == "kernel.run(r, x, nullptr, y);"
    assert code.member_arguments == (
        f"{SPACE}::GemmArguments{{.m = 4096, .n = 6144, .k = 768, .y_row = 3080, .x_row = 800}}, {SPACE}::AsItIs{{}}, "
        f'{SPACE}::Constant{{w, "w"}}, {SPACE}::Constant{{v, "v"}}, '
        f"{SPACE}::Factor{{.n = 3072, .k = 768, .to_k = 768}}, false, "
        f'{SPACE}::Constant{{b, "b"}}, {SPACE}::Constant{{nullptr, ""}}, '
        f"{gate}{{{SPACE}::epilogue({SPACE}::map(bolt::portable::Silu{{}})), {SPACE}::epilogue(), {SPACE}::epilogue()}}"
    )
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert unit.text.startswith('#include "bolt_cutlass/units/gemm_gated_warpgroup_kernel.h"\n')
    assert f"template void {SPACE}::launch_gemm(\n    {tile},\n" in unit.text
    assert unit.label == "gemm tile 128x128x64 pingpong, gated | silu * identity"


def test_a_kernel_without_biases_adds_none() -> None:
    (alternative,), _ = proposed(one())
    (unit,) = FAMILY.units(
        [(alternative.steps[0].problem, FAMILY.candidates(alternative.steps[0].problem, H200)[0][0])], H200
    )
    assert f"{SPACE}::Epilogue<>, {SPACE}::Epilogue<>, false>&" in unit.text


def test_sums_of_slices_come_from_the_kernel_of_any_product() -> None:
    (alternative,), _ = proposed(two(depth=4096, columns=64))
    problem = alternative.steps[0].problem
    sliced = [c for c in FAMILY.candidates(problem, H200)[0] if "partial" in dict(c.parameters)]
    (unit,) = FAMILY.units([(problem, sliced[0])], H200)
    assert "gated" not in unit.text
    at = StepExpressions(("x", "", "", ""), ("y",), (None, "w", "b", "v"))
    assert str(FAMILY.emit(problem, sliced[0], H200, at).member_type).startswith(f"{SPACE}::GatedSplitGemm<")


def planned(of: Graph, persistent: str) -> PlannedEngine:
    recipe = with_policy(persistent)
    return plan_engine([of], recipe, TargetSpec("h200", "fp16"), H200, load(H200), PREDICTED)


def test_a_plan_has_it_and_says_what_it_stands_for() -> None:
    engine = planned(one(), "auto")
    assert [step.problem.op.kind for step in engine.plan.plans[0].steps].count("gated") == 1
    (line,) = [each.reason for each in engine.plan.decisions if each.subject == "batch 8: y"]
    times = re.fullmatch(
        r"behind 'p': predicted (\S+) us in one kernel, predicted (\S+) us and predicted 0.00 us and predicted 0.00 us "
        r"and predicted (\S+) us apart",
        line,
    )
    assert times is not None, line
    together, product, gate = map(float, times.groups())
    assert together < product + gate


def test_a_recipe_that_wants_no_such_kernels_has_none() -> None:
    engine = planned(two(), "never")
    assert "gated" not in [step.problem.op.kind for step in engine.plan.plans[0].steps]
    assert ("g, u", "policy.fusion.persistent is never") in [(each.what, each.reason) for each in engine.plan.refusals]


def test_a_recipe_that_always_wants_them_says_so() -> None:
    engine = planned(two(), "always")
    said = [(each.subject, each.action, each.reason) for each in engine.plan.decisions if each.stage == "persistent"]
    assert ("u", "fused", "behind 'g': policy.fusion.persistent is always") in said


SILU = (EpilogueOp(Activation("silu")),)


def test_the_reference_gates_what_the_products_leave() -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((5, 6)), rng.standard_normal((6, 8))
    left, right = x @ w[:, :4], x @ w[:, 4:]
    wanted = left / (1 + np.exp(-left)) * right
    for op, inputs in (
        (Gated(MatMul(), 2, SILU), [x, w]),
        (Gated(MatMul(), 2, SILU), [x, w[:, :4], w[:, 4:]]),
        (Gated(MatMul(), 2, SILU, neighbours=True), [x, w.reshape(6, 2, 4).swapaxes(1, 2).reshape(6, 8)]),
    ):
        np.testing.assert_allclose(op.evaluate(inputs)[0], wanted, rtol=1e-12)


def test_sides_have_the_same_columns() -> None:
    x, w, v = (TensorType(DType.F32, shape) for shape in ((5, 6), (6, 8), (6, 7)))
    assert Gated(MatMul(), 2).infer([x, w]) == (TensorType(DType.F32, (5, 4)),)
    with pytest.raises(ShapeError, match=r"^\[5, 8\] is no gate of \[5, 7\]$"):
        Gated(MatMul(), 2).infer([x, w, v])
    with pytest.raises(ShapeError, match=r"^7 columns have no halves$"):
        Gated(MatMul(), 2).infer([x, v])


RESIDUALS = {
    "halves": """
        const %w: f32[256,64] #
        %p = matmul(%x, %w) transpose_b=true // "p"
        %l = slice(%p) begin=[0,0,0] count=[8,32,128] step=[1,1,1] // "l"
        %r = slice(%p) begin=[0,0,128] count=[8,32,128] step=[1,1,1] // "r"
        %y = sigmoid(%r, %l, %z) | mul(%l) | add(%z) // "y" """,
    "two products": """
        const %w: f32[64,128] #
        const %v: f32[64,128] #
        %g = matmul(%x, %w) | sigmoid // "g"
        %y = matmul(%x, %v, %g, %z) | mul(%g) | add(%z) // "y" """,
}


@pytest.mark.parametrize("nodes", RESIDUALS.values(), ids=RESIDUALS)
def test_what_is_added_behind_a_gate_is_no_operand_of_a_product(nodes: str) -> None:
    of = graph(f"graph g batch=8 (%x: f32[8,32,64], %z: f32[8,32,128]) -> (%y) {{{nodes}\n}}")
    (alternative,), _ = proposed(of)
    problem = alternative.steps[0].problem
    assert alternative.steps[0].inputs[-1] == "z"
    assert problem.flops == 2 * 2 * (8 * 32) * 64 * 128 + 8 * 32 * 128
    assert all(FAMILY.refuse(problem, each, H200) is None for each in FAMILY.candidates(problem, H200)[0])
