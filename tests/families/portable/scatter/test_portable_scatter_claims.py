"""Scatters of slices that rows of indices name, whose updates claim them first: what is offered, refused, emitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_claims import ClaimTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
Shape = tuple[int, ...]


def scattered(shape: Shape, many: int, depth: int, how: str = "none", dtype: DType = DType.F16) -> KernelProblem:
    def operand(extents: Shape, of: DType) -> Operand:
        return Operand(extents, TensorFormat(of, Layout.ROW))

    data = operand(shape, dtype)
    indices, updates = operand((many, depth), DType.I64), operand((many, *shape[depth:]), dtype)
    return KernelProblem(ScatterND(how), (data, indices, updates), (data,), (), DType.F16, "h200")


@pytest.mark.parametrize(
    ("problem", "lanes"),
    [
        (scattered((32, 1500, 384), 4096, 2), 8),
        (scattered((32, 1500, 383), 4096, 2, "add"), 1),
        (scattered((32, 1500), 20000, 2, dtype=DType.I64), 1),
        (scattered((640, 64), 900, 1, "max", DType.F32), 4),
    ],
)
def test_updates_do_not_wait_for_each_other_without_a_lock(problem: KernelProblem, lanes: int) -> None:
    candidates, _ = FAMILY.candidates(problem, H200)
    assert str(candidates[0]) == f"portable algorithm=claims lanes={lanes}"


def test_a_few_updates_may_wait_for_each_other() -> None:
    candidates, _ = FAMILY.candidates(scattered((32, 64), 2, 1), H200)
    assert [str(each).split(" lanes")[0] for each in candidates[:2]] == [
        "portable algorithm=direct",
        "portable algorithm=claims",
    ]


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (ClaimTile(8), None),
        (ClaimTile(16), "words of 16 elements are no accesses of 16 bytes at most"),
        (ClaimTile(3), "words of 3 elements are no accesses of 16 bytes at most"),
    ],
)
def test_words_that_are_none_are_refused_with_their_reason(tile: ClaimTile, reason: str | None) -> None:
    problem = scattered((32, 1500, 384), 4096, 2)
    assert FAMILY.refuse(problem, candidate_of("portable", "claims", tile), H200) == reason


def test_slices_that_are_no_words_and_memory_for_claims_that_is_too_much_are_refused() -> None:
    odd = candidate_of("portable", "claims", ClaimTile(2))
    assert FAMILY.refuse(scattered((32, 15, 33), 40, 2), odd, H200) == "slices of 33 elements are no words of 2"
    one = candidate_of("portable", "claims", ClaimTile(1))
    reason = "claims: takes 1200000000 bytes beside its tensors, at most 1073741824 are kept"
    assert FAMILY.refuse(scattered((300_000_000,), 40, 1), one, H200) == reason


@pytest.mark.parametrize(("how", "nbytes"), [("none", 4 * 48000), ("add", 4 * (48000 + 4096))])
def test_the_plan_keeps_claims_and_where_updates_are_added_up_chains(how: str, nbytes: int) -> None:
    problem = scattered((32, 1500, 384), 4096, 2, how)
    candidate = candidate_of("portable", "claims", ClaimTile(8))
    code = FAMILY.emit(problem, candidate, H200, StepExpressions(("d", "i", "u"), ("y",), ("", "", "")))
    assert (code.member_type, code.member_arguments) == ("bolt::portable::PassedNorm", str(nbytes))
    assert code.call.startswith("bolt::portable::scatter_claims<bolt::portable::")
    assert code.call.endswith(
        "8, bolt::portable::f16, std::int64_t>(r, bolt::portable::GatherND{.batches = 1, .tuples = 4096, "
        ".inner = 384, .extents = {2, {32, 1500}}}, d, i, u, y);"
    )


def test_the_plan_keeps_constants_too() -> None:
    """A step that takes memory reads its constants when it is made."""
    problem = scattered((32, 1500, 384), 4096, 2)
    data, indices, updates = problem.inputs
    problem = replace(problem, inputs=(data, replace(indices, constant=True), updates))
    at = StepExpressions(("d", "i", "u"), ("y",), ("d", "w + 64", "u"))
    code = FAMILY.emit(problem, candidate_of("portable", "claims", ClaimTile(8)), H200, at)
    constant = 'bolt::portable::PassedConstant{w + 64, "w + 64", 65536}'
    assert code.member_arguments == f"192000, {constant}"
    assert code.call.endswith("d, kernel.constant(0), u, y);")
