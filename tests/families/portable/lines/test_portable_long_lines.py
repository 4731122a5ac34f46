"""Softmax over few long lines of neighbours, which many blocks of two kernels share: how they are cut, and what is
refused."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.lines.paired_lines import PairedTile, refuse_tile, tiles
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")


def of(op: Op, *shape: int, target: str = "h200") -> KernelProblem:
    graph, node = graph_with(Layer("line", op, (Input(shape),), (), DType.F16))
    found = FAMILY.propose(graph, node, target_named(target), DType.F16)[0]
    problems = [each.steps[0].problem for each in found]
    return next(each for each in problems if {each.inputs[0].format.dtype, each.outputs[0].format.dtype} == {DType.F16}
                and each.inputs[0].format.layout is Layout.ROW)  # fmt: skip


WORDS = of(Softmax(1), 4, 50257)


def test_two_kernels_share_a_line() -> None:
    """What parts add up to is in scratch memory between them."""
    paired, space = candidate_of("portable", "paired", PairedTile(13, 256, 256)), "bolt::portable"
    assert FAMILY.refuse(WORDS, paired, H200) is None
    code = FAMILY.emit(WORDS, paired, H200, StepExpressions(("x",), ("y",), ("x",)))
    assert (code.member_type, code.member_arguments) == (f"{space}::PassedNorm", str(8 * 4 * 13))
    assert f"softmax_paired<{space}::Shares, {space}::PairedLine<50257, 13, 512, 256, 256>, " in code.call
    of_logarithms = of(Line("log_softmax", 1), 4, 50257)
    call = FAMILY.emit(of_logarithms, paired, H200, StepExpressions(("x",), ("y",), ("x",))).call
    assert f"softmax_paired<{space}::LogShares, " in call


def offered(problem: KernelProblem) -> set[str]:
    found = FAMILY.candidates(problem, target_named(problem.target))[0]
    return {str(dict(each.parameters)["algorithm"]) for each in found}


def test_lines_that_registers_hold_have_the_kernels_that_they_had() -> None:
    assert "paired" not in offered(of(Softmax(1), 4, 4096))
    assert "paired" not in offered(of(Softmax(1), 4, 9000, 8))
    assert "paired" in offered(WORDS)
    assert "paired" in offered(of(Softmax(1), 4, 16384, target="t4"))


def test_a_long_line_is_no_thread_s_where_others_are_predicted() -> None:
    for shape in ((1, 50257), (4, 128256), (1, 4194304), (256, 16384), (64, 9001)):
        first = min(
            FAMILY.candidates(of(Softmax(1), *shape), H200)[0],
            key=lambda each: FAMILY.predict(of(Softmax(1), *shape), each, H200),
        )
        assert dict(first.parameters)["algorithm"] in ("spread", "paired", "staged"), shape


def test_many_lines_need_not_share() -> None:
    told = {str(each.reason) for each in FAMILY.candidates(of(Softmax(1), 67, 50257), H200)[1]}
    assert "paired: 67 lines keep more than half of 132 multiprocessors busy with one each" in told


REFUSED = [
    (PairedTile(13, 128, 128), "there are kernels of 256 or 512 threads"),
    (PairedTile(14, 256, 256), "6283 loads are not cut in 14 parts of as many for each thread"),
    (PairedTile(13, 256, 100), "of 512 loads of a block not 100 are kept, where its threads have 256 at once"),
]


@pytest.mark.parametrize(("tile", "reason"), REFUSED)
def test_tiles_that_no_kernel_has(tile: PairedTile, reason: str) -> None:
    assert str(FAMILY.refuse(WORDS, candidate_of("portable", "paired", tile), H200)) == reason


@given(st.integers(1, 300), st.integers(4096, 1 << 23), st.sampled_from((2, 4)))
@settings(max_examples=200, deadline=None)
def test_blocks_have_all_loads_and_room_for_what_they_keep(groups: int, count: int, element: int) -> None:
    lines, gpu = Lines(groups, count, 1, element, element), H200.gpu
    assert gpu is not None
    found = list(tiles(lines, gpu))
    assert found
    for tile in found:
        assert refuse_tile(tile, lines, gpu) is None
        assert tile.parts * tile.share(lines) * 8 >= count
