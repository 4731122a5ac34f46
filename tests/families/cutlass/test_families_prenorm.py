"""Matrix products of rows that are normalised as they are loaded: what is proposed, why not, and the C++."""

from __future__ import annotations

import pytest
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, Candidate, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import Graph
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.problem_words import in_words
from bolt_build.targets import target_named

H200, FAMILY = target_named("h200"), Cutlass()
SPACE = "bolt::cutlass_kernels"


def block(
    width: int = 768, norm: str = "statistic=variance axes=[2] epsilon=1e-06", stages: str = "", more: str = "",
    outputs: str = "%z", vectors: str = ", %s, %t", scale: str = "{width}", right: str = "%w", columns: int = 3072,
) -> Graph:  # fmt: skip
    """A normalisation `n` of rows, and the first product `p` of a feed-forward."""
    used = "".join(f"const %{v}: f32[{scale.format(width=width)}] #\n" for v in "st" if f"%{v}" in vectors)
    return graph(f"""
        graph g batch=32 (%x: f32[32,197,{width}]) -> ({outputs}) {{
          {used}
          const %w: f32[{columns},{width}] #
          const %b: f32[{columns}] #
          %n = norm(%x{vectors}) {norm}{stages} // "n"
          %z = matmul(%n, {right}, %b) transpose_b=true | gelu // "p"
          {more}
        }}""")


def proposed(of: Graph, target: str = "h200") -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of both nodes, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target_named(target), DType.F16)
    return [a for a in found if len(a.region) > 1], [(r.what, r.reason) for r in refusals if "," in r.what]


def test_both_are_one_step_that_reads_what_was_not_normalised() -> None:
    (alternative,), reasons = proposed(block())
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("n", "p"), [])
    assert (step.inputs, step.outputs, step.reads_apart) == (("x", "s", "t", "w", "b"), ("z",), (0,))
    assert alternative.apart == parts(step.problem)
    candidates, _ = FAMILY.candidates(step.problem, H200)
    assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
    assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)
    assert not any(FAMILY.variants(step.problem, each, H200) for each in candidates)
    assert all(dict(each.parameters)["prenorm"] == 1 for each in candidates)


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(block())
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        "norm(f16[32,197,768], f32[768], f32[768]) statistic=variance axes=[2] epsilon=1e-06 | "
        "matmul(_, f16[3072,768], f32[3072]) transpose_b=true | gelu -> f16[32,197,3072]"
    )
    assert in_words(problem) == ("norm of 32x197x768 then 32 times 197x768 by 768x3072 + bias + gelu")


REFUSED = {
    "another reader": (block(more='%u = tanh(%n) // "u"', outputs="%z, %u"), "2 nodes read what lies between"),
    "an output": (block(outputs="%z, %n"), "what lies between is an output of the graph"),
    "a function between": (
        block(stages=" | relu"), "another function stands between the normalisation and the product",
    ),
    "another statistic": (
        block(norm="statistic=l2 axes=[2]"), "normalises by variance or by the mean of squares, not by 'l2'",
    ),
    "a scale of all": (block(scale="1"), "scale and bias are constants of one number a column"),
    "a depth that is no whole step": (block(width=776), "takes statistics of whole steps of 32 columns, 776 are none"),
    "results that are no whole stores": (block(columns=100), "stores 8 columns at once, 100 is no multiple"),
}  # fmt: skip


@pytest.mark.parametrize(("of", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals(of: Graph, reason: str) -> None:
    assert proposed(of) == ([], [("n, p", reason)])


@pytest.mark.parametrize("target", ["a100", "t4"])
def test_earlier_gpus_have_none(target: str) -> None:
    assert proposed(block(), target) == ([], [("n, p", "needs WGMMA")])


@pytest.mark.parametrize("of", [block(norm="statistic=variance axes=[1,2]", vectors="")])
def test_what_is_not_normalised_in_rows_is_not_asked_about(of: Graph) -> None:
    assert proposed(of) == ([], [])


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({}, None),
        ({"k": 512}, "cutlass m=128 n=192 k=512 warpgroups=cooperative prenorm=1 is none of its candidates"),
        ({"n": 128, "k": 128, "warpgroups": "pingpong"},
         "its accumulators and A operand take 192 registers of a thread, over 176"),
        ({"m": 192, "n": 256}, "a thread would hold 128 sums, three warpgroups leave room for 96"),
    ],
)  # fmt: skip
def test_tiles_that_a_lock_may_name(parameters: dict[str, int | str], reason: str | None) -> None:
    (alternative,), _ = proposed(block())
    known = {"m": 128, "n": 192, "k": 64, "warpgroups": "cooperative", "prenorm": 1}
    known.update(parameters)
    assert FAMILY.refuse(alternative.steps[0].problem, Candidate("cutlass", tuple(known.items())), H200) == reason


def test_a_step_of_128_columns_is_none_for_a_depth_of_three_of_64() -> None:
    (alternative,), _ = proposed(block(width=192))
    known = {"m": 128, "n": 128, "k": 128, "warpgroups": "cooperative", "prenorm": 1}
    reason = FAMILY.refuse(alternative.steps[0].problem, Candidate("cutlass", tuple(known.items())), H200)
    assert reason == "192 columns are no whole number of steps of 128"


def test_the_kernel_and_its_call() -> None:
    (alternative,), _ = proposed(block())
    problem = alternative.steps[0].problem
    candidates, _ = FAMILY.candidates(problem, H200)
    wanted = {"m": 192, "n": 192, "k": 64, "warpgroups": "cooperative", "prenorm": 1}
    candidate = next(each for each in candidates if dict(each.parameters) == wanted)
    at = StepExpressions(("x", "", "", "", ""), ("y",), (None, "s", "t", "w", "b"), (3080,), (800,))
    code = FAMILY.emit(problem, candidate, H200, at)
    tile = f"{SPACE}::WarpgroupPrenorm<192, 192, 64, true, true>"
    gelu = f"{SPACE}::Epilogue<{SPACE}::Map<bolt::portable::Gelu>>"
    assert code.includes == ("bolt_cutlass/plans/prenorm.h",)
    assert code.member_type == f"{SPACE}::PrenormGemm<{tile}, {gelu}>"
    assert code.call == "kernel.run(r, x, nullptr, y);"
    assert code.member_arguments == (
        f"{SPACE}::GemmArguments{{.m = 6304, .n = 3072, .k = 768, .y_row = 3080, .x_row = 800}}, "
        f'{SPACE}::Constant{{s, "s"}}, {SPACE}::Constant{{t, "t"}}, 1e-06f, {SPACE}::Constant{{w, "w"}}, '
        f"{SPACE}::Filter{{.outputs = 3072, .channels = 768, .rows = 1, .taps = 1, .to_taps = 1, .to_channels = 768}}, "
        f'{SPACE}::Constant{{b, "b"}}, {SPACE}::epilogue({SPACE}::map(bolt::portable::Gelu{{}}))'
    )
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert f"template void {SPACE}::launch_gemm(\n    {tile},\n" in unit.text
    assert unit.label == "norm | gemm | gelu, tile 192x192x64 cooperative of normalised rows"


def test_the_mean_of_squares_has_another_kernel() -> None:
    (alternative,), _ = proposed(block(norm="statistic=rms axes=[2] epsilon=1e-05", vectors=", %s"))
    problem = alternative.steps[0].problem
    candidate = FAMILY.candidates(problem, H200)[0][0]
    code = FAMILY.emit(problem, candidate, H200, StepExpressions(("x", "", "", ""), ("y",), (None, "s", "w", "b")))
    assert code.member_type is not None
    assert ", false>, " in code.member_type
    assert f'{SPACE}::Constant{{s, "s"}}, {SPACE}::Constant{{nullptr, ""}}, 1e-05f' in code.member_arguments
