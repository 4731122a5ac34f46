"""Elements along lines of neighbours whose indices are known at run time: which lines a GPU's blocks have whole."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.moves.gathered_lines import GatherTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
DIRECT = Candidate("portable", (("algorithm", "direct"),))
AT = StepExpressions(("d", "i"), ("y",), (None, None))


def taken(shape: tuple[int, ...], many: int, axis: int = 2) -> KernelProblem:
    of = (*shape[:axis], many, *shape[axis + 1 :])
    data, made = (Operand(each, TensorFormat(DType.F16, Layout.ROW)) for each in (shape, of))
    indices = Operand(of, TensorFormat(DType.I64, Layout.ROW))
    return KernelProblem(GatherElements(axis), (data, indices), (made,), (), DType.F16, "h200")


TOP = taken((32, 80, 1000), 300)


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (TOP, GatherTile(32, 10), None),
        (TOP, GatherTile(48, 7), "48 threads do not ask for 7 indices each"),
        (TOP, GatherTile(32, 17), "32 threads do not ask for 17 indices each"),
        (taken((4, 8, 9000), 99), GatherTile(32, 4), "lines of 72064 bytes have no room in the 49152 of a block"),
        (taken((4, 8, 9000), 99), GatherTile(64, 2), None),
        (
            taken((4, 8, 25000), 99),
            GatherTile(256, 1),
            "staged: a line of 50000 bytes has no room in the 49152 of a block",
        ),
        (taken((4, 8, 90), 5, 1), GatherTile(32, 3), "staged: elements along axis 1 are no neighbours"),
    ],
    ids=str,
)
def test_lines_that_no_block_has_are_refused_with_their_reason(
    problem: KernelProblem, tile: GatherTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate_of("portable", "staged", tile), H200) == reason


def test_whole_lines_are_first_where_they_are_many() -> None:
    """Else a thread's index is waited for before its element is. Few lines take no longer so than copies do."""
    firsts = [FAMILY.candidates(each, H200)[0][0] for each in (TOP, taken((8, 16, 100), 100))]
    assert firsts == [candidate_of("portable", "staged", GatherTile(32, 10)), DIRECT]


def test_emission_follows_what_is_stated() -> None:
    code = FAMILY.emit(TOP, candidate_of("portable", "staged", GatherTile(64, 5)), H200, AT)
    assert code.includes == ("bolt_portable/gather.h", "bolt_portable/cuda/moves/gathered_lines.h")
    assert code.call == (
        "bolt::portable::gathered_lines<std::uint16_t, std::int64_t, 64, 5>(r, "
        "bolt::portable::GatherElements{.rank = 3, .extent = {32, 80, 300}, .step = {80000, 1000, 0}, .along = 1, "
        ".length = 1000}, d, i, y);"
    )
