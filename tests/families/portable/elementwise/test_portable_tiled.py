"""Functions of tensors through tiles of the output: what candidates state, what is refused and why, which is offered
first, and what stays with the plain kernel."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.elementwise.tiled import PointTile
from bolt_build.graph.ir import EpilogueOp, Layout, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Cast, Pad, Slice
from bolt_build.targets import HOST, target_named

FAMILY, H100 = Portable(), target_named("h100")
DIRECT = Candidate("portable", (("algorithm", "direct"),))
Given = tuple[tuple[int, ...], DType]


def points(op: Op, made: Given, *inputs: Given) -> KernelProblem:
    operands = [Operand(shape, TensorFormat(dtype, Layout.ROW)) for shape, dtype in (*inputs, made)]
    return KernelProblem(op, tuple(operands[:-1]), (operands[-1],), (), DType.F16, "h100")


SCORES = ((32, 12, 197, 197), DType.F16)
HIDDEN = points(Where(), SCORES, ((32, 1, 197, 197), DType.BOOL), SCORES, ((1,), DType.F16))
ONE_HOT = points(Compare("equal"), ((32, 512, 1000), DType.BOOL), ((32, 512, 1), DType.I64), ((1000,), DType.I64))


def stated(tile: PointTile) -> Candidate:
    return Candidate("portable", (("algorithm", "tiled"), *tile.parameters))


def algorithms(problem: KernelProblem) -> list[str]:
    """Of the candidates, the first that is predicted to be fastest, each once."""
    return list(dict.fromkeys(str(dict(each.parameters)["algorithm"]) for each in FAMILY.candidates(problem, H100)[0]))


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (HIDDEN, PointTile((1, 12, 681), 1), None),
        (HIDDEN, PointTile((12, 681), 1), "a tile states 2 loops of 3"),
        (HIDDEN, PointTile((1, 13, 681), 1), "a tile has at least one element of each loop, and at most all"),
        (HIDDEN, PointTile((1, 1, 1), 1), "a tile of one element is none"),
        (HIDDEN, PointTile((1, 12, 682), 2), "words of 2 elements are not of all tensors"),
        (HIDDEN, PointTile((32, 12, 38809), 1), "a thread would have 58368 turns, at most 64 are code"),
        (ONE_HOT, PointTile((17, 1000), 8), None),
        (ONE_HOT, PointTile((17, 500), 8), "words of 8 elements are not of all tensors"),
        (ONE_HOT, PointTile((17, 1000), 3), "words of 3 elements are not of all tensors"),
    ],
)
def test_a_tile_that_no_kernel_has_is_refused_with_its_reason(
    problem: KernelProblem, tile: PointTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, stated(tile), H100) == reason


@pytest.mark.parametrize(
    "problem",
    [
        HIDDEN,
        ONE_HOT,
        points(Where(), SCORES, ((197, 197), DType.BOOL), SCORES, ((1,), DType.F16)),
        points(Expand(SCORES[0]), SCORES, ((32, 1, 197, 197), DType.F16)),
        points(Cast(DType.F64), ((32, 512, 1025), DType.F64), ((32, 512, 1025), DType.F16)),
    ],
)  # fmt: skip
def test_tiles_are_offered_before_threads_that_would_look_for_elements_one_by_one(problem: KernelProblem) -> None:
    """And are predicted to take at most three times as long as its bytes."""
    offered = FAMILY.candidates(problem, H100)[0]
    first = next(each for each in offered if dict(each.parameters)["algorithm"] == "tiled")
    assert offered.index(first) < offered.index(DIRECT)
    assert FAMILY.predict(problem, first, H100) < 3 * problem.nbytes / H100.bandwidth


@pytest.mark.parametrize(("step", "first", "many"), [(-1, 1000, 1001), (2, 0, 500)])
def test_elements_of_a_row_that_share_sectors_go_in_words_of_the_output_as_was_measured_to_be_fastest(
    step: int, first: int, many: int
) -> None:
    made = (32, 512, many)
    legal = FAMILY.candidates(
        points(Slice((0, 0, first), made, (1, 1, step)), (made, DType.F16), ((32, 512, 1001), DType.F16)), H100
    )[0]
    assert dict(legal[0].parameters)["algorithm"] == "flat_rows"
    assert {str(dict(each.parameters)["algorithm"]) for each in legal} == {"direct", "tiled", "flat_rows"}


@pytest.mark.parametrize(
    "problem",
    [
        points(Where(), ((32, 512, 1024), DType.F16), ((32, 512, 1024), DType.BOOL), ((32, 512, 1024), DType.F16),
               ((1,), DType.F16)),
        points(Compare("less"), ((7, 33), DType.BOOL), ((7, 33), DType.F16), ((7, 33), DType.F16)),
        points(Binary("add"), ((7, 33), DType.F16), ((7, 33), DType.F16), ((7, 33), DType.F16)),
        points(Binary("mul"), SCORES, SCORES, ((1,), DType.F32)),
        points(Binary("add"), ((7, 28, 28, 64), DType.F16), ((7, 28, 28, 64), DType.F16), ((64,), DType.F32)),
        points(Expand((32, 4, 8, 257, 64)), ((32, 4, 8, 257, 64), DType.F16), ((32, 4, 1, 257, 64), DType.F16)),
        points(Cast(DType.I32), ((32, 512), DType.I32), ((32, 512), DType.I64)),
    ],
)  # fmt: skip
def test_what_the_plain_kernel_has_in_whole_accesses_is_left_to_it(problem: KernelProblem) -> None:
    candidates, refusals = FAMILY.candidates(problem, H100)
    assert DIRECT in candidates
    assert "tiled" not in algorithms(problem)
    assert "tiled: threads of the plain kernel have whole accesses" in [str(refusal.reason) for refusal in refusals]


PAIRS = points(Binary("sub"), ((8, 512, 512, 33), DType.F16), ((8, 512, 1, 33), DType.F16),
               ((8, 1, 512, 33), DType.F16))  # fmt: skip
COLOURS = replace(
    points(Binary("sub"), ((8, 99, 3), DType.F16), ((8, 99, 3), DType.F16), ((3,), DType.F32), ((3,), DType.F32)),
    epilogue=(EpilogueOp(Binary("div"), 2), EpilogueOp(Activation("clip", -1.0, 1.0))),
)


def test_functions_of_two_tensors_whose_odd_rows_are_repeated_go_through_tiles() -> None:
    found = algorithms(PAIRS)
    assert found.index("tiled") < found.index("direct")


def test_so_do_those_of_integers() -> None:
    sums = points(Binary("add"), ((90, 40, 33), DType.I64), ((90, 40, 1), DType.I64), ((90, 1, 33), DType.I64))
    assert set(algorithms(sums)) == {"direct", "flat", "tiled"}


def test_long_odd_rows_with_a_vector_go_in_whole_words_without_a_lock() -> None:
    problem = points(Binary("add"), ((32, 512, 1001), DType.F16), ((32, 512, 1001), DType.F16), ((1001,), DType.F32))
    assert algorithms(problem) == ["flat", "tiled", "direct"]


def test_stages_behind_a_function_are_part_of_what_tiles_compute_wherever_rows_lie() -> None:
    at = StepExpressions(("x", "m", "d"), ("y",), (None, None, None), (0,), (8, 0, 0))
    assert FAMILY.emit(COLOURS, stated(PointTile((158, 3), 1)), H100, at).call == (
        "bolt::portable::tiled<bolt::portable::PointTile<bolt::portable::Numbers<158, 3>, 1, 1u, "
        "bolt::portable::Numbers<3, 1>, bolt::portable::Numbers<8, 1>, bolt::portable::Numbers<0, 1>, "
        "bolt::portable::Numbers<0, 1>>, bolt::portable::f16, bolt::portable::f16, float, float>(r, "
        "bolt::portable::Pointwise<3>{.rank = 2, .extent = {792, 3}, .step = {{8, 1}, {0, 1}, {0, 1}}}, {3, 1}, "
        "bolt::portable::staged_point<bolt::portable::Sub, 0, 1>(bolt::portable::PointStage<bolt::portable::Div, 2, "
        "false>{}, bolt::portable::PointStage<bolt::portable::Clip>{bolt::portable::Clip{-1.0f, 1.0f}}), y, x, m, d);"
    )


def test_hosts_have_the_plain_kernel_alone() -> None:
    assert FAMILY.candidates(HIDDEN, HOST)[0] == (DIRECT,)


def test_tiles_that_are_offered_have_as_many_elements_as_threads_have_turns() -> None:
    stated_cuts = [dict(each.parameters).get("tile") for each in FAMILY.candidates(HIDDEN, H100)[0]]
    cuts = [tuple(map(int, str(cut).split("x"))) for cut in stated_cuts if cut is not None]
    assert cuts
    assert all(2 <= prod(cut) <= 64 * 256 * 8 for cut in cuts)


def test_a_candidate_states_all_of_its_tile() -> None:
    call = FAMILY.emit(HIDDEN, stated(PointTile((1, 12, 681), 1)), H100,
                       StepExpressions(("m", "x", "v"), ("y",), (None, None, None))).call  # fmt: skip
    assert call == (
        "bolt::portable::tiled<bolt::portable::PointTile<bolt::portable::Numbers<1, 12, 681>, 1, 4u, "
        "bolt::portable::Numbers<0, 38809, 1>, bolt::portable::Numbers<0, 0, 1>, bolt::portable::Numbers<0, 38809, 1>, "
        "bolt::portable::Numbers<0, 0, 0>>, bolt::portable::f16, bolt::portable::boolean, bolt::portable::f16, "
        "bolt::portable::f16>(r, "
        "bolt::portable::Pointwise<3>{.rank = 3, .extent = {32, 12, 38809}, "
        ".step = {{38809, 0, 1}, {465708, 38809, 1}, {0, 0, 0}}}, {465708, 38809, 1}, bolt::portable::typed::Where{}, "
        "y, m, x, v);"
    )


def test_a_slice_in_steps_begins_at_its_first_element_wherever_rows_lie() -> None:
    problem = points(Slice((0, 8, 40), (4, 3, 20), (1, -2, -2)), ((4, 3, 20), DType.F16), ((4, 9, 41), DType.F16))
    at = StepExpressions(("x",), ("y",), (None,), (32,), (64,))
    assert FAMILY.emit(problem, stated(PointTile((4, 3, 20), 1)), H100, at).call == (
        "bolt::portable::tiled<bolt::portable::PointTile<bolt::portable::Numbers<4, 3, 20>, 1, 0u, "
        "bolt::portable::Numbers<96, 32, 1>, bolt::portable::Numbers<576, -128, -2>>, std::uint16_t, std::uint16_t>(r, "
        "bolt::portable::Pointwise<1>{.rank = 3, .extent = {4, 3, 20}, .step = {{576, -128, -2}}}, {96, 32, 1}, "
        "bolt::portable::SameElement{}, y, static_cast<const std::uint16_t*>(x) + 552);"
    )


def padded(mode: str, shape: tuple[int, ...], around: tuple[int, ...]) -> KernelProblem:
    made = tuple(extent + 2 * each for extent, each in zip(shape, around, strict=True))
    return points(Pad(around, around, mode, 0.0), (made, DType.F16), (shape, DType.F16))


@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_odd_rows_are_padded_in_words_of_the_output_as_was_measured_to_be_fastest(mode: str) -> None:
    legal = FAMILY.candidates(padded(mode, (32, 64, 62, 62), (0, 0, 1, 1)), H100)[0]
    assert dict(legal[0].parameters)["algorithm"] == "flat_rows"
    assert {str(dict(each.parameters)["algorithm"]) for each in legal} == {"direct", "tiled", "flat_rows"}


def test_padding_in_whole_accesses_is_left_to_the_plain_kernel() -> None:
    problem = padded("constant", (32, 28, 28, 192), (0, 2, 2, 0))
    candidates, refusals = FAMILY.candidates(problem, H100)
    assert candidates == (DIRECT,)
    assert [str(refusal.reason) for refusal in refusals] == [
        f"{form}: threads of the plain kernel have whole accesses" for form in ("tiled", "flat_rows")
    ]


@pytest.mark.parametrize(
    ("cut", "reason"),
    [
        ("2x64x64", None),
        ("64x64", "a tile states 2 axes of 3"),
        ("1x65x64", "a tile has at least one element of each axis, and at most all"),
        ("1x1x1", "a tile of one element is none"),
        ("8x64x64", "a thread would have 128 turns, at most 64 are code"),
        ("60x1x64", None),
        ("240x1x64", "a thread would have 61 places along its axes, at most 40"),
    ],
)
def test_a_tile_in_which_no_kernel_pads_is_refused_with_its_reason(cut: str, reason: str | None) -> None:
    candidate = Candidate("portable", (("algorithm", "tiled"), ("tile", cut)))
    assert FAMILY.refuse(padded("edge", (32, 64, 62, 62), (0, 0, 1, 1)), candidate, H100) == reason
