"""Scatters whose updates warps join, and whose elements claim them: what is refused and why, and what is called."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_claims import ClaimTile
from bolt_build.families.portable.kernels.scatter.scatter_warps import WarpColumnsTile, WarpRowsTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import HOST, target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("d", "i", "u"), ("y",), (None, None, None))
Shape = tuple[int, ...]


def scattered(shape: Shape, many: int, axis: int, how: str = "add", dtype: DType = DType.F16) -> KernelProblem:
    taken = (*shape[:axis], many, *shape[axis + 1 :])
    data, indices, updates = (
        Operand(each, TensorFormat(of, Layout.ROW)) for each, of in ((shape, dtype), (taken, DType.I64), (taken, dtype))
    )
    return KernelProblem(ScatterElements(axis, how), (data, indices, updates), (data,), (), dtype, "h200")


ROWS, COLUMNS, LONG = scattered((64, 333), 77, 1), scattered((8, 576, 250), 576, 1), scattered((90000, 64), 400, 0)


def columns(many: int) -> Candidate:
    return candidate_of("portable", "warp_columns", WarpColumnsTile(many))


def rows(lines: int) -> Candidate:
    return candidate_of("portable", "warp_rows", WarpRowsTile(lines))


def claims(lanes: int) -> Candidate:
    return candidate_of("portable", "claims", ClaimTile(lanes))


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (COLUMNS, columns(32), None),
        (COLUMNS, columns(24), "there are blocks of 8, 16, 32 or 64 lines, not of 24"),
        (scattered((8, 2000, 250), 576, 1), columns(64), "takes 536640 bytes of shared memory, a block has 232448"),
        (COLUMNS, rows(8), "portable algorithm=warp_rows lines=8 is none of its candidates"),
        (ROWS, rows(24), None),
        (ROWS, rows(65), "65 rows are more than the 64 that there are"),
        (scattered((64, 60000), 77, 1), rows(1), "takes 270000 bytes of shared memory, a block has 232448"),
        (ROWS, columns(8), "portable algorithm=warp_columns columns=8 is none of its candidates"),
        (LONG, claims(4), None),
        (LONG, claims(8), "words of 8 elements are no accesses of 16 bytes at most"),
        (scattered((9, 37), 5, 0), claims(2), "333 elements are no words of 2"),
        (scattered((1 << 15, 1 << 14), 1, 0), claims(1),
         "claims: takes 2147549184 bytes beside its tensors, at most 1073741824 are kept"),
    ],
)  # fmt: skip
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_gpus_alone_have_them() -> None:
    assert [str(each) for each in FAMILY.candidates(COLUMNS, HOST)[0]] == ["portable algorithm=direct"]


def test_calls_have_lines_of_a_block_and_the_widest_words() -> None:
    assert FAMILY.emit(COLUMNS, columns(32), H200, AT).call == (
        "bolt::portable::scatter_warp_columns<bolt::portable::typed::Add, 32, 2, bolt::portable::f16, std::int64_t>(r, "
        "bolt::portable::ScatterLines{.outer = 8, .length = 576, .extent = 576, .inner = 250, .outers = 1, "
        ".columns = 32}, d, i, u, y);"
    )
    assert FAMILY.emit(ROWS, rows(24), H200, AT).call == (
        "bolt::portable::scatter_warp_rows<bolt::portable::typed::Add, bolt::portable::f16, std::int64_t>(r, 64, 333, "
        "77, 24, d, i, u, y);"
    )


def test_claims_have_memory_of_their_own() -> None:
    code = FAMILY.emit(LONG, claims(4), H200, AT)
    assert code.member_arguments == str(4 * (90000 * 64 + 400 * 64))
    assert code.call.startswith(
        "bolt::portable::scatter_elements_in_claims<bolt::portable::typed::Add, 4, bolt::portable::f16, std::int64_t>("
    )
