"""Planes that are resampled and pooled by blocks that take parts one after the other: what candidates state, what is
refused and why, how many parts a block has, and how a kernel is called."""

from __future__ import annotations

import pytest
from gpu_resample import resampled
from test_portable_staged_planes import CUBIC, FAMILY, H200, POOLED, problem_of

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.streamed_planes import StreamedPlanesTile

TILE = StreamedPlanesTile(4, 1, 2, 15, 2, 5)


def refused(problem: KernelProblem, *tile: int) -> str | None:
    return FAMILY.refuse(problem, candidate_of("portable", "streamed", StreamedPlanesTile(*tile)), H200)


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        ((4, 1, 2, 15, 2, 5), None),
        ((4, 1, 2, 15, 1, 5), None),
        ((8, 1, 4, 15, 8, 5), "stores 1, 2 or 4 pixels at once, of 8 bytes at most"),
        ((4, 1, 2, 15, 4, 5), "4 pixels of a thread and rows of 114 elements are not whole stores of 4"),
        ((1, 1, 2, 15, 2, 5), "1 pixels of a thread and rows of 114 elements are not whole stores of 2"),
        ((4, 1, 2, 57, 2, 2049), "a block has 2049 parts one after the other, of 2048 in all"),
        ((4, 1, 1, 16, 2, 5), "blocks have 64 to 512 threads, not 32"),
    ],
    ids=str,
)
def test_a_cut_that_is_not_legal_has_a_reason(tile: tuple[int, ...], reason: str | None) -> None:
    """2048 planes of 57 x 57 that become twice as large, of four neighbours an axis."""
    assert refused(CUBIC, *tile) == reason


def test_elements_of_four_bytes_are_stored_by_themselves() -> None:
    layer = resampled("one", (2, 8, 9, 9), (2, 18, 2), (3, 20, 2), precision=DType.F32)
    assert refused(problem_of(layer), 4, 1, 4, 5, 1, 2) is None
    assert refused(problem_of(layer), 4, 1, 4, 5, 4, 2) == "stores 1, 2 or 4 pixels at once, of 8 bytes at most"


def test_rows_that_are_left_out_are_not_read() -> None:
    """Each of a result's rows has room of its own: 72 bytes of 36 halves begin anywhere in an access of 16."""
    problem = problem_of(resampled("one", (2, 8, 40, 36), (2, 18, 1), (3, 18, 1)))
    assert refused(problem, 1, 4, 2, 9, 1, 1) == "a block has rows of one plane where others are left out, not of 4"
    at, tile = StepExpressions(("x", "a", "b", "c", "d"), ("y",), (None,) * 5), StreamedPlanesTile(1, 1, 2, 3, 1, 2)
    call = FAMILY.emit(problem, candidate_of("portable", "streamed", tile), H200, at).call
    assert call.startswith("bolt::portable::resample_streamed<bolt::portable::PickedPlanes, bolt::portable::f16, ")
    assert call.endswith(f"}}, 3, 2, {6 * 96 // 2}, x, y);")


@pytest.mark.parametrize("problem", [CUBIC, POOLED])
def test_all_blocks_are_there_at_once_or_in_a_few_waves(problem: KernelProblem) -> None:
    found = [each for each in FAMILY.candidates(problem, H200)[0] if "streamed" in str(each)]
    assert len(found) == 3
    for each in found:
        assert all(FAMILY.refuse(problem, other, H200) is None for other in FAMILY.variants(problem, each, H200))


def test_planes_that_become_larger_have_it_without_a_lock() -> None:
    """Of those without tensor cores."""
    offered = [dict(each.parameters)["algorithm"] for each in FAMILY.candidates(CUBIC, H200)[0]]
    assert next(name for name in offered if name not in ("tensor_cores", "banded")) == "streamed"


def test_a_call_has_parts_of_a_block_and_pixels_of_a_store() -> None:
    at = StepExpressions(("x", "a", "b", "c", "d"), ("y",), (None,) * 5)
    call = FAMILY.emit(CUBIC, candidate_of("portable", "streamed", TILE), H200, at).call
    assert call.startswith(
        "bolt::portable::resample_streamed<bolt::portable::StreamedPlanes, bolt::portable::f16, "
        "bolt::portable::PlanesTile<57, 114, 57, 114, 4, 4, 1, 4, 2>, 4, 4, 1, 2>(r, "
    )
    assert call.endswith(f"}}, 15, 5, {20 * 57}, x, y);")
    at, tile = StepExpressions(("x",), ("y",), (None,)), StreamedPlanesTile(2, 1, 2, 8, 1, 3)
    call = FAMILY.emit(POOLED, candidate_of("portable", "streamed", tile), H200, at).call
    assert call.startswith(
        "bolt::portable::pool_streamed<bolt::portable::StreamedPlanes, "
        "bolt::portable::PlanesTile<113, 57, 113, 57, 3, 3, 1, 2, 2>, 1, 3, 3, 2, 2, "
    )
    assert call.endswith("}, 8, 3, 3729, x, y, bolt::portable::chain());")
