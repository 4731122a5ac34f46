"""Normalisations of planes that lie apart: what is refused and why, and what is called."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.norms.norm_planes import PlanesTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import HOST, target_named

FAMILY, H200, A100 = Portable(), target_named("h200"), target_named("a100")
Shape = tuple[int, ...]


def norm_of(shape: Shape, axes: tuple[int, ...], scale: Shape = (), layout: Layout = Layout.ROW) -> KernelProblem:
    x = Operand(shape, TensorFormat(DType.F16, layout))
    own = tuple(Operand(scale, TensorFormat(DType.F32, Layout.ROW), constant=True) for _ in range(2 if scale else 0))
    return KernelProblem(Norm("variance", axes, 1e-5), (x, *own), (x,), (), DType.F32, "h200")


BATCH = norm_of((32, 128, 57, 57), (0, 2, 3), (128, 1, 1))


def planes(threads: int, loads: int, cluster: int, resident: int) -> Candidate:
    return candidate_of("portable", "planes", PlanesTile(threads, loads, cluster, resident))


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (BATCH, planes(256, 13, 4, 2), None),
        (BATCH, planes(96, 13, 4, 2),
         "there are kernels of 1, 2, 4 or 8 blocks, and of 64 to 512 threads in whole pairs of warps"),
        (BATCH, planes(256, 12, 4, 2), "3256 loads of a block are 13 of a thread, not 12"),
        (BATCH, planes(256, 51, 1, 1), "51 loads of a thread are more than the 384 bytes that it holds"),
        (BATCH, planes(256, 13, 4, 9), "a multiprocessor holds 13 loads of each of 256 threads 2 times, not 9"),
        (norm_of((64, 64, 224, 224), (0, 2, 3)), planes(512, 16, 8, 1), None),
        (norm_of((64, 64, 224, 224), (0, 2, 3)), planes(512, 15, 8, 1),
         "50176 loads of a block are 98 of a thread, not 15"),
        (norm_of((2, 64, 3, 3), (0, 2, 3)), planes(64, 1, 8, 1), "4 loads are not the shares of 8 blocks"),
        (norm_of((32, 128, 57, 57), (0, 2, 3), (57, 57)), planes(256, 13, 4, 2),
         "planes: planes of one statistic have several scales, or operands of several channels"),
        (norm_of((32, 128, 56, 56), (1, 2, 3)), planes(256, 13, 4, 2),
         "portable algorithm=planes threads=256 loads=13 cluster=4 resident=2 is none of its candidates"),
    ],
)  # fmt: skip
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_blocks_share_a_statistic_from_hopper_on() -> None:
    assert FAMILY.refuse(BATCH, planes(256, 13, 4, 2), A100) == "blocks form clusters from sm_90 on"
    small = norm_of((32, 128, 14, 14), (0, 2, 3))
    assert any("algorithm=planes" in str(each) for each in FAMILY.candidates(small, A100)[0])
    assert [str(each) for each in FAMILY.candidates(small, HOST)[0]] == ["portable algorithm=direct"]


def test_calls_have_how_planes_lie() -> None:
    code = FAMILY.emit(BATCH, planes(256, 13, 4, 2), H200, StepExpressions(("x", "s", "b"), ("y",), (None, "s", "b")))
    assert code.call.startswith(
        "bolt::portable::norm_of_planes<bolt::portable::PlanesShape<13, 256, 4, 2, 32, 3249, 415872>, "
        "bolt::portable::NormVariance, bolt::portable::f16, float, float, bolt::portable::f16>(r, "
    )


@pytest.mark.parametrize(
    "problem",
    [BATCH, norm_of((32, 64, 56, 56), (0, 2, 3)), norm_of((64, 512, 1000), (0, 2))],
)
def test_prediction_puts_it_first_in_planes(problem: KernelProblem) -> None:
    legal = FAMILY.candidates(problem, H200)[0]
    assert "algorithm=planes" in str(min(legal, key=lambda each: FAMILY.predict(problem, each, H200)))
