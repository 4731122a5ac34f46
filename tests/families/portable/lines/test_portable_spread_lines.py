"""Softmax of long lines of neighbours in the shared memory of blocks and clusters: which problems have it, how a GPU's
memory limits it, and what is refused."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.lines.spread_lines import SpreadTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.targets import target_named

FAMILY = Portable()


def lines(*shape: int, axis: int = -1, target: str = "h200", logarithm: bool = False) -> KernelProblem:
    x = Operand(shape, TensorFormat(DType.F16, Layout.ROW))
    op = Line("log_softmax", axis % len(shape)) if logarithm else Softmax(axis % len(shape))
    return KernelProblem(op, (x,), (x,), (), DType.F16, target)


def stated(problem: KernelProblem, tile: SpreadTile) -> str | None:
    return FAMILY.refuse(problem, candidate_of("portable", "spread", tile), target_named(problem.target))


def first(problem: KernelProblem) -> Candidate:
    return FAMILY.candidates(problem, target_named(problem.target))[0][0]


@pytest.mark.parametrize("target", ["h200", "a100", "t4"])
@pytest.mark.parametrize("count", [21128, 32000, 50257, 151936])
def test_classes_of_language_models_are_spread_without_a_lock(count: int, target: str) -> None:
    assert str(first(lines(1024, count, target=target))).startswith("portable algorithm=spread")


def test_a_line_that_has_no_room_in_a_block_lies_in_a_cluster_from_hopper_on() -> None:
    assert dict(first(lines(64, 151936)).parameters)["cluster"] > 1
    assert dict(first(lines(64, 151936, target="a100")).parameters)["cluster"] == 1
    reason = "blocks form clusters from sm_90 on"
    assert stated(lines(64, 151936, target="a100"), SpreadTile(512, 2, 100)) == reason


def test_shorter_lines_and_lines_side_by_side_have_other_kernels() -> None:
    for problem in (lines(32, 512, 1000), lines(32, 4096, 256, axis=1)):
        candidates, _ = FAMILY.candidates(problem, target_named("h200"))
        assert not any("spread" in str(each) for each in candidates)
        assert "is none of its candidates" in str(stated(problem, SpreadTile(256, 1, 8)))


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (SpreadTile(512, 1, 99), None),
        (SpreadTile(512, 1, 3), None),
        (SpreadTile(384, 1, 99), "there are blocks of 256, 512 or 1024 threads, in clusters of up to 8"),
        (SpreadTile(256, 3, 99), "there are blocks of 256, 512 or 1024 threads, in clusters of up to 8"),
        (SpreadTile(1024, 8, 13), "786 words of each block's part are fewer than its 1024 threads"),
        (SpreadTile(512, 1, 227), "keeps 227 KiB of a line, a block has 226"),
    ],
)
def test_what_no_kernel_does_is_refused_with_its_reason(tile: SpreadTile, reason: str | None) -> None:
    assert stated(lines(32, 16, 50257), tile) == reason


def test_the_call_says_how_much_a_block_keeps() -> None:
    problem = lines(32, 50257, logarithm=True)
    candidate = candidate_of("portable", "spread", SpreadTile(512, 2, 50))
    code = FAMILY.emit(problem, candidate, target_named("h200"), StepExpressions(("x",), ("y",), ("x",)))
    assert code.call == (
        "bolt::portable::softmax_spread<bolt::portable::LogShares, 512, 2, bolt::portable::f16, bolt::portable::f16>"
        "(r, bolt::portable::Softmax{.outer = 32, .axis = 50257, .inner = 1}, 51200, x, y);"
    )
