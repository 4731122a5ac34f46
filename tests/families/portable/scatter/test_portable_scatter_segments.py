"""Scatters of slices that have many updates each: what is offered, refused, emitted."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_segments import SegmentTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.targets import Target, target_named

FAMILY, H200, T4 = Portable(), target_named("h200"), target_named("t4")
Shape = tuple[int, ...]
AT = StepExpressions(("d", "i", "u"), ("y",), ("", "", ""))


def added(shape: Shape, many: int, batches: int = 0, how: str = "add", dtype: DType = DType.F16) -> KernelProblem:
    def operand(extents: Shape, of: DType) -> Operand:
        return Operand(extents, TensorFormat(of, Layout.ROW))

    data, lines = operand(shape, dtype), shape[:batches]
    indices, updates = operand((*lines, many, 1), DType.I64), operand((*lines, many, *shape[batches + 1 :]), dtype)
    return KernelProblem(ScatterND(how, batches), (data, indices, updates), (data,), (), DType.F16, "h200")


@pytest.mark.parametrize("target", [H200, T4], ids=lambda target: target.name)
@pytest.mark.parametrize(
    "problem",
    [
        added((20000, 128), 400000, dtype=DType.F32),  # a graph
        added((64, 256), 20000, dtype=DType.F32),  # nodes of 64 graphs
        added((32, 1024, 256), 4096, 1, dtype=DType.F32),
    ],
)
def test_slices_of_many_updates_have_segments_without_a_lock(problem: KernelProblem, target: Target) -> None:
    candidates, _ = FAMILY.candidates(problem, target)
    assert str(candidates[0]).startswith("portable algorithm=segments lanes=4 threads=32")


def test_a_slice_has_as_many_threads_as_words() -> None:
    problem = added((32, 3000, 40), 9000, 1)
    found = [str(each) for each in FAMILY.candidates(problem, H200)[0] if "segments" in str(each)]
    assert set(found) == {
        f"portable algorithm=segments lanes={lanes} threads={threads}" for lanes, threads in ((8, 8), (4, 16), (2, 32))
    }


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (SegmentTile(8, 8), None),
        (SegmentTile(8, 12), "a slice has 4, 8, 16 or 32 threads, not 12"),
        (SegmentTile(16, 8), "words of 16 elements are no accesses of 16 bytes at most"),
        (SegmentTile(3, 8), "words of 3 elements are no accesses of 16 bytes at most"),
    ],
)
def test_threads_and_words_that_are_none_are_refused(tile: SegmentTile, reason: str | None) -> None:
    problem = added((32, 3000, 64), 9000, 1)
    assert FAMILY.refuse(problem, candidate_of("portable", "segments", tile), H200) == reason


def test_updates_that_replace_and_memory_that_is_too_much_are_refused() -> None:
    tile = candidate_of("portable", "segments", SegmentTile(1, 4))
    reason = "segments: updates that replace slices are not joined"
    assert FAMILY.refuse(added((40, 8), 90, how="none"), tile, H200) == reason
    reason = "takes 2400000332 bytes beside its tensors, at most 1073741824 are kept"
    assert FAMILY.refuse(added((300_000_000,), 40), tile, H200) == reason


def test_the_plan_keeps_numbers_of_updates_and_of_long_segments() -> None:
    problem = added((32, 3000, 64), 9000, 1)
    code = FAMILY.emit(problem, candidate_of("portable", "segments", SegmentTile(8, 8)), H200, AT)
    numbers = 4 * (2 * 96000 + 2 * 288000 + 2 + 288000 // 65)
    assert (code.member_type, code.member_arguments) == ("bolt::portable::PassedNorm", str(numbers))
    assert code.call == (
        "bolt::portable::scatter_segments<bolt::portable::typed::Add, 8, 8, bolt::portable::f16, std::int64_t>(r, "
        "bolt::portable::GatherND{.batches = 32, .tuples = 9000, .inner = 64, .extents = {1, {3000}}}, 264, "
        "d, i, u, y);"
    )
    few = FAMILY.emit(added((9, 64), 60), candidate_of("portable", "segments", SegmentTile(8, 8)), H200, AT)
    assert ", 0, d, i, u, y);" in few.call  # none can be long


def degrees(nodes: int, edges: int, dtype: DType = DType.F32) -> KernelProblem:
    data, indices, updates = (
        Operand(shape, TensorFormat(of, Layout.ROW))
        for shape, of in (((nodes,), dtype), ((edges,), DType.I64), ((edges,), dtype))
    )
    return KernelProblem(ScatterElements(0, "add"), (data, indices, updates), (data,), (), DType.F32, "h200")


def test_elements_along_the_last_axis_are_slices_of_one() -> None:
    problem = degrees(100_000, 1_000_000)
    first = FAMILY.candidates(problem, H200)[0][0]
    assert str(first) == "portable algorithm=segments lanes=1 threads=4"
    assert FAMILY.emit(problem, first, H200, AT).call == (
        "bolt::portable::scatter_segments<bolt::portable::typed::Add, 1, 4, float, std::int64_t>(r, "
        "bolt::portable::GatherND{.batches = 1, .tuples = 1000000, .inner = 1, .extents = {1, {100000}}}, 264, "
        "d, i, u, y);"
    )
