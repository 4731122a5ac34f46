"""Planes whose rows are joined first: what candidates state, what is refused and why, how rows are cut, and how a
kernel is called."""

from __future__ import annotations

import pytest
from gpu_pools import pooled, windows
from gpu_resample import resampled
from legal_cuts import cuts_of
from test_portable_staged_planes import FAMILY, H200, problem_of

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images import pool_staged, resample_staged
from bolt_build.families.portable.kernels.images.joined_planes import JoinedTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.targets import target_named

MEANS = problem_of(pooled("one", windows("average", 8, 8, 0), 32, 64, 64, 64))
POOLED = problem_of(pooled("one", windows("max", 3, 2, 1), 32, 64, 113, 113))
SIGNALS = problem_of(pooled("one", Pool("average", (4,), (4,), (0,), (0,), (1,)), 32, 257, 3000))
SMALLER = problem_of(resampled("one", (32, 3, 512, 512), (2, 224, 6), (3, 224, 6)))
PIXELS = problem_of(resampled("one", (8, 33, 57, 57), (2, 171, 1), (3, 171, 1)), Layout.CHANNELS_LAST)


def refused(problem: KernelProblem, *tile: int) -> str | None:
    return FAMILY.refuse(problem, candidate_of("portable", "joined", JoinedTile(*tile)), H200)


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (MEANS, (1, 8, 1, 1, 8, 1, 128, 1), None),
        (MEANS, (4, 8, 1, 2, 4, 1, 256, 1), None),
        (MEANS, (1, 8, 1, 1, 8, 1, 64, 1), "there are blocks of 128, 256 or 512 threads"),
        (MEANS, (1, 9, 1, 1, 8, 1, 128, 1), "a block has 9 results below each other, a plane 8"),
        (MEANS, (2, 4, 1, 1, 8, 1, 128, 1), "a block that has 4 rows of each of several planes has not all 8"),
        (MEANS, (1, 8, 1, 3, 2, 1, 128, 1), "makes 3 neighbours at once, of rows of 8 elements"),
        (MEANS, (1, 8, 8, 1, 8, 1, 128, 1), "64 sums of a thread are more than 32"),
        (MEANS, (1, 8, 1, 1, 8, 1, 128, 2), "blocks have one part where rows do not go through shared memory"),
        (POOLED, (1, 8, 2, 1, 57, 2, 128, 2), None),
        (POOLED, (1, 8, 2, 1, 57, 2, 128, 99999), "a block has 99999 parts one after the other, of 16384 in all"),
        (POOLED, (1, 8, 2, 1, 32, 1, 128, 1), None),
        (POOLED, (1, 8, 2, 1, 57, 3, 128, 1), "rows come from memory in one hop, or in two through shared memory"),
        (POOLED, (1, 8, 2, 1, 32, 2, 128, 1), "whole rows of single planes go through shared memory"),
        (POOLED, (2, 57, 2, 1, 32, 1, 128, 1),
         "a row has 2 blocks, of single planes and of no more neighbours than threads"),
        (POOLED, (1, 8, 2, 1, 64, 1, 128, 1), "a block has 64 neighbours beside each other, a row 57"),
        (POOLED, (1, 8, 2, 1, 30, 1, 128, 1),
         "windows of a block begin 60 elements behind those of another: no accesses begin there"),
        (SMALLER, (1, 12, 1, 2, 112, 1, 128, 1), None),
        (SMALLER, (1, 12, 2, 2, 112, 1, 128, 1), "rows of resizings are joined for each result by itself"),
        (SMALLER, (1, 224, 1, 2, 112, 1, 128, 1), "takes 487424 bytes of shared memory, a block has 232448"),
    ],
    ids=str,
)  # fmt: skip
def test_a_cut_that_is_not_legal_has_a_reason(
    problem: KernelProblem, tile: tuple[int, ...], reason: str | None
) -> None:
    assert refused(problem, *tile) == reason


def test_some_problems_have_no_such_kernel() -> None:
    """Rows alone have no columns to go along, whole accesses of channels another kernel, and windows of many cells too
    much code."""
    rows = problem_of(resampled("one", (2, 3, 9, 36), (2, 18, 2)))
    assert refused(rows, 1, 8, 1, 1, 36, 1, 128, 1) == "joined: joins rows whose columns change"
    wide = problem_of(resampled("one", (2, 16, 9, 9), (2, 18, 2), (3, 18, 2)), Layout.CHANNELS_LAST)
    assert refused(wide, 1, 8, 1, 1, 288, 1, 128, 1) == "joined: 16 channels beside each other are whole accesses"
    many = problem_of(pooled("one", windows("average", 33, 33, 0), 2, 3, 66, 66))
    assert refused(many, 1, 2, 1, 1, 2, 1, 128, 1) == "joined: 33 cells of a window along an axis are more than 32"


def test_a_call_states_how_rows_are_cut() -> None:
    """Rows of 113 halves go through shared memory: 17 of them for eight results, in pairs. Windows of neighbours begin
    two elements apart, so a joined row lies in two parts, behind room for the column in front of it."""
    at, tile = StepExpressions(("x",), ("y",), (None,)), JoinedTile(1, 8, 2, 1, 57, 2, 128, 2)
    call = FAMILY.emit(POOLED, candidate_of("portable", "joined", tile), H200, at).call
    cut = "113, 57, 113, 57, 1, 8, 57, 2, 57, 2, 1, 8, 1, 2, true, 128"
    assert call.startswith(f"bolt::portable::pool_joined<bolt::portable::JoinedTile<{cut}>, ")
    assert f"}}, 2, {17 * 113}, x, y, " in call


def test_parts_of_long_rows_read_what_their_windows_need() -> None:
    """64 means of four: 256 of 3000 elements, which are 32 accesses."""
    at, tile = StepExpressions(("x",), ("y",), (None,)), JoinedTile(1, 8, 1, 1, 64, 1, 128, 1)
    call = FAMILY.emit(SIGNALS, candidate_of("portable", "joined", tile), H200, at).call
    assert "JoinedTile<8224, 8224, 3000, 750, 1, 8, 64, 8, 32, 1, 1, 0, 0, 4, false, 128>" in call


def test_pixels_of_odd_channels_are_rows_of_elements() -> None:
    """A third of the pixels of a part, 14 of them at most, one more because places are whole, and what is beside it in
    the first access."""
    at, tile = StepExpressions(("x", "a", "b", "c", "d"), ("y",), (None,) * 5), JoinedTile(1, 8, 1, 1, 256, 1, 256, 1)
    call = FAMILY.emit(PIXELS, candidate_of("portable", "joined", tile), H200, at).call
    assert "JoinedTile<57, 171, 1881, 5643, 1, 8, 256, 2, 83, 1, 1, 0, 0, 1, false, 256>, 1, 1, 33>" in call


@pytest.mark.parametrize("name", ["t4", "a100", "h100", "h200"])
def test_each_gpu_has_some(name: str) -> None:
    """Of planes, signals and pixels of odd channels, in any element type."""
    target = target_named(name)
    for layer in (
        pooled("one", windows("max", 2, 2, 0), 8, 64, 57, 75),
        pooled("one", windows("average", 7, 7, 0), 8, 64, 98, 98),
        resampled("one", (4, 3, 301, 400), (2, 224, 4), (3, 224, 4), precision=DType.F32),
    ):
        algorithms = {dict(each.parameters)["algorithm"] for each in FAMILY.candidates(problem_of(layer), target)[0]}
        assert "joined" in algorithms


def test_tiles_of_a_form_are_no_more_than_prediction_goes_through_at_once() -> None:
    for form, problem in (
        (pool_staged.JOINED, POOLED),
        (pool_staged.JOINED, SIGNALS),
        (resample_staged.JOINED, SMALLER),
    ):
        assert 20 < len(cuts_of(form, problem)) < 400
