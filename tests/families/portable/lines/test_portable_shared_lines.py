"""Softmax over few long lines side by side, whose elements blocks of a cluster share: what is refused and why, and what
is called."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.lines.long_lines import SharedTwiceTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.targets import target_named

FAMILY, H200, A100 = Portable(), target_named("h200"), target_named("a100")


def softmax(shape: tuple[int, ...], axis: int) -> KernelProblem:
    x = Operand(shape, TensorFormat(DType.F16, Layout.ROW))
    return KernelProblem(Softmax(axis), (x,), (x,), (), DType.F32, "h200")


TOKENS = softmax((32, 3136, 64), 1)


def shared(threads: int, across: int, cluster: int) -> Candidate:
    return candidate_of("portable", "shared_twice", SharedTwiceTile(threads, across, cluster))


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (TOKENS, shared(16, 32, 4), None),
        (TOKENS, shared(16, 32, 3), "there are clusters of 2, 4 or 8 blocks"),
        (TOKENS, shared(2, 32, 4), "4 to 32 threads share a line, of 32 or 64 in blocks of 256 to 1024 threads"),
        (softmax((32, 197, 64), 1), shared(16, 32, 4),
         "portable algorithm=shared_twice threads=16 across=32 cluster=4 is none of its candidates"),
        (softmax((32, 3136), 1), shared(16, 32, 4),
         "portable algorithm=shared_twice threads=16 across=32 cluster=4 is none of its candidates"),
    ],
)  # fmt: skip
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_blocks_share_lines_from_hopper_on() -> None:
    assert FAMILY.refuse(TOKENS, shared(16, 32, 4), A100) == "shared_twice: blocks form clusters from sm_90 on"


def test_calls_say_how_many_blocks_share_lines() -> None:
    assert FAMILY.emit(TOKENS, shared(16, 32, 4), H200, StepExpressions(("x",), ("y",), (None,))).call == (
        "bolt::portable::softmax_twice<bolt::portable::Shares, 16, 32, bolt::portable::f16, bolt::portable::f16, 4>(r, "
        "bolt::portable::Softmax{.outer = 32, .axis = 3136, .inner = 64}, x, y);"
    )


def test_prediction_puts_them_first_where_lines_are_few() -> None:
    legal = FAMILY.candidates(TOKENS, H200)[0]
    assert "shared_twice" in str(min(legal, key=lambda each: FAMILY.predict(TOKENS, each, H200)))
