"""Few rows of few elements by a matrix of many columns, on GPUs: whom the kernel is for, what candidates state, what is
refused."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")


def problem_of(layer: Layer) -> KernelProblem:
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


def product(a: Input, b: Input, op: MatMul | None = None) -> Layer:
    return Layer("product", op or MatMul(), (a, b), (), DType.F16)


def few(**tile: int) -> Candidate:
    return Candidate("portable", (("algorithm", "few_rows"), *tile.items()))


EXPERTS = product(Input((1, 8)), Input((8, 600192), True))


@pytest.mark.parametrize(("rows", "columns"), [(1, 600192), (1, 100000), (3, 294912), (8, 147456), (32, 600192)])
@pytest.mark.parametrize("target", ["h200", "a100", "t4"])
def test_experts_of_filters_are_mixed_as_fast_as_memory_brings_them(target: str, rows: int, columns: int) -> None:
    problem = problem_of(product(Input((rows, 8)), Input((8, columns), True)))
    found = FAMILY.candidates(problem, target_named(target))[0]
    assert str(found[0]).startswith("portable algorithm=few_rows ")


@pytest.mark.parametrize(
    "layer",
    [
        product(Input((65, 8)), Input((8, 4096), True)),
        product(Input((4, 17)), Input((17, 4096), True)),
        product(Input((2, 4, 8)), Input((2, 8, 4096))),
        product(Input((8, 4)), Input((8, 4096), True), MatMul(transpose_a=True)),
        product(Input((4, 8)), Input((4096, 8), True), MatMul(transpose_b=True)),
    ],
    ids=["65 rows", "17 deep", "two matrices", "turned rows", "a turned matrix"],
)
def test_others_have_other_kernels(layer: Layer) -> None:
    found = [str(each) for each in FAMILY.candidates(problem_of(layer), H200)[0]]
    assert not [each for each in found if "few_rows" in each]


@pytest.mark.parametrize(
    ("layer", "candidate", "why"),
    [
        (EXPERTS, few(each=3, lanes=8), "a thread has 1, 2, 4 or 8 rows, and 2, 4 or 8 columns"),
        (
            product(Input((4, 8)), Input((8, 1010), True)), few(each=1, lanes=4),
            "loads 4 columns at once, 1010 is no multiple",
        ),
        (
            product(Input((8, 16)), Input((16, 4096), True)), few(each=8, lanes=8),
            "a thread would hold 128 numbers, at most 96 stay in registers",
        ),
    ],
)  # fmt: skip
def test_refuses_what_threads_do_not_hold(layer: Layer, candidate: Candidate, why: str) -> None:
    assert FAMILY.refuse(problem_of(layer), candidate, H200) == why


def test_emits_what_candidates_state() -> None:
    at = StepExpressions(("x", "w"), ("y",), (None, None))
    code = FAMILY.emit(problem_of(EXPERTS), few(each=1, lanes=8), H200, at)
    types = "bolt::portable::f16, bolt::portable::f16"
    assert code.call == (
        f"bolt::portable::few_rows_matmul<8, 1, 8, {types}>(r, 1, 600192, x, w, y, bolt::portable::chain());"
    )
