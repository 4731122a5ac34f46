"""Matrix products whose rows are normalised in the same kernel, by blocks of a cluster or any that run together."""

from __future__ import annotations

import pytest
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, Candidate, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import Graph
from bolt_build.planner.problem_text import describe_problem
from bolt_build.targets import target_named

H200, FAMILY = target_named("h200"), Cutlass()
SPACE = "bolt::cutlass_kernels"


def block(columns: int = 768, norm: str = "statistic=variance axes=[2] epsilon=1e-05", read: str = "%n") -> Graph:
    """A product `p` with a residual, the normalisation `n` of its rows, and a reader of either."""
    return graph(f"""
        graph g batch=1 (%x: f32[1,4096,256], %r: f32[1,4096,{columns}]) -> (%n, %z) {{
          const %w: f32[{columns},256] #
          const %b: f32[{columns}] #
          const %s: f32[{columns}] #
          const %t: f32[{columns}] #
          %y = matmul(%x, %w, %b, %r) transpose_b=true | add(%r) // "p"
          %n = norm(%y, %s, %t) {norm} // "n"
          %z = tanh({read}) // "z"
        }}""")


def proposed(of: Graph, target: str = "h200") -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of both nodes, and why not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target_named(target), DType.F16)
    return [a for a in found if len(a.region) > 1], [(r.what, r.reason) for r in refusals if r.what == "p, n"]


def test_both_are_one_step_that_stores_what_others_read() -> None:
    for read, outputs in (("%n", ("n",)), ("%y", ("y", "n"))):
        (alternative,), reasons = proposed(block(read=read))
        (step,) = alternative.steps
        assert (alternative.region, reasons, step.outputs) == (("p", "n"), [], outputs)
        assert alternative.apart == parts(step.problem)
        candidates, _ = FAMILY.candidates(step.problem, H200)
        assert alternative.seconds == FAMILY.predict(step.problem, candidates[0], H200)
        ways = {
            (stated["norm"], stated.get("through", "cluster"))
            for each in candidates
            for stated in [dict(each.parameters)]
        }
        assert ways == {(4, "cluster"), (8, "cluster"), (3, "memory"), (4, "memory"), (6, "memory"), (8, "memory")}
        assert all(FAMILY.refuse(step.problem, each, H200) is None for each in candidates)


def test_its_problem_in_words() -> None:
    (alternative,), _ = proposed(block(read="%y"))
    assert describe_problem(alternative.steps[0].problem) == (
        "matmul(f16[1,4096,256], f16[768,256], f32[768], f16[1,4096,768]) transpose_b=true | add(@3) | "
        "norm(_, f32[768], f32[768]) statistic=variance axes=[2] epsilon=1e-05 -> f16[1,4096,768], f16[1,4096,768]"
    )


SHORT = "a depth of 256 is too short for split-K, which pays from 512 on"


@pytest.mark.parametrize(
    ("of", "target", "reasons"),
    [
        (block(1000), "h200", ("no cluster of tiles has whole rows of 1000 columns", SHORT)),
        (
            block(8192), "h200",
            ("no cluster of tiles has whole rows of 8192 columns",
             "a row of 8192 columns is longer than the 4096 that a block keeps in registers"),
        ),
        (block(), "a100", ("needs WGMMA",)),
        (
            block(norm="statistic=l2 axes=[2]"), "h200",
            ("normalises by variance or by the mean of squares, not by 'l2'",),
        ),
    ],
)  # fmt: skip
def test_reasons_why_they_stay_apart(of: Graph, target: str, reasons: tuple[str, ...]) -> None:
    assert proposed(of, target) == ([], [("p, n", reason) for reason in reasons])


def few_rows(rows: int = 197, depth: int = 3072) -> Graph:
    """The end of a layer of ViT-B/16 at batch 1, and of the feed-forward in front of the next."""
    return graph(f"""
        graph g batch=1 (%x: f32[1,{rows},{depth}], %r: f32[1,{rows},768]) -> (%n, %z) {{
          const %w: f32[768,{depth}] #
          const %b: f32[768] #
          const %s: f32[768] #
          const %t: f32[768] #
          %y = matmul(%x, %w, %b, %r) transpose_b=true | add(%r) // "p"
          %n = norm(%y, %s, %t) statistic=variance axes=[2] epsilon=1e-06 // "n"
          %z = tanh(%y) // "z"
        }}""")


def sliced(of: Graph) -> list[Candidate]:
    (alternative,), _ = proposed(of)
    candidates, _ = FAMILY.candidates(alternative.steps[0].problem, H200)
    return [each for each in candidates if "sliced_norm" in dict(each.parameters)]


def test_what_adds_slices_up_normalises_whole_rows() -> None:
    """Few rows are few tiles: their depth is cut, and the second kernel of split-K has whole rows."""
    (alternative,), _ = proposed(few_rows())
    problem = alternative.steps[0].problem
    candidate = sliced(few_rows())[0]
    assert dict(candidate.parameters)["sliced_norm"] == 1
    slices = dict(candidate.settings)["slices"]
    at = StepExpressions(("x", "", "", "r", "", ""), ("y", "n"), (None, "w", "b", None, "s", "t"))
    code = FAMILY.emit(problem, candidate, H200, at)
    assert code.includes == ("bolt_cutlass/plans/sliced_norm.h",)
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::SlicedNormedGemm<{SPACE}::WarpgroupTile<")
    assert code.member_type.endswith(f", {SPACE}::AsItIs, bolt::portable::f16, 1, true>")
    assert f".slices = {slices}" in code.member_arguments
    assert code.call == "kernel.run(r, x, r, y, n);"
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    first = parts(problem)[0]
    alone = Candidate(candidate.family, (*candidate.parameters[:-1], ("partial", 1)), candidate.settings)
    assert FAMILY.units([(first, alone)], H200) == (unit,), "the sums of slices know nothing of what follows"
    others = FAMILY.variants(problem, candidate, H200)
    assert candidate not in others
    assert all(FAMILY.refuse(problem, each, H200) is None for each in (candidate, *others))


def test_slices_that_a_product_cannot_have_are_refused() -> None:
    (alternative,), _ = proposed(few_rows())
    problem, candidate = alternative.steps[0].problem, sliced(few_rows())[0]
    wrong = Candidate(candidate.family, candidate.parameters, (("slices", 5),))
    assert FAMILY.refuse(problem, wrong, H200) == f"{wrong} has slices that it cannot have here"
    none = Candidate(candidate.family, candidate.parameters)
    assert FAMILY.refuse(problem, none, H200) == f"{none} states no slices"


def test_many_rows_are_not_sliced() -> None:
    assert sliced(few_rows(rows=6304)) == []
    assert sliced(few_rows(depth=256)) == []
    # A product alone is not sliced at this depth: here the second kernel is there anyway.
    assert sliced(few_rows(depth=768)) != []


def test_the_kernel_and_its_call() -> None:
    (alternative,), _ = proposed(block(read="%y"))
    problem = alternative.steps[0].problem
    candidates, _ = FAMILY.candidates(problem, H200)
    wanted = {"m": 128, "n": 192, "k": 64, "warpgroups": "cooperative", "norm": 4}
    candidate = next(each for each in candidates if dict(each.parameters) == wanted)
    at = StepExpressions(("x", "", "", "r", "", ""), ("y", "n"), (None, "w", "b", None, "s", "t"))
    code = FAMILY.emit(problem, candidate, H200, at)
    tile = f"{SPACE}::WarpgroupNorm<128, 192, 64, true, 4, true, true>"
    epilogue = f"{SPACE}::Epilogue<{SPACE}::Join<bolt::portable::Add, false>>"
    assert code.member_type == f"{SPACE}::NormedGemm<{tile}, {epilogue}, {SPACE}::AsItIs>"
    assert code.call == "kernel.run(r, x, r, y, n);"
    assert code.member_arguments.endswith(f'{SPACE}::Constant{{s, "s"}}, {SPACE}::Constant{{t, "t"}}, 1e-05f')
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert f"template void {SPACE}::launch_gemm(\n    {tile},\n" in unit.text
    assert unit.label == "gemm | add | norm, tile 128x192x64 cooperative with whole rows of 4 tiles"


def test_a_residual_behind_the_normalisation_is_part_of_the_kernel() -> None:
    """As in Swin V2, Gemma 3 and OLMo 2. It is read where a residual of the product would be, and added later."""
    text = """
        graph g batch=1 (%x: f32[1,4096,256], %r: f32[1,4096,768]) -> (%n) {{
          const %w: f32[768,256] #
          const %s: f32[768] #
          %y = matmul(%x, %w) transpose_b=true{} // "p"
          %n = norm(%y, %s, %r) statistic=rms axes=[2] epsilon=1e-05 | add(%r) // "n"
        }}"""
    (alternative,), _ = proposed(graph(text.format("")))
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        "matmul(f16[1,4096,256], f16[768,256]) transpose_b=true | "
        "norm(_, f32[768], f16[1,4096,768]) statistic=rms axes=[2] epsilon=1e-05 | add(@3) -> f16[1,4096,768]"
    )
    candidate = next(each for each in FAMILY.candidates(problem, H200)[0] if dict(each.parameters)["norm"] == 8)
    at = StepExpressions(("x", "", "", "r"), ("n",), (None, "w", "s", None))
    code = FAMILY.emit(problem, candidate, H200, at)
    added = f"{SPACE}::Epilogue<{SPACE}::Join<bolt::portable::Add, false>>"
    assert code.member_type is not None
    assert f"{SPACE}::Behind<{added}>" in code.member_type
    assert f"{SPACE}::behind({SPACE}::epilogue({SPACE}::join<bolt::portable::Add, false>()))" in code.member_arguments
    assert code.call == "kernel.run(r, x, r, nullptr, n);"
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert f"const {SPACE}::Behind<{added}>&, void*);" in unit.text
    assert unit.label.startswith("gemm | norm | add, tile")

    _, reasons = proposed(graph(text.format(" | relu")))
    assert reasons[0] == ("p, n", "functions stand in front of the normalisation and behind it")


def through_memory(candidate: Candidate) -> bool:
    return ("through", "memory") in candidate.parameters


def test_blocks_that_exchange_through_memory_count_in_what_the_context_keeps() -> None:
    (alternative,), _ = proposed(block(read="%y"))
    problem = alternative.steps[0].problem
    candidates, refusals = FAMILY.candidates(problem, H200)
    wanted = {"m": 192, "n": 192, "k": 64, "warpgroups": "cooperative", "norm": 4, "through": "memory"}
    candidate = next(each for each in candidates if dict(each.parameters) == wanted)
    at = StepExpressions(("x", "", "", "r", "", ""), ("y", "n"), (None, "w", "b", None, "s", "t"))
    code = FAMILY.emit(problem, candidate, H200, at)
    tile = f"{SPACE}::WarpgroupMemoryNorm<192, 192, 64, true, 4, true, true>"
    assert code.counts
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::NormedGemm<{tile}, ")
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert f"template void {SPACE}::launch_gemm(\n    {tile},\n" in unit.text
    assert unit.label == "gemm | add | norm, tile 192x192x64 cooperative with whole rows of 4 tiles through memory"
    in_cluster = next(each for each in candidates if not through_memory(each))
    assert not FAMILY.emit(problem, in_cluster, H200, at).counts
    assert ("tile 192x256x64 cooperative with whole rows of 3 tiles through memory",
            "a thread would hold 128 sums, three warpgroups leave room for 96") in [
        (each.what, each.reason) for each in refusals
    ]  # fmt: skip


def many_rows(rows: int, columns: int) -> Graph:
    """A product of so many rows and columns, and their normalisation."""
    return graph(f"""
        graph g batch=1 (%x: f32[1,{rows},256]) -> (%n) {{
          const %w: f32[{columns},256] #
          const %s: f32[{columns}] #
          %y = matmul(%x, %w) transpose_b=true // "p"
          %n = norm(%y, %s) statistic=rms axes=[2] epsilon=1e-06 // "n"
        }}""")


@pytest.mark.parametrize(
    ("rows", "columns", "tile", "reason"),
    [
        (2048, 768, "128x96x64 pingpong", None),
        (2176, 768, "128x96x64 pingpong", None),  # 17 rows of tiles take two rounds of 128 blocks as of 132
        (
            4224, 768, "128x96x64 pingpong",
            "4 of 132 multiprocessors would stay idle, because rows have 8 tiles",
        ),
        (
            300000, 768, "192x192x64 cooperative", "its blocks would count in 4689 places, there are 4096",
        ),
    ],
)  # fmt: skip
def test_a_round_of_blocks_that_wait_ends_with_whole_rows(
    rows: int, columns: int, tile: str, reason: str | None
) -> None:
    """Blocks of whole rows take tiles side by side, one an SM."""
    (alternative,), _ = proposed(many_rows(rows, columns))
    candidates, refusals = FAMILY.candidates(alternative.steps[0].problem, H200)
    whole = f"tile {tile} with whole rows of {columns // int(tile.split('x')[1])} tiles through memory"
    found = next((each.reason for each in refusals if each.what == whole), None)
    assert found == reason
    m, n = map(int, tile.split("x")[:2])
    named = {("m", m), ("n", n), ("warpgroups", tile.split()[1]), ("through", "memory")}
    assert any(named <= set(each.parameters) for each in candidates) == (reason is None)
