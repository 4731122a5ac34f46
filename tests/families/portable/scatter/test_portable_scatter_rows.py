"""Scatters along the last axis whose elements know their last update first: what is offered, refused, emitted."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_rows import RowsTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import target_named

FAMILY, H200, T4 = Portable(), target_named("h200"), target_named("t4")
Shape = tuple[int, ...]


def scattered(shape: Shape, taken: Shape, how: str = "none", axis: int = -1) -> KernelProblem:
    def operand(extents: Shape, dtype: DType) -> Operand:
        return Operand(extents, TensorFormat(dtype, Layout.ROW))

    data, indices, updates = operand(shape, DType.F16), operand(taken, DType.I64), operand(taken, DType.F16)
    op = ScatterElements(axis % len(shape), how)
    return KernelProblem(op, (data, indices, updates), (data,), (), DType.F16, "h200")


ODD = scattered((32, 512, 333), (32, 512, 77))


@pytest.mark.parametrize("taken", [77, 200])
@pytest.mark.parametrize("length", [333, 1000])
def test_rows_are_scattered_by_all_threads_of_a_block_without_a_lock(length: int, taken: int) -> None:
    candidates, _ = FAMILY.candidates(scattered((32, 512, length), (32, 512, taken)), H200)
    assert str(candidates[0]).startswith("portable algorithm=rows threads=")


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (scattered((32, 512, 333), (32, 512, 77), "add"),
         "rows: updates that add are put in place one after the other"),
        (scattered((32, 512, 333), (32, 500, 77)),
         "rows: indices leave out elements along axis 1, whose lines are copied alone"),
    ],
)  # fmt: skip
def test_what_no_block_scatters_so_has_a_reason(problem: KernelProblem, reason: str) -> None:
    candidates, refusals = FAMILY.candidates(problem, H200)
    assert not any("algorithm=rows" in str(each) for each in candidates)
    assert reason in [str(each.reason) for each in refusals]


def test_lines_along_other_axes_have_other_kernels() -> None:
    candidates, refusals = FAMILY.candidates(scattered((32, 197, 768), (32, 128, 768), axis=1), H200)
    assert not any("algorithm=rows" in str(each) for each in candidates)
    assert not any(str(each.reason).startswith("rows:") for each in refusals)


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (RowsTile(128, 12), None),
        (RowsTile(64, 12), "there are blocks of 128, 256 or 512 threads"),
        (RowsTile(128, 16385), "16385 rows are more than the 16384 that there are"),
        (RowsTile(128, 50), "takes 66600 bytes of shared memory, a block has 65536"),
    ],
)
def test_blocks_that_are_none_are_refused_with_their_reason(tile: RowsTile, reason: str | None) -> None:
    stated = candidate_of("portable", "rows", tile)
    assert FAMILY.refuse(ODD, stated, T4) == reason


def test_the_call_states_rows_and_lines_of_a_block() -> None:
    at = StepExpressions(("d", "i", "u"), ("y",), ("", "", ""))
    code = FAMILY.emit(ODD, candidate_of("portable", "rows", RowsTile(256, 12)), H200, at)
    assert code.call == (
        "bolt::portable::scatter_rows<256, bolt::portable::f16, std::int64_t>(r, 16384, 333, 77, 12, d, i, u, y);"
    )
