"""Elements along any axis, each with an index of its own, in words of results: what is offered, refused, emitted."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.moves.gathered_words import GatheredWordsTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
Shape = tuple[int, ...]


def taken(shape: Shape, indices: Shape, axis: int, named: DType = DType.I64) -> KernelProblem:
    def operand(extents: Shape, dtype: DType) -> Operand:
        return Operand(extents, TensorFormat(dtype, Layout.ROW))

    data, made = operand(shape, DType.F16), operand(indices, DType.F16)
    return KernelProblem(GatherElements(axis), (data, operand(indices, named)), (made,), (), DType.F16, "h200")


BOXES, QUERIES = taken((32, 8400, 4), (32, 8400, 4), 1), taken((32, 900, 256), (32, 600, 256), 1)


@pytest.mark.parametrize("problem", [BOXES, QUERIES])
def test_elements_of_slices_are_taken_in_words_without_a_lock(problem: KernelProblem) -> None:
    assert str(FAMILY.candidates(problem, H200)[0][0]).startswith("portable algorithm=words lanes=4 turns=")


def test_elements_along_long_lines_come_with_the_lines() -> None:
    first = FAMILY.candidates(taken((32, 12, 197, 257), (32, 12, 197, 197), 3), H200)[0][0]
    assert str(first).startswith("portable algorithm=staged")


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (GatheredWordsTile(4, 2), None),
        (GatheredWordsTile(8, 1), "8 results with their indices are no accesses"),
        (GatheredWordsTile(4, 3), "a thread has 1, 2 or 4 words of 2, 4 or 8 results"),
        (GatheredWordsTile(3, 1), "a thread has 1, 2 or 4 words of 2, 4 or 8 results"),
    ],
)
def test_words_that_are_none_are_refused_with_their_reason(tile: GatheredWordsTile, reason: str | None) -> None:
    assert FAMILY.refuse(BOXES, candidate_of("portable", "words", tile), H200) == reason


def test_indices_that_leave_out_elements_have_the_plain_kernel() -> None:
    candidates, refusals = FAMILY.candidates(taken((32, 900, 256), (32, 600, 200), 1), H200)
    assert not any("words" in str(each) for each in candidates)
    assert "words: indices leave out elements along axis 2" in [str(each.reason) for each in refusals]


def test_the_call_states_the_axis() -> None:
    at = StepExpressions(("d", "i"), ("y",), ("", ""))
    code = FAMILY.emit(QUERIES, candidate_of("portable", "words", GatheredWordsTile(4, 2)), H200, at)
    assert code.includes == ("bolt_portable/gather.h", "bolt_portable/cuda/moves/gathered_words.h")
    assert code.call == (
        "bolt::portable::gathered_words<std::uint16_t, std::int64_t, 4, 2>(r, bolt::portable::Gather{.outer = 32, "
        ".extent = 900, .inner = 256, .count = 600}, d, i, y);"
    )
