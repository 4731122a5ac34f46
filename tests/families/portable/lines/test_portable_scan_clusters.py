"""Running sums whose slabs blocks of a cluster share, and those of short lines: what is refused and why, and what is
called."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.lines.scan_parts import ScanPartsTile
from bolt_build.families.portable.kernels.lines.scan_slabs import ScanClusterTile
from bolt_build.families.portable.kernels.lines.scans import ScanRunsTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.lines import CumSum
from bolt_build.targets import target_named

FAMILY, H200, A100 = Portable(), target_named("h200"), target_named("a100")
AT = StepExpressions(("x",), ("y",), (None,))


def running(shape: tuple[int, ...], axis: int) -> KernelProblem:
    x = Operand(shape, TensorFormat(DType.F16, Layout.ROW))
    return KernelProblem(CumSum(axis), (x,), (x,), (), DType.F16, "h200")


SPEECH, SHORT = running((16, 2000, 80), 1), running((32, 64, 57, 128), 3)


def shared(cluster: int) -> Candidate:
    return candidate_of("portable", "cluster_slabs", ScanClusterTile(cluster))


def runs(threads: int, blocks: int = 1) -> Candidate:
    return candidate_of("portable", "runs", ScanRunsTile(threads, blocks))


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (SPEECH, shared(8), None),
        (SPEECH, shared(3), "there are clusters of 2, 4 or 8 blocks"),
        (running((16, 9, 80), 1), shared(8), "9 rows are not the shares of 8 blocks"),
        (running((16, 9000, 300), 1), shared(8), "takes 681536 bytes of shared memory, a block has 232448"),
        (running((16, 2000, 600), 1), shared(8), "cluster_slabs: 600 lines are more than the 512 threads of a block"),
        (SHORT, shared(8), "portable algorithm=cluster_slabs cluster=8 is none of its candidates"),
        (SHORT, runs(8), None),
        (SHORT, runs(16), None),
        (SHORT, runs(4), "no line has 4 threads"),
        (SHORT, runs(16, 2), "blocks share a line that all of their threads have"),
    ],
)
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def parts(rows: int) -> Candidate:
    return candidate_of("portable", "slab_parts", ScanPartsTile(rows))


ROUTES = running((1, 32768, 64), 1)


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (ROUTES, parts(256), None),
        (ROUTES, parts(32768), "32768 rows are all of a slab's 32768"),
        (ROUTES, parts(8), "4096 parts of a slab are more than the 2048 that a block adds up"),
        (ROUTES, parts(2048), "takes 266784 bytes of shared memory, a block has 232448"),
        (running((1, 32768, 600), 1), parts(32), "slab_parts: 600 lines are more than the 512 threads of a block"),
    ],
)
def test_parts_that_are_not_legal_have_a_reason(
    problem: KernelProblem, candidate: Candidate, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_parts_of_one_long_slab_have_blocks_of_their_own_without_a_lock() -> None:
    offered = FAMILY.candidates(ROUTES, H200)[0]
    assert any(str(each).startswith("portable algorithm=slab_parts rows=") for each in offered[:2])
    code = FAMILY.emit(ROUTES, parts(256), H200, AT)
    assert code.member_arguments == str(128 * 64 * 8)
    assert code.call == (
        "bolt::portable::scan_slabs<1, 64, false, false, bolt::portable::f16, bolt::portable::typed::Add, 0>(r, "
        "bolt::portable::Lines{.outer = 1, .extent = 32768, .inner = 64}, 256, x, y, 0);"
    )


def test_blocks_share_slabs_from_hopper_on() -> None:
    assert FAMILY.refuse(SPEECH, shared(8), A100) == "cluster_slabs: blocks form clusters from sm_90 on"


def test_calls_have_the_rows_of_a_block() -> None:
    assert FAMILY.emit(SPEECH, shared(8), H200, AT).call == (
        "bolt::portable::scan_slabs<1, 80, false, false, bolt::portable::f16, bolt::portable::typed::Add, 8>(r, "
        "bolt::portable::Lines{.outer = 16, .extent = 2000, .inner = 80}, 250, x, y, 0);"
    )


@pytest.mark.parametrize(("problem", "algorithm"), [(SPEECH, "cluster_slabs"), (SHORT, "runs")])
def test_prediction_puts_them_first(problem: KernelProblem, algorithm: str) -> None:
    legal = FAMILY.candidates(problem, H200)[0]
    first = min(legal, key=lambda each: FAMILY.predict(problem, each, H200))
    assert dict(first.parameters)["algorithm"] == algorithm
