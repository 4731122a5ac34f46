"""Functions of tensors in whole words of a dense output: what candidates state, what is refused and why, which is
offered first, and how where elements stand is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.elementwise.flat import FlatTile
from bolt_build.graph.ir import EpilogueOp, Layout, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.targets import HOST, target_named

FAMILY, H200 = Portable(), target_named("h200")
DIRECT = Candidate("portable", (("algorithm", "direct"),))
Given = tuple[tuple[int, ...], DType]


def points(op: Op, made: Given, *inputs: Given) -> KernelProblem:
    operands = [Operand(shape, TensorFormat(dtype, Layout.ROW)) for shape, dtype in (*inputs, made)]
    return KernelProblem(op, tuple(operands[:-1]), (operands[-1],), (), DType.F16, "h200")


def half(*shape: int) -> Given:
    return shape, DType.F16


def single(*shape: int) -> Given:
    return shape, DType.F32


def numbers(*shape: int) -> Given:
    return shape, DType.I64


SCORES = half(32, 12, 197, 197)
MASKED = points(Binary("add"), SCORES, SCORES, half(32, 1, 1, 197))
BIASED = points(Binary("add"), half(32, 512, 1001), half(32, 512, 1001), single(1001))
SEGMENTS = points(Compare("equal"), ((32, 512, 512), DType.BOOL), numbers(32, 1, 512), numbers(32, 512, 1))
COLOURS = replace(
    points(Binary("sub"), half(8, 99, 3), half(8, 99, 3), single(3), single(3)),
    epilogue=(EpilogueOp(Binary("div"), 2), EpilogueOp(Activation("clip", -1.0, 1.0))),
)


def stated(tile: FlatTile) -> Candidate:
    return Candidate("portable", (("algorithm", "flat"), *tile.parameters))


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (MASKED, FlatTile(8, 4, 256), None),
        (MASKED, FlatTile(1, 8, 5), None),
        (MASKED, FlatTile(16, 4, 256), "words of 16 elements are no accesses"),
        (MASKED, FlatTile(3, 4, 256), "words of 3 elements are no accesses"),
        (SEGMENTS, FlatTile(4, 4, 256), None),
        (SEGMENTS, FlatTile(16, 4, 256), "words of 16 elements are more than two accesses of an input"),
        (MASKED, FlatTile(8, 5, 256), None),
        (MASKED, FlatTile(8, 9, 256), "a thread would have 9 words, at most 8 are code"),
        (COLOURS, FlatTile(8, 2, 297), "no thread would have a last word"),
    ],
)
def test_a_tile_that_no_kernel_has_is_refused_with_its_reason(
    problem: KernelProblem, tile: FlatTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, stated(tile), H200) == reason


@pytest.mark.parametrize(
    "problem",
    [
        MASKED,
        BIASED,
        SEGMENTS,
        points(Binary("add"), SCORES, SCORES, half(32, 1, 197, 197)),
        points(Binary("add"), half(32, 197, 1333), half(32, 197, 1333), single(1, 197, 1333)),
        points(Binary("prelu"), half(32, 64, 57, 57), half(32, 64, 57, 57), single(64, 1, 1)),
        points(Binary("mul"), half(32, 57, 57, 122), half(32, 57, 57, 122), half(32, 1, 1, 122)),
        points(Where(), SCORES, ((32, 1, 197, 197), DType.BOOL), SCORES, half(1)),
        points(Expand(SCORES[0]), SCORES, half(32, 1, 197, 197)),
        points(Binary("add"), numbers(90, 400, 333), numbers(90, 400, 1), numbers(90, 1, 333)),
    ],
)
def test_without_a_lock_odd_rows_and_what_is_repeated_go_in_words_of_the_output(problem: KernelProblem) -> None:
    first, *others = FAMILY.candidates(problem, H200)[0]
    assert dict(first.parameters)["algorithm"] == "flat"
    assert DIRECT in others
    assert FAMILY.predict(problem, first, H200) < 2.5 * problem.nbytes / H200.bandwidth


def test_words_are_offered_both_side_by_side_and_where_inputs_repeat_themselves() -> None:
    """A mask of 197 has the same elements every 197 words of four, of which an image has three times as many."""
    offered = [dict(each.parameters) for each in FAMILY.candidates(MASKED, H200)[0]]
    found = [(of["lanes"], of["turns"], of["apart"]) for of in offered if of["algorithm"] == "flat"]
    assert found[0] == (4, 3, 197)
    assert 256 in {apart for _, _, apart in found}


@pytest.mark.parametrize(
    "problem",
    [
        points(Where(), half(32, 512, 1024), ((32, 512, 1024), DType.BOOL), half(32, 512, 1024), half(32, 512, 1024)),
        points(Binary("add"), half(7, 33), half(7, 33), half(7, 33)),
        points(Binary("mul"), SCORES, SCORES, single(1)),
        points(Binary("add"), half(7, 28, 28, 64), half(7, 28, 28, 64), single(64)),
    ],
)
def test_what_the_plain_kernel_has_in_whole_accesses_is_left_to_it(problem: KernelProblem) -> None:
    candidates, refusals = FAMILY.candidates(problem, H200)
    assert candidates == (DIRECT,)
    assert "flat: threads of the plain kernel have whole accesses" in [str(refusal.reason) for refusal in refusals]


def test_more_elements_than_are_counted_are_left_to_others() -> None:
    problem = points(Binary("add"), half(1 << 20, 2049), half(1 << 20, 2049), half(2049))
    assert FAMILY.refuse(problem, stated(FlatTile(8, 4, 256)), H200) == (
        "flat: 2148532224 elements are more than the 2147483647 that it counts"
    )


def test_hosts_have_the_plain_kernel_alone() -> None:
    assert FAMILY.candidates(MASKED, HOST)[0] == (DIRECT,)


def test_stages_behind_a_function_are_part_of_what_words_are_made_of_wherever_rows_lie() -> None:
    at = StepExpressions(("x", "m", "d"), ("y",), (None, None, None), (0,), (8, 0, 0))
    assert FAMILY.emit(COLOURS, stated(FlatTile(8, 2, 99)), H200, at).call == (
        "bolt::portable::flat<bolt::portable::FlatLoops<bolt::portable::Numbers<792, 3>, 8, 2, 99, std::int32_t, "
        "bolt::portable::Numbers<8, 1>, bolt::portable::Numbers<0, 1>, bolt::portable::Numbers<0, 1>>, "
        "bolt::portable::f16, bolt::portable::f16, float, float>(r, "
        "bolt::portable::staged_point<bolt::portable::Sub, 0, 1>(bolt::portable::PointStage<bolt::portable::Div, 2, "
        "false>{}, bolt::portable::PointStage<bolt::portable::Clip>{bolt::portable::Clip{-1.0f, 1.0f}}), y, x, m, d);"
    )


def test_stages_behind_an_activation_that_follow_an_odd_axis_are_part_of_its_words() -> None:
    planes = half(32, 64, 57, 57)
    gated = replace(
        points(Activation("silu"), planes, planes, single(64, 1, 1), planes),
        epilogue=(EpilogueOp(Binary("mul"), 1), EpilogueOp(Binary("sub"), 2, True)),
    )
    first, *others = FAMILY.candidates(gated, H200)[0]
    assert dict(first.parameters)["algorithm"] == "flat"
    assert DIRECT in others
    at = StepExpressions(("x", "c", "z"), ("y",), (None, None, None))
    assert FAMILY.emit(gated, stated(FlatTile(8, 2, 256)), H200, at).call == (
        "bolt::portable::flat<bolt::portable::FlatLoops<bolt::portable::Numbers<32, 64, 3249>, 8, 2, 256, "
        "std::int32_t, bolt::portable::Numbers<207936, 3249, 1>, bolt::portable::Numbers<0, 1, 0>, "
        "bolt::portable::Numbers<207936, 3249, 1>>, bolt::portable::f16, bolt::portable::f16, float, "
        "bolt::portable::f16>(r, bolt::portable::point_chain(bolt::portable::PointStage<bolt::portable::Silu>"
        "{bolt::portable::Silu{}}, bolt::portable::PointStage<bolt::portable::Mul, 1, false>{}, "
        "bolt::portable::PointStage<bolt::portable::Sub, 2, true>{}), y, x, c, z);"
    )
    dense = replace(gated, inputs=gated.inputs[::2], epilogue=(EpilogueOp(Binary("mul"), 1),))
    assert FAMILY.candidates(dense, H200)[0] == (DIRECT,)


@pytest.mark.parametrize(
    ("made", "base", "power"),
    [
        (DType.F16, DType.F16, "HalfPow<false>"),
        (DType.F16, DType.F32, "HalfPow<true>"),
        (DType.BF16, DType.BF16, "HalfPow<true>"),
        (DType.F32, DType.F16, "Pow"),
    ],
)
def test_powers_of_half_precision_are_no_calls(made: DType, base: DType, power: str) -> None:
    """Halves have no numbers below the least normal one of fp32, in which powers are computed."""
    problem = points(Binary("pow"), ((32, 512, 1025), made), ((32, 512, 1025), base), single(1))
    at = StepExpressions(("x", "e"), ("y",), (None, None))
    assert (
        f"staged_point<bolt::portable::{power}, 0, 1>()"
        in FAMILY.emit(problem, stated(FlatTile(4, 4, 256)), H200, at).call
    )
    assert FAMILY.candidates(problem, H200)[0][0] != DIRECT


@pytest.mark.parametrize(("pitch", "offset"), [(2711469, "std::int32_t"), (2711470, "bolt::portable::Index")])
def test_where_elements_stand_is_counted_in_32_bits_unless_rows_lie_too_far_apart(pitch: int, offset: str) -> None:
    """792 rows of three elements, the last of which reach just below 2^31 or beyond it."""
    at = StepExpressions(("x", "m", "d"), ("y",), (None, None, None), (0,), (pitch, 0, 0))
    assert f", 8, 2, 99, {offset}, " in FAMILY.emit(COLOURS, stated(FlatTile(8, 2, 99)), H200, at).call
