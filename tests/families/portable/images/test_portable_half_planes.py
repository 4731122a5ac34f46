"""Planes resampled on tensor cores: what candidates state, what is refused and why, and what a call says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_portable_resample import FAMILY, H200, problem_of

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions, TensorFormat
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.half_planes import HalfPlanesTile
from bolt_build.families.portable.kernels.images.resample_images import images_of
from bolt_build.graph.ir import Layout
from bolt_build.targets import target_named

CUBIC = problem_of((32, 64, 57, 57), (2, 114, 4), (3, 114, 4), row=True)


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (HalfPlanesTile(1, 15, 4, 2, 4), None),
        (HalfPlanesTile(2, 15, 8, 1, 4), None),
        (HalfPlanesTile(1, 4, 16, 1, 7), None),
        (HalfPlanesTile(2, 8, 4, 2, 4), "a block that has parts of planes has them of one, not of 2"),
        (HalfPlanesTile(1, 16, 4, 2, 4), "a block has 16 tiles of rows, a plane 15"),
        (HalfPlanesTile(1, 15, 3, 2, 4), "blocks have 2, 4, 8 or 16 warps, not 3"),
        (HalfPlanesTile(1, 15, 4, 4, 4), "a warp has 1 or 2 tiles of columns at once"),
        (HalfPlanesTile(1, 15, 4, 2, 2049), "a block has 2049 parts one after the other, of 2048 in all"),
        (HalfPlanesTile(8, 15, 8, 2, 1), "takes 328000 bytes of shared memory, a block has 232448"),
    ],
    ids=str,
)
def test_a_tile_that_is_not_legal_has_a_reason(tile: HalfPlanesTile, reason: str | None) -> None:
    """32 images of 64 planes of 57 x 57 pixels that become twice as large, of four neighbours an axis."""
    assert FAMILY.refuse(CUBIC, candidate_of("portable", "tensor_cores", tile), H200) == reason


def wider(problem: KernelProblem) -> KernelProblem:
    made = replace(problem.outputs[0], format=TensorFormat(DType.F32, Layout.ROW))
    return replace(problem, outputs=(made,))


LINEAR = ((2, 18, 2), (3, 18, 2))


@pytest.mark.parametrize(
    ("problem", "target", "reason"),
    [
        (
            problem_of((2, 8, 9, 9), *LINEAR, row=True),
            "a100",
            "runs of memory are copied by TMA, which GPUs have from Hopper on",
        ),
        (
            problem_of((2, 8, 9, 9), *LINEAR, row=True, precision=DType.F32),
            "h200",
            "tensor cores multiply planes of half precision, which stay so",
        ),
        (
            wider(problem_of((2, 8, 9, 9), *LINEAR, row=True)),
            "h200",
            "tensor cores multiply planes of half precision, which stay so",
        ),
        (
            problem_of((2, 8, 9, 9), (2, 18, 2), row=True),
            "h200",
            "tensor cores multiply along rows and columns, neighbours side by side",
        ),
        (
            problem_of((2, 8, 80, 80), (2, 20, 2), (3, 20, 2), row=True),
            "h200",
            "80 rows become 20, each of which is made of 2: those between them are not to be read",
        ),
    ],
    ids=["earlier GPUs", "fp32", "stored wider", "one axis", "rows left out"],
)
def test_what_tensor_cores_do_not_resample_has_a_reason(problem: KernelProblem, target: str, reason: str) -> None:
    tile = candidate_of("portable", "tensor_cores", HalfPlanesTile(1, 1, 2, 1, 1))
    assert FAMILY.refuse(problem, tile, target_named(target)) == f"tensor_cores: {reason}"


def test_pixels_of_channels_have_other_kernels() -> None:
    problem = problem_of((2, 8, 9, 9), *LINEAR)
    assert "tensor_cores" not in " ".join(map(str, FAMILY.candidates(problem, H200)[0]))


def test_a_call_knows_extents_windows_and_gaps_between_rows() -> None:
    """Eight rows of results are made of 4 + 4 rows at most, wherever among blocks of eight they begin: two blocks. Rows
    of 66 bytes and of 130 would begin in nearly the same banks."""
    at = StepExpressions(("x", "fh", "wh", "fw", "ww"), ("y",), (None,) * 5)
    tile = candidate_of("portable", "tensor_cores", HalfPlanesTile(1, 15, 4, 2, 4))
    code = FAMILY.emit(CUBIC, tile, H200, at)
    assert code.includes == ("bolt_portable/cuda/images/half_planes.h",)
    start = "bolt::portable::resample_half_planes<bolt::portable::f16, bolt::portable::HalfPlanesTile<"
    assert code.call.startswith(f"{start}57, 114, 57, 114, 1, 15, 4, 2, 1, 2, 57, 0, 0>, 4, 4>(r, ")
    assert code.call.endswith("}, 4, x, y);")
    odd = problem_of((32, 64, 33, 33), (2, 65, 2), (3, 65, 2), row=True, precision=DType.BF16)
    call = FAMILY.emit(odd, candidate_of("portable", "tensor_cores", HalfPlanesTile(1, 4, 4, 1, 4)), H200, at).call
    start = "bolt::portable::resample_half_planes<bolt::portable::bf16, bolt::portable::HalfPlanesTile<"
    assert call.startswith(f"{start}33, 65, 33, 65, 1, 4, 4, 1, 1, 2, 33, 1, 1>, 2, 2>(r, ")


def test_parts_of_planes_have_room_for_the_rows_of_their_windows() -> None:
    """Of 24 rows of results the last eight begin 8.2 rows below the first, at most, and at a block of eight."""
    images = images_of(CUBIC)
    assert HalfPlanesTile(1, 15, 4, 2, 1).shared(images) == 55120  # as `shared_bytes` of the kernel's
    assert [HalfPlanesTile(1, tiles, 4, 2, 1).room(images) for tiles in (1, 3, 8, 15)] == [24, 32, 52, 57]
