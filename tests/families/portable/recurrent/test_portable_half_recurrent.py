"""Recurrent layers on tensor cores: what candidates state, why others are refused, what stays in shared memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recurrent_kernels import recurrent
from test_portable_recurrent_rows import DIRECT, H200, call, lstm

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.recurrent.half_recurrent import FORM
from bolt_build.targets import target_named

FAMILY, A100 = Portable(), target_named("a100")


def of(rows: int, threads: int, cluster: int, kept: int) -> Candidate:
    parameters = ("algorithm", "tensor_cores"), ("rows", rows), ("threads", threads)
    return Candidate("portable", parameters, (("cluster", cluster), ("kept", kept)))


def first(problem: KernelProblem) -> Candidate:
    return FAMILY.candidates(problem, H200)[0][0]


@pytest.mark.parametrize(
    ("batch", "hidden", "best"),
    [
        (1, 48, of(8, 256, 1, 2)),  # a block has room for all, and none waits for others
        (1, 256, of(8, 256, 8, 8)),
        (1, 800, of(8, 256, 8, 2)),  # weights of 2 of 25 chunks have room, the others come again at every step
    ],
)
def test_weights_stay_in_the_shared_memory_of_few_blocks(batch: int, hidden: int, best: Candidate) -> None:
    assert first(lstm(batch, hidden)) == best


def test_the_kernel_takes_what_its_candidate_states() -> None:
    found = call(lstm(64, 100), of(16, 256, 2, 4))
    assert found.startswith("bolt::portable::half_recurrent<16, 4, 256>(")
    assert "RecurrentShare{.cluster = 2, .units = 64, .chunks = 4, .kept = 4}" in found


@pytest.mark.parametrize("hidden", [48, 256, 800])
def test_it_is_expected_to_be_faster_than_the_plain_one(hidden: int) -> None:
    problem = lstm(8, hidden)
    assert FAMILY.predict(problem, first(problem), H200) < 0.6 * FAMILY.predict(problem, DIRECT, H200)


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (lstm(3, 96), of(8, 256, 1, 3), None),
        (lstm(3, 96), of(8, 256, 8, 3), "96 hidden units leave one of 8 blocks without any"),
        (lstm(3, 512), of(8, 256, 2, 2), "a block's 256 hidden units take 512 threads, it has 256"),
        (lstm(3, 96), of(8, 256, 1, 4), "4 chunks are kept, of 96 states there are 3"),
        (lstm(3, 512), of(8, 256, 8, 16), "takes 286976 bytes of shared memory, a block has 232448"),
        (lstm(3, 96, dtype=DType.F32), of(8, 256, 1, 3), "tensor_cores: multiplies states with weights in f16 or bf16"),
        (
            lstm(3, 96),
            of(32, 256, 1, 3),
            "there are kernels of 8 or 16 rows, of 1, 2, 4 or 8 blocks a cluster, and of 256 or 512 threads",
        ),
    ],
)
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_clusters_are_hoppers() -> None:
    problem = lstm(3, 96, "a100")
    assert FAMILY.refuse(problem, of(8, 256, 2, 3), A100) == "blocks form clusters from sm_90 on"
    assert FAMILY.refuse(problem, of(8, 256, 1, 3), A100) is None


def test_a_reset_gate_in_front_of_the_product_keeps_the_plain_kernel() -> None:
    op = recurrent("gru", "gru", "sigmoid tanh", 30, 3, 1).op
    problem = replace(lstm(3, 96), op=op)
    assert H200.gpu is not None
    assert FORM.refuse_problem(problem, H200.gpu) == "tensor_cores: a reset gate in front of the product makes it two"
