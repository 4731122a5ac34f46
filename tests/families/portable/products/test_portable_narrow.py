"""Rows of few elements by a small matrix, and few planes, on GPUs: whom the kernels are for, what candidates state,
what is refused."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from gpu_products import conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")


def problem_of(layer: Layer, layout: Layout = Layout.ROW) -> KernelProblem:
    graph, node = graph_with(layer)
    proposed = FAMILY.propose(graph, node, H200, DType.F16)[0]
    problems = (each.steps[0].problem for each in proposed)
    return next(p for p in problems if p.outputs[0].format == type(p.outputs[0].format)(DType.F16, layout))


def product(a: Input, b: Input, op: MatMul | None = None) -> Layer:
    return Layer("product", op or MatMul(), (a, b), (), DType.F16)


ROWS = product(Input((32, 196, 196, 6)), Input((6, 6), True))
PLANES = conv("planes", (32, 6, 196, 196), 6, (1, 1), epilogue=())


@pytest.mark.parametrize(("layer", "words"), [(ROWS, "each=4"), (PLANES, "lanes=8")], ids=["rows of six", "six planes"])
def test_they_are_predicted_to_be_faster_than_the_plain_kernel(layer: Layer, words: str) -> None:
    found = [str(each) for each in FAMILY.candidates(problem_of(layer), H200)[0]]
    assert found[0] == f"portable algorithm=narrow {words}"
    assert found[-1] == "portable algorithm=direct"


@pytest.mark.parametrize(
    ("layer", "layout"),
    [
        (product(Input((9, 17)), Input((17, 6), True)), Layout.ROW),
        (product(Input((2, 5, 6)), Input((2, 6, 6))), Layout.ROW),
        (product(Input((6, 9)), Input((6, 6), True), MatMul(transpose_a=True)), Layout.ROW),
        (conv("wide", (2, 17, 4, 4), 6, (1, 1)), Layout.ROW),
        (conv("window", (2, 6, 4, 4), 6, (3, 3)), Layout.ROW),
        (conv("groups", (2, 6, 4, 4), 6, (1, 1), groups=2), Layout.ROW),
        (conv("last", (2, 6, 4, 4), 6, (1, 1)), Layout.CHANNELS_LAST),
    ],
    ids=["17 deep", "two matrices", "turned rows", "17 channels", "a window", "groups", "channels last"],
)
def test_others_have_other_kernels(layer: Layer, layout: Layout) -> None:
    found = [str(each) for each in FAMILY.candidates(problem_of(layer, layout), H200)[0]]
    assert not [each for each in found if "narrow" in each]


def narrow(**tile: int) -> Candidate:
    return Candidate("portable", (("algorithm", "narrow"), *tile.items()))


@pytest.mark.parametrize(
    ("layer", "candidate", "why"),
    [
        (ROWS, narrow(each=3), "a thread has 1, 2 or 4 rows"),
        (
            product(Input((9, 16)), Input((16, 16), True)), narrow(each=4),
            "a thread would hold 128 numbers, at most 96 stay in registers",
        ),
        (PLANES, narrow(lanes=3), "a thread has 1, 2, 4 or 8 neighbours"),
        (conv("odd", (1, 6, 5, 5), 6, (1, 1)), narrow(lanes=2), "25 elements of a plane are no multiple of 2"),
        (
            conv("many", (1, 16, 4, 4), 16, (1, 1)), narrow(lanes=8),
            "a thread would hold 192 numbers, at most 96 stay in registers",
        ),
    ],
)  # fmt: skip
def test_refuses_what_threads_do_not_hold(layer: Layer, candidate: Candidate, why: str) -> None:
    assert FAMILY.refuse(problem_of(layer), candidate, H200) == why


def test_emits_what_candidates_state() -> None:
    at = StepExpressions(("x", "w"), ("y",), (None, None))
    code = FAMILY.emit(problem_of(ROWS), narrow(each=2), H200, at)
    types = "bolt::portable::f16, bolt::portable::f16"
    assert code.call == (
        f"bolt::portable::narrow_matmul<6, 6, 2, false, {types}>(r, 1229312, x, w, y, bolt::portable::chain());"
    )
    at = StepExpressions(("x", "w", "b"), ("y",), (None, None, None))
    code = FAMILY.emit(problem_of(PLANES), narrow(lanes=8), H200, at)
    assert code.call == (
        f"bolt::portable::narrow_planes<6, 6, 8, {types}>(r, 32, 38416, x, w, y, bolt::portable::chain("
        "bolt::portable::combine<bolt::portable::Add>(bolt::portable::channel<float>(b))));"
    )
