"""Rows times the matrix that an index chooses for each: what candidates state, how blocks share tiles, what is
refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer, graph_with

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.products.chosen_product import slots
from bolt_build.families.portable.kernels.products.warpgroup_chosen import scratch_bytes
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("a", "b", "i"), ("c",), (None, None, None))


def problem_of(
    rows: int, depth: int, matrices: int, columns: int, *, turned: bool = False, dtype: DType = DType.F16
) -> KernelProblem:
    stack = (matrices, columns, depth) if turned else (matrices, depth, columns)
    index = Input((rows,), low=0.0, high=matrices - 0.01, dtype=DType.I64)
    layer = Layer("chosen", ChosenMatMul(turned), (Input((rows, depth)), Input(stack, True), index), precision=dtype)
    graph, node = graph_with(layer)
    target = target_named("host") if dtype is DType.F32 else H200
    problem = FAMILY.propose(graph, node, target, dtype)[0][0].steps[0].problem
    return replace(problem, target="h200")


def tile(rows: int, columns: int, parts: int, stages: int) -> Candidate:
    stated = (("rows", rows), ("columns", columns), ("parts", parts), ("stages", stages))
    return Candidate("portable", (("algorithm", "tensor_cores"), *stated))


EXPERTS = problem_of(8192, 512, 32, 1024)


def test_experts_are_multiplied_on_tensor_cores() -> None:
    found = FAMILY.candidates(EXPERTS, H200)[0]
    assert {dict(each.parameters)["algorithm"] for each in found} == {"warpgroups", "tensor_cores", "direct"}
    assert dict(found[0].parameters)["algorithm"] == "warpgroups"
    assert str(found[-1]) == "portable algorithm=direct"
    assert FAMILY.predict(EXPERTS, found[0], H200) < 0.05 * FAMILY.predict(EXPERTS, found[-1], H200)


def test_earlier_gpus_have_instructions_of_one_warp() -> None:
    a100 = target_named("a100")
    found, refusals = FAMILY.candidates(replace(EXPERTS, target="a100"), a100)
    assert {dict(each.parameters)["algorithm"] for each in found} == {"tensor_cores", "direct"}
    assert "warpgroups: GPUs before Hopper have no WGMMA" in [each.reason for each in refusals]


def test_few_rows_take_as_long_as_the_matrices_that_they_choose() -> None:
    few, all_of_them = problem_of(8, 512, 128, 1024), problem_of(256, 512, 128, 1024)
    times = [FAMILY.predict(each, FAMILY.candidates(each, H200)[0][0], H200) for each in (few, all_of_them)]
    assert times[0] < 0.5 * times[1]


@pytest.mark.parametrize(
    ("rows", "matrices", "of_tile", "expected"),
    [(8192, 32, 64, 1), (64, 32, 32, 17), (8, 128, 32, 8), (1000, 17, 128, 3), (64, 1, 32, 1)],
)
def test_blocks_share_a_tile_where_its_rows_choose_many_matrices(
    rows: int, matrices: int, of_tile: int, expected: int
) -> None:
    assert slots(rows, matrices, of_tile) == expected


def test_what_is_emitted_says_how_matrices_lie_and_what_may_be_read_at_once() -> None:
    code = FAMILY.emit(problem_of(64, 36, 5, 72, turned=True), tile(32, 64, 1, 3), H200, AT)
    assert code.includes == ("bolt_portable/cuda/products/half_chosen.h",)
    assert code.call == (
        "bolt::portable::half_chosen<32, 64, 4, 4, true, 8, 1, 3, bolt::portable::f16, bolt::portable::f16, "
        "std::int64_t>(r, bolt::portable::ChosenMatMul{.m = 64, .n = 72, .k = 36, .matrices = 5, .b_row = 1, "
        ".b_column = 36, "
        ".slots = 3}, a, b, i, c, bolt::portable::chain());"
    )


def warpgroups(*numbers: int) -> Candidate:
    names = ("groups", "fragments", "columns", "stages", "blocks")
    return Candidate("portable", (("algorithm", "warpgroups"), *zip(names, numbers, strict=True)))


def test_rows_of_warpgroups_are_grouped_in_scratch_memory() -> None:
    code = FAMILY.emit(
        problem_of(640, 72, 5, 264, turned=True),
        warpgroups(2, 1, 128, 6, 1),
        H200,
        replace(AT, prepare_inputs=(None, "w", None)),
    )
    assert code.includes == ("bolt_portable/cuda/products/warpgroup_chosen.h", "bolt_portable/cuda/passed_constants.h")
    assert code.member_type == "bolt::portable::PassedNorm"
    assert code.member_arguments == '2736, bolt::portable::PassedConstant{w, "w", 190080}'
    assert code.call.startswith(
        "bolt::portable::warpgroup_chosen<2, 1, 128, 6, 1, true, 8, bolt::portable::f16, bolt::portable::f16, "
        "std::int64_t>(r, bolt::portable::ChosenMatMul{.m = 640, .n = 264, .k = 72, .matrices = 5, "
    )
    assert scratch_bytes(640, 5, 128) == 16 + 16 * (5 + 5) + 4 * 640


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (problem_of(640, 36, 5, 64), "rows and matrices are read by 16 bytes, which their lines are no multiples of"),
        (problem_of(640, 64, 5, 36), "rows and matrices are read by 16 bytes, which their lines are no multiples of"),
        (problem_of(8, 8, 5000, 8), "counts rows of at most 2048 matrices"),
    ],
)
def test_products_without_kernels_of_warpgroups(problem: KernelProblem, reason: str) -> None:
    refused = [str(each.reason) for each in FAMILY.candidates(problem, H200)[1]]
    assert f"warpgroups: {reason}" in refused


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (tile(48, 64, 1, 3), "there are tiles of 32, 64 or 128 rows and columns"),
        (tile(64, 64, 3, 3), "the depth is shared by 1, 2 or 4 groups of warps"),
        (tile(64, 64, 1, 5), "there is room for 2, 3 or 4 steps"),
        (warpgroups(2, 2, 256, 4, 1), "has no such tile"),
        (tile(128, 128, 4, 2), "512 threads with 204 registers are more than a multiprocessor has"),
    ],
)
def test_tiles_that_are_refused(candidate: Candidate, reason: str) -> None:
    assert FAMILY.refuse(EXPERTS, candidate, H200) == reason


def test_other_element_types_have_the_plain_kernel() -> None:
    assert [str(each) for each in FAMILY.candidates(problem_of(8, 8, 3, 8, dtype=DType.F32), H200)[0]] == [
        "portable algorithm=direct"
    ]
