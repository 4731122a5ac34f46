"""Slices of any length that rows of indices name, in words of results: what is offered, refused, emitted."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.moves.gathered_tuples import TupleTile, rows_of
from bolt_build.families.portable.kernels.moves.staged_tuples import StagedTuplesTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
Shape = tuple[int, ...]


def taken(shape: Shape, indices: Shape, batches: int = 1) -> KernelProblem:
    def operand(extents: Shape, dtype: DType) -> Operand:
        return Operand(extents, TensorFormat(dtype, Layout.ROW))

    made = operand((*indices[:-1], *shape[batches + indices[-1] :]), DType.F16)
    data, named = operand(shape, DType.F16), operand(indices, DType.I64)
    return KernelProblem(GatherND(batches), (data, named), (made,), (), DType.F16, "h200")


POINTS, FEATURES = taken((32, 16384, 3), (32, 65536, 1)), taken((32, 1024, 64), (32, 1024, 20, 1))


@pytest.mark.parametrize(
    ("lanes", "inner", "rows"), [(8, 64, 1), (8, 3, 4), (8, 1, 8), (8, 12, 2), (4, 3, 2), (2, 1, 2), (16, 33, 2)]
)
def test_a_word_is_of_as_many_slices_as_it_may_begin_in(lanes: int, inner: int, rows: int) -> None:
    whole = inner % lanes == 0
    found = max((at % inner + lanes - 1) // inner + 1 for at in range(0, lanes * inner, lanes))
    assert rows_of(lanes, inner) == rows >= found
    assert whole == (rows == 1)


def test_slices_are_taken_in_words_without_a_lock() -> None:
    assert str(FAMILY.candidates(FEATURES, H200)[0][0]).startswith("portable algorithm=tuples lanes=8 turns=")


def test_points_that_have_room_in_shared_memory_are_taken_from_there_without_a_lock() -> None:
    assert str(FAMILY.candidates(POINTS, H200)[0][0]).startswith("portable algorithm=staged_tuples lanes=")


VERTICES = KernelProblem(
    Gather(1),
    tuple(
        Operand(extents, TensorFormat(dtype, Layout.ROW))
        for extents, dtype in (((32, 6890, 3), DType.F16), ((41328,), DType.I64))
    ),
    (Operand((32, 41328, 3), TensorFormat(DType.F16, Layout.ROW)),),
    (),
    DType.F16,
    "h200",
)


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (POINTS, StagedTuplesTile(8, 4), None),
        (POINTS, StagedTuplesTile(16, 4), "words of 16 elements are no accesses of 16 bytes at most"),
        (POINTS, StagedTuplesTile(8, 65), "65 blocks of a batch are more than 64"),
        (taken((2, 99999, 3), (2, 400000, 1)), StagedTuplesTile(8, 4),
         "staged_tuples: takes 600032 bytes of shared memory, a block has 232448"),
        (FEATURES, StagedTuplesTile(8, 4),
         "portable algorithm=staged_tuples lanes=8 cuts=4 is none of its candidates"),
        (VERTICES, StagedTuplesTile(8, 4), None),
    ],
)  # fmt: skip
def test_data_that_no_block_has_are_refused_with_their_reason(
    problem: KernelProblem, tile: StagedTuplesTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate_of("portable", "staged_tuples", tile), H200) == reason


def test_indices_along_one_axis_are_all_batches() -> None:
    at = StepExpressions(("d", "i"), ("y",), ("", ""))
    staged = candidate_of("portable", "staged_tuples", StagedTuplesTile(8, 4))
    assert FAMILY.emit(VERTICES, staged, H200, at).call == (
        "bolt::portable::staged_tuples<std::uint16_t, std::int64_t, 8, 4, 1, true>(r, "
        "bolt::portable::GatherND{.batches = 32, .tuples = 41328, .inner = 3, .extents = {1, {6890}}}, 4, d, i, y);"
    )


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (POINTS, TupleTile(8, 2), None),
        (POINTS, TupleTile(16, 1), "words of 16 elements are no accesses of 16 bytes at most"),
        (POINTS, TupleTile(8, 3), "a thread has 1, 2 or 4 words of 2, 4, 8 or 16 results"),
        (taken((2, 9, 9, 9), (2, 50, 3)), TupleTile(8, 2),
         "96 registers of a thread hold indices, at most 48 do"),
        (taken((2, 3, 3, 3, 3, 5), (2, 50, 4)), TupleTile(2, 1),
         "tuples: rows have 4 indices, at most 3 are asked for at once"),
    ],
)  # fmt: skip
def test_words_that_are_none_are_refused_with_their_reason(
    problem: KernelProblem, tile: TupleTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate_of("portable", "tuples", tile), H200) == reason


def test_the_call_states_slices_and_indices_of_a_word() -> None:
    at = StepExpressions(("d", "i"), ("y",), ("", ""))
    code = FAMILY.emit(POINTS, candidate_of("portable", "tuples", TupleTile(8, 2)), H200, at)
    assert code.includes == ("bolt_portable/gather.h", "bolt_portable/cuda/moves/gathered_tuples.h")
    assert code.call == (
        "bolt::portable::gathered_tuples<std::uint16_t, std::int64_t, 8, 2, 4, 1>(r, "
        "bolt::portable::GatherND{.batches = 32, .tuples = 65536, .inner = 3, .extents = {1, {16384}}}, d, i, y);"
    )
