"""Movements of rows that no access divides, in whole accesses of the output: what candidates state, what is refused and
why, what is offered without a lock, and what is emitted."""

from __future__ import annotations

import pytest
from test_portable_permuted import DIRECT, FAMILY, H100, LAST, ROW

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.kernels.moves.flat_rows import RowTile
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Slice
from bolt_build.targets import HOST

Shape = tuple[int, ...]
F16, I64 = DType.F16, DType.I64


def movement(op: Op, made: Shape, *given: tuple[Shape, DType], layout: Layout = ROW) -> KernelProblem:
    inputs = tuple(Operand(shape, TensorFormat(dtype, layout)) for shape, dtype in given)
    return KernelProblem(op, inputs, (Operand(made, TensorFormat(given[0][1], layout)),), (), F16, "h100")


def stated(words: int, turns: int) -> Candidate:
    return Candidate("portable", (("algorithm", "flat_rows"), *RowTile(words, turns).parameters))


BOXES = movement(Concat(2), (32, 8400, 85), ((32, 8400, 4), F16), ((32, 8400, 1), F16), ((32, 8400, 80), F16))
COLUMNS = movement(Gather(2), (32, 768, 196), ((32, 768, 196), F16), ((196,), I64))
IMAGES = movement(Concat(1), (32, 85, 56, 56), ((32, 27, 56, 56), F16), ((32, 58, 56, 56), F16), layout=LAST)
CORNERS = movement(Slice((0, 0, 0), (32, 512, 43), (1, 1, 2)), (32, 512, 43), ((32, 512, 85), F16))
FOURS = movement(Slice((0, 0, 0), (32, 512, 4), (1, 1, 1)), (32, 512, 4), ((32, 512, 85), F16))
PADDED = movement(Pad((0, 0, 2), (0, 0, 1), "edge", 0.0), (32, 512, 60), ((32, 512, 57), F16))


def pieces(problem: KernelProblem) -> set[object]:
    return {dict(each.parameters)["algorithm"] for each in FAMILY.candidates(problem, H100)[0]}


@pytest.mark.parametrize("problem", [BOXES, COLUMNS, IMAGES])
def test_without_a_lock_it_comes_first_where_threads_would_look_for_elements_one_by_one(problem: KernelProblem) -> None:
    first, *others = FAMILY.candidates(problem, H100)[0]
    assert dict(first.parameters)["algorithm"] == "flat_rows"
    assert DIRECT in others


@pytest.mark.parametrize("problem", [CORNERS, FOURS, PADDED])
def test_it_is_measured_beside_tiles(problem: KernelProblem) -> None:
    """Four neighbours of each 85 are whole accesses of one side alone: the plain kernel moves them one by one."""
    assert pieces(problem) == {"direct", "tiled", "flat_rows"}


def test_what_the_plain_kernel_moves_in_whole_accesses_is_left_to_it() -> None:
    problem = movement(Concat(2), (32, 512, 96), ((32, 512, 64), F16), ((32, 512, 32), F16))
    candidates, refusals = FAMILY.candidates(problem, H100)
    assert candidates == (DIRECT,)
    assert [str(each.reason) for each in refusals] == ["flat_rows: threads of the plain kernel have whole accesses"]


def test_slices_of_several_elements_that_indices_name_are_no_flat_rows() -> None:
    assert pieces(movement(Gather(1), (32, 500, 197), ((32, 1000, 197), F16), ((500,), I64))) == {"direct", "tuples"}


def test_more_tensors_than_a_thread_looks_through_have_the_plain_kernel_alone() -> None:
    assert pieces(movement(Concat(1), (512, 27), *([((512, 3), F16)] * 9))) == {"direct"}


def test_rows_of_one_element_which_may_lie_apart_have_the_plain_kernel_alone() -> None:
    assert pieces(movement(Slice((0, 0, 0), (3, 41, 1), (1, 2, 1)), (3, 41, 1), ((3, 85, 7), F16))) == {"direct"}


def test_hosts_have_the_plain_kernel_alone() -> None:
    assert FAMILY.candidates(BOXES, HOST)[0] == (DIRECT,)


@pytest.mark.parametrize(
    ("problem", "words", "turns", "reason"),
    [
        (BOXES, 8, 2, None),
        (BOXES, 16, 1, "accesses of 16 elements are none of 16 bytes at most"),
        (BOXES, 3, 1, "accesses of 3 elements are none of 16 bytes at most"),
        (BOXES, 8, 4, "4 accesses of 8 elements are more than a thread's registers hold"),
        (BOXES, 2, 3, "3 accesses of 2 elements are more than a thread's registers hold"),
        (movement(Concat(1), (512, 3), ((512, 1), F16), ((512, 2), F16)), 4, 1,
         "accesses of 4 elements are longer than rows of 3"),
        (movement(Concat(1), (2, 1 << 28), ((2, 1), F16), ((2, (1 << 28) - 1), F16)), 8, 1,
         "flat_rows: counts 8589934592 elements, which are more than 31 bits say"),
    ],
)  # fmt: skip
def test_what_no_kernel_has_is_refused_with_its_reason(
    problem: KernelProblem, words: int, turns: int, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, stated(words, turns), H100) == reason


def test_parts_lie_apart_and_so_do_rows_of_the_output() -> None:
    at = StepExpressions(("a", "b", "c"), ("y",), (None, None, None), (112,), (0, 16, 96))
    assert FAMILY.emit(BOXES, stated(4, 4), H100, at).call == (
        "bolt::portable::join_rows<4, 4, false>(r, 268800, bolt::portable::JoinedRows<std::uint16_t, "
        "bolt::portable::Numbers<4, 5, 85>, bolt::portable::Numbers<4, 16, 96>, 112>{{"
        "static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b), "
        'static_cast<const std::uint16_t*>(c)}}, y, "movement");'
    )


def test_rows_that_lie_farther_apart_than_32_bits_count_have_places_of_64() -> None:
    """A pitch of 16000 elements has 268800 rows reach over four billion: of the output, or of a part alone."""
    for pitch, parts in ((16000, ()), (0, (4, 16000, 96))):
        at = StepExpressions(("a", "b", "c"), ("y",), (None, None, None), (pitch,), parts)
        assert f", {pitch or 85}, bolt::portable::Index>{{{{" in FAMILY.emit(BOXES, stated(4, 4), H100, at).call
    for pitch, given in ((1 << 18, 0), (0, 1 << 18)):
        at = StepExpressions(("x",), ("y",), (None,), (pitch,), (given,))
        dense = "false" if pitch else "true"
        assert f">, {dense}, bolt::portable::Index>{{" in FAMILY.emit(CORNERS, stated(4, 4), H100, at).call


def test_indices_are_looked_at_by_the_kernel() -> None:
    at = StepExpressions(("x", "i"), ("y",), (None, None))
    assert FAMILY.emit(COLUMNS, stated(4, 4), H100, at).call == (
        "bolt::portable::flat_rows<4, 4, true>(r, 24576, bolt::portable::PickedRows<std::uint16_t, std::int64_t, 196, "
        "196>{static_cast<const std::uint16_t*>(x), static_cast<const std::int64_t*>(i), r.fault, r.mark()}, y, "
        '"movement");'
    )
