"""How blocks share the rows of a recurrent layer on a GPU: what candidates state, why others are refused, and which is
expected to be fastest."""

from __future__ import annotations

import pytest
from recurrent_kernels import recurrent

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout
from bolt_build.targets import HOST, target_named

FAMILY, H200 = Portable(), target_named("h200")
DIRECT = Candidate("portable", (("algorithm", "direct"),))


def lstm(batch: int, hidden: int, target: str = "h200", dtype: DType = DType.F16) -> KernelProblem:
    """Thirty steps in one direction."""
    op = recurrent("lstm", "lstm", "sigmoid tanh tanh", 30, batch, 1).op
    format = TensorFormat(dtype, Layout.ROW)
    x, weights = Operand((30, batch, 4 * hidden), format), Operand((1, hidden, 4 * hidden), format, True)
    (output,) = op.infer([x.type, weights.type])
    return KernelProblem(op, (x, weights), (Operand(output.shape, format),), (), DType.F32, target)


def of(rows: int, lanes: int) -> Candidate:
    return Candidate("portable", (("algorithm", "rows"), ("rows", rows), ("lanes", lanes)))


def call(problem: KernelProblem, candidate: Candidate) -> str:
    at = StepExpressions(("x", "w"), ("y",), (None, "w"))
    return FAMILY.emit(problem, candidate, H200, at).call


def test_the_plain_kernel_has_a_row_a_block() -> None:
    assert call(lstm(64, 96), DIRECT).startswith("bolt::portable::recurrent<1, 8>(")
    assert call(lstm(64, 20), DIRECT).startswith("bolt::portable::recurrent<1, 4>(")
    assert call(lstm(64, 20, dtype=DType.F32), DIRECT).startswith("bolt::portable::recurrent<1, 4>(")


def test_others_are_what_their_candidates_state() -> None:
    assert call(lstm(64, 96), of(4, 2)).startswith("bolt::portable::recurrent<4, 2>(")
    found, refusals = FAMILY.candidates(lstm(64, 96, dtype=DType.F32), H200)
    others = {str(of(rows, lanes)) for rows in (1, 2, 4) for lanes in (4, 2, 1)} - {str(of(1, 4))}
    assert len(found) == 4
    assert {str(each) for each in found} | {each.what for each in refusals} == {
        str(DIRECT), str(of(1, 8)), "recurrent", *others,
    }  # fmt: skip
    assert {each.reason for each in refusals} == {
        "3 other kernels of its form are predicted to be faster",
        "96 hidden units have no aligned loads of 8 weights of 4 bytes",
        "tensor_cores: multiplies states with weights in f16 or bf16",
    }
    assert FAMILY.candidates(lstm(64, 96, "host", DType.F32), HOST) == ((DIRECT,), ())


@pytest.mark.parametrize(("batch", "best"), [(1, 1), (64, 1), (200, 2), (500, 4)])
def test_a_block_has_more_rows_where_there_are_more_than_multiprocessors(batch: int, best: int) -> None:
    """Every block reads all weights at every step."""
    first = FAMILY.candidates(lstm(batch, 96, dtype=DType.F32), H200)[0][0]
    assert dict(first.parameters).get("rows", 1) == best


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (lstm(3, 96), of(2, 8), None),
        (lstm(3, 96), of(4, 8), "a batch of 3 has no 4 rows for a block"),
        (lstm(64, 20), of(2, 8), "20 hidden units have no aligned loads of 8 weights of 2 bytes"),
        (lstm(64, 96, dtype=DType.F32), of(2, 8), "96 hidden units have no aligned loads of 8 weights of 4 bytes"),
        (lstm(64, 3000), of(2, 8), None),
        (
            lstm(64, 3000),
            of(4, 8),
            "4 rows of 3000 hidden units need 336000 bytes of shared memory, of which a block has 232448",
        ),
        (
            lstm(64, 96),
            of(3, 8),
            "there are kernels of 1, 2 or 4 rows that read 1, 2, 4 or 8 weights at once, beside the plain one",
        ),
        (
            lstm(64, 96),
            of(1, 8),
            "there are kernels of 1, 2 or 4 rows that read 1, 2, 4 or 8 weights at once, beside the plain one",
        ),
    ],
)
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_hidden_units_that_no_block_has_room_for_are_refused() -> None:
    reason = "9000 hidden units need 252000 bytes of shared memory, of which a block has 232448"
    assert FAMILY.refuse(lstm(2, 9000), DIRECT, H200) == reason
    assert FAMILY.refuse(lstm(2, 9000), of(1, 4), H200) == reason
    found, refusals = FAMILY.candidates(lstm(2, 9000), H200)
    assert found == ()
    assert {(each.what, each.reason) for each in refusals} >= {("recurrent", reason)}
    assert FAMILY.candidates(lstm(2, 9000, "host", DType.F32), HOST) == ((DIRECT,), ())
