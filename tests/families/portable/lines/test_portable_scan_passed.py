"""Running sums in one pass, whose blocks tell those behind them what their parts come to: what is refused and why, what
is called, and where prediction takes them."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.lines.scan_passed import ScanPassedColumnsTile, ScanPassedTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.lines import CumProd, CumSum
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("x",), ("y",), (None,))


def running(op: CumSum | CumProd, *shape: int, dtype: DType = DType.F16) -> KernelProblem:
    x = Operand(shape, TensorFormat(dtype, Layout.ROW))
    return KernelProblem(op, (x,), (x,), (), dtype if dtype.is_float else DType.F16, "h200")


def passed(words: int, blocks: int = 264) -> Candidate:
    return candidate_of("portable", "passed", ScanPassedTile(words, blocks))


def across(lanes: int, threads: int) -> Candidate:
    return candidate_of("portable", "passed_columns", ScanPassedColumnsTile(lanes, threads))


MANY = "{} counters of lines and parts are more than the 4096 that there are"
SOUND, ROUTES = running(CumSum(1), 32, 480000), running(CumSum(1), 1, 32768, 64)
STATES = running(CumSum(1), 32, 512, 1024)


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (SOUND, passed(4), None),
        (SOUND, passed(8), None),
        (SOUND, passed(6), "no thread has 6 words"),
        (running(CumSum(1), 3000, 9000), passed(4), MANY.format(6001)),
        (ROUTES, passed(4), "portable algorithm=passed words=4 blocks=264 is none of its candidates"),
        (ROUTES, across(8, 8), None),
        (ROUTES, across(8, 3), "no 3 threads have lines side by side"),
        (running(CumSum(1), 1, 32768, 60), across(8, 8), "60 lines side by side are no whole accesses of 8"),
        (running(CumSum(0), 600, 300000), across(8, 8), MANY.format(9377)),
    ],
)  # fmt: skip
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_calls_have_memory_for_what_parts_come_to_and_counters() -> None:
    code = FAMILY.emit(SOUND, passed(4), H200, AT)
    assert code.counts
    assert code.member_arguments == str(32 * 59 * 8)
    assert code.call == (
        "bolt::portable::scan_passed<4, false, bolt::portable::f16, bolt::portable::typed::Add>(r, 32, 480000, 264, "
        "false, x, y, 0);"
    )
    code = FAMILY.emit(running(CumProd(1, True, True), 2, 4096, 40, dtype=DType.I64), across(2, 16), H200, AT)
    assert code.counts
    assert code.member_arguments == str(3 * 32 * 16 * 2 * 8)
    assert code.call == (
        "bolt::portable::scan_passed_columns<2, 16, std::int64_t, bolt::portable::typed::Mul>(r, "
        "bolt::portable::Lines{.outer = 2, .extent = 4096, .inner = 40}, true, true, x, y, 1);"
    )


@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [(SOUND, "passed"), (running(CumSum(1), 1, 1 << 23), "passed"), (STATES, "passed_columns")],
)
def test_few_long_lines_have_them_without_a_lock(problem: KernelProblem, algorithm: str) -> None:
    (first, *_), _ = FAMILY.candidates(problem, H200)
    assert dict(first.parameters)["algorithm"] == algorithm


def test_short_lines_do_not() -> None:
    offered = FAMILY.candidates(running(CumSum(2), 32, 64, 128), H200)[0]
    assert not {dict(each.parameters)["algorithm"] for each in offered} & {"passed", "passed_columns"}
