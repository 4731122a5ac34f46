"""Numbers as integers and back in accesses of sixteen elements: who has them, what is refused and why, and the call."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from gpu_quantised import LAST, ROW, layer
from quantised_layers import whole

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.quantised.quantize import WideTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.quantised.quantize import Dequantize, Quantize, RangeScale
from bolt_build.targets import target_named

FAMILY, H100 = Portable(), target_named("h100")


def problem_of(each: Layer, layout: Layout = ROW) -> KernelProblem:
    graph, node = graph_with(each)
    found = [one.steps[0].problem for one in FAMILY.propose(graph, node, H100, each.precision)[0]]
    return next(one for one in found if one.outputs[0].format.layout is layout)


TO_I8 = Quantize(DType.I8)
IMAGES = (4, 64, 56, 56)


def candidates(problem: KernelProblem) -> list[str]:
    return [str(each) for each in FAMILY.candidates(problem, H100)[0]]


@pytest.mark.parametrize("scales", [(), (64, 1, 1)], ids=["one", "channels"])
def test_whole_accesses_come_first(scales: tuple[int, ...]) -> None:
    for layout in (ROW, LAST):
        problem = problem_of(layer("one", TO_I8, IMAGES, scales, DType.I8), layout)
        first, *others = candidates(problem)
        assert first.startswith("portable algorithm=wide chunks=")
        assert "portable algorithm=direct" in others


@pytest.mark.parametrize(
    ("shape", "scales", "layout", "reason"),
    [
        (
            (4, 20, 9, 9),
            (4, 1, 9, 9),
            ROW,
            "wide: scales go along one axis at most, and elements lie as the result does",
        ),
        (
            (4, 20, 9, 9),
            (4, 1, 9, 1),
            ROW,
            "wide: scales go along one axis at most, and elements lie as the result does",
        ),
    ],
)
def test_what_has_none_has_a_reason(
    shape: tuple[int, ...], scales: tuple[int, ...], layout: Layout, reason: str
) -> None:
    problem = problem_of(layer("one", TO_I8, shape, scales, DType.I8), layout)
    found, refused = FAMILY.candidates(problem, H100)
    assert [str(each) for each in found] == ["portable algorithm=direct"]
    assert [str(each.reason) for each in refused] == [reason]


def test_wide_integers_stay_with_the_plain_kernel() -> None:
    inputs = (whole((40, 64), DType.I32), Input((), True, 0.1, 0.2), whole((), DType.I32, True))
    problem = problem_of(Layer("sums", Dequantize(DType.F32), inputs))
    reason = "wide: integers of 32 bits are no numbers in fp32"
    assert [str(each.reason) for each in FAMILY.candidates(problem, H100)[1]] == [reason]


def test_there_are_few_kernels() -> None:
    problem = problem_of(layer("one", TO_I8, IMAGES, (), DType.I8))
    reason = "there are kernels of 1, 2 or 4 chunks a thread"
    assert FAMILY.refuse(problem, candidate_of("portable", "wide", WideTile(3)), H100) == reason
    assert FAMILY.refuse(problem, candidate_of("portable", "wide", WideTile(2)), H100) is None
    scale = Layer("range", RangeScale(), (Input((), low=-3.0, high=-2.0), Input((), low=2.0, high=4.0)))
    assert candidates(problem_of(scale)) == ["portable algorithm=direct"]


def test_a_call_says_where_scales_change() -> None:
    problem = problem_of(layer("one", TO_I8, IMAGES, (64, 1, 1), DType.I8))
    at = StepExpressions(("x", "s", "z"), ("y",), (None,) * 3)
    call = FAMILY.emit(problem, candidate_of("portable", "wide", WideTile(2)), H100, at).call
    types = "bolt::portable::ToIntegers<std::int8_t>, bolt::portable::Quantize<std::int8_t>, std::int8_t, std::int8_t"
    assert call.startswith(
        f"bolt::portable::scaled<{types}, bolt::portable::f16, 2, false>(r, bolt::portable::Scaled{{"
        ".elements = 802816, .channels = 64, .inner = 3136, .by_scale = 1, .by_zero = 1}, bolt::portable::Pointwise<3>{"
    )
