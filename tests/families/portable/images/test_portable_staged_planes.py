"""Planes that are resampled and pooled through shared memory: what candidates state, what is refused and why, which is
offered first, and how a kernel is called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from families_harness import Layer, graph_with
from families_layers import RELU
from gpu_pools import pooled, windows
from gpu_resample import resampled
from graph_models import bound, resize
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planner_fakes import POLICY

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.pool_staged import first_empty
from bolt_build.families.portable.kernels.images.staged_planes import StagedPlanesTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.planner.passes.images.resample import RESAMPLE_IMAGES
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")


def problem_of(layer: Layer, layout: Layout = Layout.ROW) -> KernelProblem:
    """Stored in half precision."""
    graph, node = graph_with(layer)
    found = [each.steps[0].problem for each in FAMILY.propose(graph, node, H200, layer.precision)[0]]
    stored = (problem for problem in found if problem.outputs[0].format.dtype is layer.precision)
    return next(problem for problem in stored if problem.inputs[0].format.layout is layout)


def refused(problem: KernelProblem, *tile: int) -> str | None:
    return FAMILY.refuse(problem, candidate_of("portable", "staged", StagedPlanesTile(*tile)), H200)


def first(problem: KernelProblem) -> str:
    """But for kernels whose blocks take parts one after the other, and tensor cores."""
    offered = map(str, FAMILY.candidates(problem, H200)[0])
    others = ("streamed", "tensor_cores", "banded")
    return next(each for each in offered if not any(name in each for name in others)).partition(" down")[0]


CUBIC = problem_of(resampled("one", (32, 64, 57, 57), (2, 114, 4), (3, 114, 4)))
POOLED = problem_of(pooled("one", windows("max", 3, 2, 1), 32, 64, 113, 113))


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        ((4, 1, 2, 16), None),
        ((4, 2, 4, 29), None),
        ((4, 1, 2, 115), "a thread has 115 results below each other, a plane 114"),
        ((4, 2, 4, 16), "a block that has 64 rows of each of several planes has not all 114"),
        ((4, 1, 1, 16), "blocks have 64 to 512 threads, not 32"),
        ((1, 1, 8, 8), "blocks have 64 to 512 threads, not 1024"),
        ((16, 1, 2, 16), "takes 192 registers of a thread for rows and tables, which has 128 for these"),
        ((8, 8, 4, 29), "takes 262288 bytes of shared memory, a block has 232448"),
    ],
    ids=str,
)
def test_a_cut_that_is_not_legal_has_a_reason(tile: tuple[int, ...], reason: str | None) -> None:
    """Planes of 57 x 57 that become twice as large, of four neighbours an axis."""
    assert refused(CUBIC, *tile) == reason


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (resampled("one", (2, 8, 40, 9), (2, 18, 1), (3, 18, 1)),
         "40 rows become 18, each of which is made of 1: those between them are not to be read"),
        (resampled("one", (1, 1, 40000, 40000), (2, 40000, 2)),
         "planes of 3200000000 bytes are too large to be counted in 32 bits"),
        (
            pooled("one", windows("max", 3, 2, 1), 2, 8, 9, 9, epilogue=(RELU,)),
            "pools alone, and nothing behind it",
        ),
        (pooled("one", windows("max", 2, 4, 0), 2, 8, 17, 17),
         "17 rows become 4, each of which is made of 2: those between them are not to be read"),
        (pooled("one", windows("max", 2, 1, 1, 3), 2, 8, 2, 9),
            "of 2 elements of an axis, a window from -1 on has none"),
        (pooled("one", Pool("max", (3, 3, 3), (1,) * 3, (1,) * 3, (1,) * 3, (1,) * 3), 1, 2, 9, 9, 9),
         "windows go over depths too, and slide over rows and columns alone"),
    ],
)  # fmt: skip
def test_planes_that_no_kernel_has_so_have_a_reason(layer: Layer, reason: str) -> None:
    assert refused(problem_of(layer), 1, 1, 1, 1) == f"staged: {reason}"


def test_channels_side_by_side_are_no_planes() -> None:
    layer = resampled("one", (2, 16, 9, 9), (2, 18, 2), (3, 18, 2))
    problem = problem_of(layer, Layout.CHANNELS_LAST)
    candidate = candidate_of("portable", "staged", StagedPlanesTile(1, 1, 1, 1))
    assert FAMILY.refuse(problem, candidate, H200) == f"{candidate} is none of its candidates"


def test_even_rows_that_become_longer_have_warps_on_tensor_cores() -> None:
    even = problem_of(resampled("one", (32, 3, 224, 224), (2, 336, 4), (3, 336, 4)))
    offered = [dict(each.parameters)["algorithm"] for each in FAMILY.candidates(even, H200)[0]]
    assert offered[0] == "banded"
    offered = [dict(each.parameters)["algorithm"] for each in FAMILY.candidates(CUBIC, H200)[0]]
    assert offered.index("streamed") < offered.index("banded")


def test_odd_planes_go_through_shared_memory_where_they_are_large() -> None:
    assert first(CUBIC) == "portable algorithm=staged pixels=2 planes=1 strips=1"
    assert first(POOLED) == "portable algorithm=staged pixels=2 planes=1 strips=8"
    small = resampled("one", (32, 256, 7, 7), (2, 14, 2), (3, 14, 2))
    assert first(problem_of(small)) == "portable algorithm=staged pixels=4 planes=16 strips=1"


def test_prediction_puts_first_what_an_h200_took_least_for() -> None:
    """Planes twice as large by parts after each other, odd ones four times as large by single parts."""
    twice = problem_of(resampled("twice", (32, 64, 57, 57), (2, 114, 2), (3, 114, 2)))
    corners = problem_of(resampled("corners", (32, 21, 65, 65), (2, 257, 2), (3, 257, 2)))
    offered = [
        [dict(each.parameters)["algorithm"] for each in FAMILY.candidates(problem, H200)[0]]
        for problem in (twice, corners)
    ]
    assert [next(name for name in names if name != "tensor_cores") for names in offered] == ["streamed", "staged"]
    assert "sliding" in first(problem_of(resampled("one", (2, 3, 9, 13), (2, 18, 2), (3, 26, 2))))


def test_a_call_has_extents_windows_and_room_for_the_rows_of_a_block() -> None:
    """Sixteen results of 3 x 3 at every second position have 33 rows of 113 elements."""
    at, tile = StepExpressions(("x",), ("y",), (None,)), StagedPlanesTile(2, 1, 2, 8)
    call = FAMILY.emit(POOLED, candidate_of("portable", "staged", tile), H200, at).call
    assert call.startswith(
        "bolt::portable::pool_staged<bolt::portable::PlanesTile<113, 57, 113, 57, 3, 3, 1, 2, 2>, 3, 3, 2, 2, 1, 1, "
        "bolt::portable::PoolMax, bolt::portable::f16, bolt::portable::f16>(r, bolt::portable::Pool{.batch = 32, "
    )
    assert call.endswith("}, 8, 3729, x, y, bolt::portable::chain());")
    at, tile = StepExpressions(("x", "a", "b", "c", "d"), ("y",), (None,) * 5), StagedPlanesTile(4, 1, 2, 8)
    call = FAMILY.emit(CUBIC, candidate_of("portable", "staged", tile), H200, at).call
    assert call.startswith(
        "bolt::portable::resample_staged<bolt::portable::f16, "
        "bolt::portable::PlanesTile<57, 114, 57, 114, 4, 4, 1, 4, 2>, 4, 4, 1>(r, "
        "bolt::portable::Resample{.outer = 2048, "
    )
    # Fifteen steps of half a row, four neighbours, and one more where places are rounded.
    assert call.endswith(f"}}, 8, {(8 + 4 + 1) * 57}, x, y);")


def test_rows_that_are_images_by_themselves_are_below_each_other() -> None:
    signals = pooled("one", Pool("average", (3,), (2,), (1,), (1,), (1,)), 32, 256, 3001)
    at, tile = StepExpressions(("x",), ("y",), (None,)), StagedPlanesTile(4, 1, 1, 8)
    call = FAMILY.emit(problem_of(signals), candidate_of("portable", "staged", tile), H200, at).call
    assert "PlanesTile<8192, 8192, 3001, 1501, 1, 3, 1, 4, 1>, 1, 3, 1, 2, 1, 1, " in call
    assert ".batch = 1, .channels = 1, .in = {1, 8192, 3001}" in call
    single = replace(signals, precision=DType.F32)
    assert refused(problem_of(single), 4, 1, 1, 8) is None


WAYS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric", "align_corners")


@given(
    st.integers(1, 90), st.integers(1, 200), st.sampled_from(["nearest", "linear", "cubic"]), st.sampled_from(WAYS),
    st.booleans(), st.integers(1, 40),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_blocks_have_room_for_the_rows_of_images(
    tmp_path_factory: pytest.TempPathFactory, extent: int, made: int, mode: str, way: str, smooth: bool, down: int
) -> None:
    """Results of other tables are computed one by one, which would take many times as long."""
    further: dict[str, object] = {"antialias": 1} if smooth and mode != "nearest" else {}
    proto = resize(
        (1, 1, extent, 8), "sizes", [1, 1, made, 8], mode=mode, coordinate_transformation_mode=way, **further
    )
    graph = RESAMPLE_IMAGES.run(bound(tmp_path_factory.mktemp("room"), proto), POLICY).graph
    found = [node for node in graph.nodes if isinstance(node.op, Resample)]
    assume(found)
    first, weights = (graph.constant(name) for name in found[0].inputs[1:3])
    assert first is not None
    assert weights is not None
    assert (np.diff(first) >= 0).all()
    taps, down = weights.shape[1], min(down, made)
    problem = problem_of(resampled("one", (1, 1, extent, 8), (2, made, taps)))
    at, tile = StepExpressions(("x", "a", "b"), ("y",), (None,) * 3), StagedPlanesTile(1, 1, 1, down)
    call = FAMILY.emit(problem, candidate_of("portable", "staged", tile), H200, at).call
    room = int(call.split(", ")[-3])
    for top in range(0, made, down):
        last = first[min(top + down, made) - 1] + taps - 1
        rows = np.clip([first[top], last], 0, extent - 1)
        assert (rows[1] - rows[0] + 1) * 8 <= room


@given(
    extent=st.integers(1, 9), made=st.integers(1, 9), cells=st.integers(1, 5), stride=st.integers(1, 4),
    dilation=st.integers(1, 4), pad=st.integers(0, 12),
)  # fmt: skip
def test_the_first_window_without_elements_is_found(
    extent: int, made: int, cells: int, stride: int, dilation: int, pad: int
) -> None:
    windows, within = range(-pad, made * stride - pad, stride), range(0, cells * dilation, dilation)
    empty = (first for first in windows if not any(0 <= first + cell < extent for cell in within))
    assert first_empty(extent, windows, within) == next(empty, None)


def test_windows_of_a_long_axis_are_not_gone_through() -> None:
    assert first_empty(1 << 40, range(-2, (1 << 40) + 2, 2), range(3)) == 1 << 40
