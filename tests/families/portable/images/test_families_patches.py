"""Overlapping patches put back into images: which kernels there are, and what their calls say."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.patch_sum import PatchRowsTile
from bolt_build.graph.ir import Layout, ShapeError, TensorType
from bolt_build.graph.ops.images.patch_sum import PatchSum
from bolt_build.targets import target_named

H200, FAMILY = target_named("h200"), Portable()
ROWS = candidate_of("portable", "rows", PatchRowsTile(8))


def asked(op: PatchSum, batch: int, channels: int, taps: int, places: int) -> KernelProblem:
    source = Operand((batch, channels * taps, places), TensorFormat(DType.F16, Layout.ROW))
    (made,) = op.infer([source.type])
    return KernelProblem(
        op, (source,), (Operand(made.shape, TensorFormat(DType.F16, Layout.ROW)),), (), DType.F32, "h200"
    )


def square(image: int, block: int, stride: int, pad: int) -> PatchSum:
    count = (image + 2 * pad - block) // stride + 1
    return PatchSum((image,) * 2, (block,) * 2, (stride,) * 2, (1,) * 2, (pad,) * 2, (count,) * 2)


OUTLOOK = asked(square(56, 3, 1, 1), 32, 64, 9, 3136)


def test_threads_have_runs_of_rows() -> None:
    assert FAMILY.candidates(OUTLOOK, H200)[0][0] == ROWS
    at = StepExpressions(("x",), ("y",), (None,))
    assert FAMILY.emit(OUTLOOK, ROWS, H200, at).call == (
        "bolt::portable::patch_rows<bolt::portable::f16, bolt::portable::f16, 3, 1, 1, 1>(r, bolt::portable::Patches{"
        ".images = 2048, .image = {1, 56, 56}, .block = {1, 3, 3}, .count = {1, 56, 56}, .stride = {1, 1, 1}, "
        ".gap = {1, 1, 1}, .pad = {0, 1, 1}}, x, y);"
    )


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (asked(square(64, 9, 1, 4), 1, 8, 81, 4096),
         "patches of 9 cells along rows that begin 1 apart; threads hold 8 that begin up to 4 apart"),
        (asked(square(69, 8, 5, 2), 1, 8, 64, 196),
         "patches of 8 cells along rows that begin 5 apart; threads hold 8 that begin up to 4 apart"),
    ],
    ids=["wide", "far"],
)  # fmt: skip
def test_other_patches_have_the_plain_kernel_and_a_reason(problem: KernelProblem, reason: str) -> None:
    found, refused = FAMILY.candidates(problem, H200)
    assert [dict(each.parameters)["algorithm"] for each in found] == ["direct"]
    assert [each.reason for each in refused] == [f"rows: {reason}"]


def test_what_are_no_patches_is_said() -> None:
    with pytest.raises(ShapeError, match=r"\[1, 18, 9\] are no patches \[3, 3\] at \[4, 4\] places"):
        square(4, 3, 1, 1).infer([TensorType(DType.F32, (1, 18, 9))])
    with pytest.raises(ShapeError, match="an image and its patches have different numbers of axes"):
        PatchSum((4, 4), (3,), (1,), (1,), (1,), (4,)).infer([TensorType(DType.F32, (1, 9, 4))])
