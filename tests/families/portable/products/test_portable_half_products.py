"""Products of two tensors in half precision on a GPU's tensor cores: whom they are for, what candidates state, what
is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer, graph_with

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("a", "b"), ("c",), (None, None))


def problem_of(a: Input, b: Input, op: MatMul | None = None, dtype: DType = DType.F16) -> KernelProblem:
    graph, node = graph_with(replace(Layer("half", op or MatMul(), (a, b)), precision=dtype))
    target = target_named("host") if dtype is DType.F32 else H200
    problem = FAMILY.propose(graph, node, target, dtype)[0][0].steps[0].problem
    return replace(problem, target="h200")


def kernels(problem: KernelProblem, target: str = "h200") -> list[str]:
    return [str(each) for each in FAMILY.candidates(problem, target_named(target))[0]]


def tile(rows: int, columns: int, parts: int = 1) -> Candidate:
    shared = (("parts", parts),) if parts > 1 else ()
    return Candidate("portable", (("algorithm", "tensor_cores"), ("rows", rows), ("columns", columns), *shared))


def test_few_tiles_of_a_deep_product_share_its_depth_among_warps() -> None:
    """Channels by channels over 32 x 32 pixels; and many heads, which fill a GPU."""
    deep = problem_of(Input((1, 1024, 128)), Input((1, 1024, 64)), MatMul(transpose_a=True))
    many = problem_of(Input((4096, 256, 64)), Input((4096, 256, 64)), MatMul(transpose_a=True))
    best = FAMILY.candidates(deep, H200)[0][0]
    assert best == tile(32, 32, 4)
    assert "parts" not in dict(FAMILY.candidates(many, H200)[0][0].parameters)
    assert FAMILY.predict(deep, best, H200) < 0.6 * FAMILY.predict(deep, tile(32, 32), H200)
    code = FAMILY.emit(deep, best, H200, AT)
    assert code.call.startswith("bolt::portable::half_matmul<32, 32, 8, 8, false, false, 8, 4, bolt::portable::f16, ")


HEADS = Input((2, 3, 70, 48)), Input((2, 3, 48, 72))


def test_a_product_of_tensors_is_predicted_to_be_faster_on_tensor_cores() -> None:
    found = kernels(problem_of(*HEADS))
    assert len(found) == 4
    assert all(each.startswith("portable algorithm=tensor_cores rows=") for each in found[:3])
    assert found[3] == "portable algorithm=direct"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Input((4, 70, 48)), Input((48, 72), True)),  # a packed matrix
        (Input((4, 70, 48)), Input((1, 48, 72), True)),
    ],
)
def test_products_with_packed_weights_are_left_to_libraries(a: Input, b: Input) -> None:
    assert kernels(problem_of(a, b)) == ["portable algorithm=direct"]


def test_a_constant_on_the_left_is_multiplied_by_every_image() -> None:
    assert "portable algorithm=tensor_cores" in kernels(problem_of(Input((40, 196), True), Input((4, 196, 136))))[0]


@pytest.mark.parametrize(
    ("problem", "target", "reason"),
    [
        (problem_of(*HEADS, dtype=DType.F32), "h200",
         "tensor_cores: multiplies factors that are both in f16, or both in bf16"),
        (replace(problem_of(*HEADS, dtype=DType.BF16), target="t4"), "t4",
         "tensor_cores: the GPU's tensor cores do not multiply bf16"),
    ],
)  # fmt: skip
def test_other_element_types_are_refused(problem: KernelProblem, target: str, reason: str) -> None:
    candidates, refusals = FAMILY.candidates(problem, target_named(target))
    assert [str(each) for each in candidates] == ["portable algorithm=direct"]
    assert [str(each.reason) for each in refusals] == [reason]


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (tile(64, 128), None),
        (tile(48, 64), "there are tiles of 32, 64 or 128 rows and columns"),
        (tile(64, 256), "there are tiles of 32, 64 or 128 rows and columns"),
        (tile(32, 32, 4), None),
        (tile(32, 32, 3), "the depth is shared by 1, 2 or 4 groups of warps"),
        (tile(128, 128, 2), "steps of all groups take 75776 bytes of shared memory, there are 49152"),
    ],
)
def test_tiles_that_are_none_are_refused(candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem_of(*HEADS), candidate, H200) == reason


@pytest.mark.parametrize(
    ("a", "b", "op", "how"),
    [
        (*HEADS, MatMul(), "64, 64, 8, 8, true, false, 8"),
        (Input((2, 70, 44)), Input((2, 72, 44)), MatMul(transpose_b=True), "64, 64, 4, 4, true, true, 8"),
        (Input((2, 48, 70)), Input((2, 48, 71)), MatMul(transpose_a=True), "64, 64, 2, 1, false, false, 1"),
        (Input((2, 1, 70, 45)), Input((3, 45, 72)), MatMul(), "64, 64, 1, 8, true, false, 8"),
    ],
)
def test_elements_are_read_at_once_as_rows_and_images_allow(a: Input, b: Input, op: MatMul, how: str) -> None:
    code = FAMILY.emit(problem_of(a, b, op), tile(64, 64), H200, AT)
    assert code.includes == ("bolt_portable/cuda/products/half_matmul.h",)
    assert code.call.startswith(f"bolt::portable::half_matmul<{how}, bolt::portable::f16, bolt::portable::f16>(r, ")


def test_sums_that_groups_exchange_need_room_where_left_factors_were() -> None:
    """A tile of few rows and many columns, whose left factors are small."""
    deep = problem_of(Input((2, 32, 512)), Input((2, 512, 128)))
    reason = "sums of all groups but one have no room where left factors were"
    assert FAMILY.refuse(deep, tile(32, 128, 2), H200) == reason
    assert FAMILY.refuse(deep, tile(32, 64, 2), H200) is None
