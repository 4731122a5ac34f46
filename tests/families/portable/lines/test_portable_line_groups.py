"""Softmax of lines that lie side by side in groups which a block holds whole: how they are cut, and what is refused."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.lines.line_groups import GroupTile, busy, refuse, refuse_tile, tiles
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.targets import target_named

FAMILY, H200, A100, T4 = Portable(), target_named("h200"), target_named("a100"), target_named("t4")


def of(op: Op, *shape: int, precision: DType = DType.F16, target: str = "h200") -> KernelProblem:
    graph, node = graph_with(Layer("line", op, (Input(shape, dtype=precision),), (), precision))
    found = FAMILY.propose(graph, node, target_named(target), precision)[0]
    return next(each.steps[0].problem for each in found if each.steps[0].problem.inputs[0].format.layout is Layout.ROW)


MIDDLE = of(Softmax(2), 32, 12, 197, 197)


def stated(*numbers: int) -> Candidate:
    return candidate_of("portable", "groups", GroupTile(*numbers))


def test_the_compiler_knows_extents_and_the_cut_and_blocks_are_an_argument() -> None:
    candidate, space = stated(416, 13, 2, 1, 132), "bolt::portable"
    assert str(candidate) == "portable algorithm=groups threads=416 loads=13 slots=2 resident=1 blocks=132"
    assert FAMILY.refuse(MIDDLE, candidate, H200) is None
    assert FAMILY.emit(MIDDLE, candidate, H200, StepExpressions(("x",), ("y",), ("x",))).call == (
        f"{space}::softmax_groups<{space}::Shares, {space}::GroupShape<197, 197, 416, 13, 2, 1>, {space}::f16, "
        f"{space}::f16>(r, {space}::Softmax{{.outer = 384, .axis = 197, .inner = 197}}, 132, x, y);"
    )
    logarithms = of(Line("log_softmax", 2), 32, 12, 197, 197)
    call = FAMILY.emit(logarithms, candidate, H200, StepExpressions(("x",), ("y",), ("x",))).call
    assert call.startswith(f"{space}::softmax_groups<{space}::LogShares, ")


NO_BLOCK = "blocks have 64 to 640 threads in whole warps, one or two groups on their way, and 7 others beside"
REFUSED = [
    ((1024, 6, 2, 1, 132), NO_BLOCK),
    ((416, 13, 3, 1, 132), NO_BLOCK),
    ((192, 13, 2, 1, 132), "lines repeat after 197 accesses, a block has 192 threads"),
    ((416, 12, 2, 1, 132), "4852 accesses of a group are 13 of each of 416 threads, of 16 at most, not 12"),
    ((224, 25, 1, 1, 132), "4852 accesses of a group are 25 of each of 224 threads, of 16 at most, not 25"),
    ((416, 13, 2, 2, 264), "a multiprocessor has room for 1 such blocks, not 2"),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "reason"), REFUSED)
def test_tiles_that_no_kernel_has(numbers: tuple[int, ...], reason: str) -> None:
    assert str(FAMILY.refuse(MIDDLE, stated(*numbers), H200)) == reason


def reasons(problem: KernelProblem) -> list[str]:
    found = FAMILY.candidates(problem, target_named(problem.target))[1]
    return [str(each.reason) for each in found if str(each.reason).startswith("groups: ")]


def test_lines_that_no_block_holds() -> None:
    assert reasons(of(Softmax(1), 2, 21, 257, 257)) == [
        "groups: lines repeat after 66049 accesses, a block has 640 threads at most"
    ]
    assert reasons(of(Softmax(1), 2, 1025, 255)) == [
        "groups: groups of 261375 elements are more than the 81920 that a block's threads hold"
    ]
    assert reasons(of(Softmax(1), 2, 64, 256)) == [
        "groups: 256 elements side by side are whole sectors, which registers read as fast"
    ]
    assert reasons(of(Softmax(1), 64, 64, 49, precision=DType.F32)) == [
        "groups: elements of 4 and 4 bytes are not those of half precision"
    ]
    assert reasons(of(Softmax(1), 64, 64, 49, target="t4")) == [
        "groups: copies to shared memory run beside a block's work from sm_80 on"
    ]
    assert reasons(of(Softmax(2), 64, 64, 49)) == []  # lines of neighbours


@given(st.integers(1, 5000), st.integers(1, 500), st.integers(2, 600))
@settings(max_examples=200, deadline=None)
def test_threads_hold_all_elements_of_a_group_wherever_it_begins(groups: int, count: int, inner: int) -> None:
    lines = Lines(groups, count, inner, 2, 2)
    for target in (H200, A100):
        gpu = target.gpu
        assert gpu is not None
        if refuse(lines, gpu) is not None:
            continue
        for tile in tiles(lines, gpu):
            held = busy(tile.threads, lines) * tile.loads * LANES
            assert held >= count * inner + (LANES - 1 if count * inner % LANES else 0)
            assert busy(tile.threads, lines) * LANES % inner == 0
            if refuse_tile(tile, lines, gpu) is None:
                assert tile.resident * (tile.shared(lines) + 1024) <= gpu.shared_memory + 1024
