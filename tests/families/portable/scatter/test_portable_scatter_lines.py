"""Scatters whose lines lie in shared memory, and gathers of whole slices: what is refused and why, which is first."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_lines import LineTile
from bolt_build.families.portable.kernels.scatter.scatter_stages import StagedLineTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.gather import GatherND
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import HOST, target_named

FAMILY, H100 = Portable(), target_named("h100")
DIRECT = Candidate("portable", (("algorithm", "direct"),))
Shape = tuple[int, ...]


def _operand(shape: Shape, dtype: DType) -> Operand:
    return Operand(shape, TensorFormat(dtype, Layout.ROW))


def scattered(shape: Shape, taken: Shape, axis: int) -> KernelProblem:
    data, indices, updates = _operand(shape, DType.F16), _operand(taken, DType.I64), _operand(taken, DType.F16)
    return KernelProblem(ScatterElements(axis), (data, indices, updates), (data,), (), DType.F16, "h100")


def named(shape: Shape, tuples: int) -> KernelProblem:
    data, indices = _operand(shape, DType.F16), _operand((shape[0], tuples, 1), DType.I64)
    made = _operand((shape[0], tuples, *shape[2:]), DType.F16)
    return KernelProblem(GatherND(1), (data, indices), (made,), (), DType.F16, "h100")


TOKENS = scattered((32, 197, 768), (32, 128, 768), 1)
AT = StepExpressions(("d", "i", "u"), ("y",), (None, None, None))


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (LineTile(1, 48), None),
        (LineTile(33, 1), "33 times 1 lines are more than 32 times 768"),
        (LineTile(1, 769), "1 times 769 lines are more than 32 times 768"),
        (LineTile(2, 192), "384 lines are more than the 256 threads of a block"),
        (LineTile(1, 64), "takes 25216 bytes of shared memory, a block has 24576"),
    ],
)
def test_lines_that_no_block_has_are_refused_with_their_reason(tile: LineTile, reason: str | None) -> None:
    stated = Candidate("portable", (("algorithm", "lines"), *tile.parameters), tile.settings)
    assert FAMILY.refuse(TOKENS, stated, H100) == reason


@pytest.mark.parametrize(
    ("problem", "reasons"),
    [
        (scattered((4, 20, 8), (3, 5, 8), 1),
         [f"{form}: indices leave out elements along axis 0, whose lines are copied alone"
          for form in ("lines", "staged_lines", "warp_columns", "atomic_columns", "atomic_runs",
                       "atomic_column_parts", "claims", "atomic_elements")]),
    ],
)  # fmt: skip
def test_what_has_no_such_kernel_has_a_reason(problem: KernelProblem, reasons: list[str]) -> None:
    candidates, refusals = FAMILY.candidates(problem, H100)
    assert candidates == (DIRECT,)
    assert [str(refusal.reason) for refusal in refusals] == reasons


def test_lines_that_no_block_has_room_for_claim_their_updates() -> None:
    candidates, refusals = FAMILY.candidates(scattered((4, 40000, 8), (4, 5, 8), 1), H100)
    assert {dict(each.parameters)["algorithm"] for each in candidates} == {
        "direct", "claims", "atomic_column_parts",
    }  # fmt: skip
    assert [str(refusal.reason) for refusal in refusals] == [
        "lines: a line takes 80000 bytes, a block has 24576",
        "takes 641280 bytes of shared memory, a block has 232448",
        "takes 818432 bytes of shared memory, a block has 232448",
        "takes 1280000 bytes of shared memory, a block has 232448",
        "takes 1440000 bytes of shared memory, a block has 232448",
        "atomic_elements: updates that replace elements are not joined",
    ]


@pytest.mark.parametrize(("problem", "algorithm"), [(TOKENS, "staged_lines"), (named((32, 1000, 256), 900), "slices")])
def test_without_a_lock_it_is_first(problem: KernelProblem, algorithm: str) -> None:
    first, *others = FAMILY.candidates(problem, H100)[0]
    assert dict(first.parameters)["algorithm"] == algorithm
    assert DIRECT in others
    assert FAMILY.candidates(problem, HOST)[0] == (DIRECT,)


def test_odd_slices_have_no_words_of_their_own() -> None:
    candidates, refusals = FAMILY.candidates(named((4, 20, 7), 5), H100)
    assert {dict(each.parameters)["algorithm"] for each in candidates} == {"direct", "tuples"}
    assert "slices: slices are single elements, or odd" in [str(refusal.reason) for refusal in refusals]


def test_lines_of_a_block_are_whole_lines_of_memory_and_many_updates_are_on_their_way() -> None:
    first = FAMILY.candidates(TOKENS, H100)[0][0]
    assert str(first) == "portable algorithm=staged_lines rows=16 stages=4 columns=64"


def test_slices_are_moved_in_the_widest_words_that_divide_them() -> None:
    firsts = [FAMILY.candidates(named((32, 1000, inner), 900), H100)[0][0] for inner in (256, 36, 6)]
    assert [dict(each.parameters)["lanes"] for each in firsts] == [8, 4, 2]


def test_emission_follows_what_is_stated() -> None:
    stated = Candidate("portable", (("algorithm", "lines"),), (("outers", 1), ("columns", 24)))
    assert FAMILY.emit(TOKENS, stated, H100, AT).call == (
        "bolt::portable::scatter_lines<bolt::portable::Replace, 8, bolt::portable::f16, std::int64_t>(r, "
        "bolt::portable::ScatterLines{.outer = 32, .length = 197, .extent = 128, .inner = 768, .outers = 1, "
        ".columns = 24}, d, i, u, y);"
    )


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        ((16, 3, 48), None),
        ((12, 3, 48), "3 stages of 12 updates: there are kernels of 2 to 4, of 8, 16 or 32"),
        ((16, 3, 776), "776 lines are more than 768"),
        ((16, 3, 264), "264 lines are more than the 256 threads of a block"),
        ((16, 3, 44), "rows of 44 elements, or of as many indices, are no whole accesses"),
        ((32, 4, 256), "takes 428544 bytes of shared memory, a block has 232448"),
    ],
    ids=str,
)
def test_updates_in_stages_have_room(tile: tuple[int, int, int], reason: str | None) -> None:
    assert FAMILY.refuse(TOKENS, candidate_of("portable", "staged_lines", StagedLineTile(*tile)), H100) == reason


def test_updates_of_rows_that_are_no_whole_accesses_are_not_staged() -> None:
    problem = scattered((2, 19, 71), (2, 35, 71), 1)
    stated = candidate_of("portable", "staged_lines", StagedLineTile(16, 3, 48))
    reason = "staged_lines: rows of 71 elements, or of as many indices, are no whole accesses"
    assert FAMILY.refuse(problem, stated, H100) == reason


def test_a_call_has_updates_of_a_stage_and_stages() -> None:
    stated = candidate_of("portable", "staged_lines", StagedLineTile(16, 3, 48))
    assert FAMILY.emit(TOKENS, stated, H100, AT).call == (
        "bolt::portable::staged_scatter<bolt::portable::Replace, 16, 3, bolt::portable::f16, std::int64_t>(r, "
        "bolt::portable::ScatterLines{.outer = 32, .length = 197, .extent = 128, .inner = 768, .outers = 1, "
        ".columns = 48}, d, i, u, y);"
    )
