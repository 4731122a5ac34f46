"""Kernels whose taps share a band of the images: where positions are numbered, which products suit, how filters of
groups are packed, and how candidates state them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from compiled_headers import library_of
from families_harness import graph_with
from gpu_bands import band_trials, grouped_band_trials, pairs, together, turns
from gpu_products import RESIDUAL, conv
from hypothesis import given
from hypothesis import strategies as st

from bolt_build import runtime
from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import stages, store_bytes
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile, Numbering
from bolt_build.families.cutlass.kinds.windows.grouped_band import GroupedBands, GroupedTile
from bolt_build.families.cutlass.one_product import Kernel, ProductKind
from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.registry import KINDS, kind_of
from bolt_build.families.cutlass.settings import Settings
from bolt_build.targets import Gpu, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
(BANDS,) = (kind for kind in KINDS if isinstance(kind, ProductKind) and turns(128, 64) in kind.tiles)
(GROUPS,) = (kind for kind in KINDS if isinstance(kind, GroupedBands))

_CUDA = "#pragma once\n#define __host__\n#define __device__\n"
_PROGRAM = """\
#include "bolt_cutlass/warpgroups/band_shape.h"
#include "bolt_cutlass/plans/packing.h"
using namespace bolt::cutlass_kernels;
extern "C" int pitch(int extent, int out, int pad, int reach, int stride) {
  return BandShape::pitch(extent, out, pad, reach, stride);
}
template <int kernel_h, int kernel_w, int stride>
void steps(int* found) {
  BandStep<BandWindow<kernel_h, kernel_w, stride>> step;
  for (int i = 0; i < 2 * kernel_h * kernel_w; ++i, step.next()) {
    const int values[] = {step.run, step.first_h, step.first_w, step.row, step.column, step.tap(), step.begins()};
    for (const int value : values) *found++ = value;
  }
}
extern "C" void steps(int kernel_h, int stride, int* found) {
  if (kernel_h == 3) stride == 1 ? steps<3, 3, 1>(found) : stride == 2 ? steps<3, 3, 2>(found) : steps<3, 3, 3>(found);
  if (kernel_h == 5) stride == 1 ? steps<5, 4, 1>(found) : stride == 2 ? steps<5, 4, 2>(found) : steps<5, 4, 3>(found);
  if (kernel_h == 7) stride == 1 ? steps<7, 3, 1>(found) : stride == 2 ? steps<7, 3, 2>(found) : steps<7, 3, 3>(found);
}
extern "C" void place(int pitch_w, int pitch_h, int position, int* found) {
  const BandPlace place(BandShape{pitch_w, pitch_h}, position);
  found[0] = place.image, found[1] = place.h, found[2] = place.w;
}
extern "C" long pack(const std::uint16_t* from, std::uint16_t* to, const int* f) {
  const GroupedFilter layout{f[0], f[1], f[2], f[3], f[4], f[5]};
  if (to) layout.write(from, to);
  return static_cast<long>(layout.count());
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    includes = (FAMILY.include_dir, runtime.include_dir())
    return library_of(tmp_path_factory.mktemp("bands"), _PROGRAM, includes, cuda=_CUDA)


AXIS = st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(0, 4)).filter(
    lambda axis: axis[0] + axis[3] + axis[4] > (axis[1] - 1) * axis[2]
)
"""Extent, taps, dilation, and padding in front and behind."""


@given(height=AXIS, width=AXIS, images=st.integers(1, 3), stride=st.integers(1, 3))
def test_a_tap_of_every_window_is_as_many_positions_further_on(
    library: ctypes.CDLL, height: tuple[int, ...], width: tuple[int, ...], images: int, stride: int
) -> None:
    axes = [axis if stride == 1 else (axis[0], axis[1], 1, *axis[3:]) for axis in (height, width)]
    outs = [(extent + before + behind - (taps - 1) * by - 1) // stride + 1 for extent, taps, by, before, behind in axes]
    pitches = [
        library.pitch(axis[0], out, axis[3], (axis[1] - 1) * axis[2], stride)
        for axis, out in zip(axes, outs, strict=True)
    ]
    inside = np.arange(1, 1 + images * axes[0][0] * axes[1][0]).reshape(images, axes[0][0], axes[1][0])
    far = stride * max(pitches) + 20
    padded = np.pad(inside, ((0, 0), (axes[0][3], far), (axes[1][3], far)))
    for h_tap in range(axes[0][1]):
        for w_tap in range(axes[1][1]):
            # The band that begins at the first of the taps a multiple of the stride apart, position by position.
            at = h_tap * axes[0][2], w_tap * axes[1][2]
            first = (at[0] % stride, at[1] % stride) if stride > 1 else (0, 0)
            down, across = ((tap - begin) // stride for tap, begin in zip(at, first, strict=True))
            band = padded[:, first[0] :: stride, first[1] :: stride][:, : pitches[0], : pitches[1]].reshape(-1)
            line = np.concatenate([band, np.zeros(down * pitches[1] + across, np.int64)])
            found = line[down * pitches[1] + across :].reshape(images, *pitches)[:, : outs[0], : outs[1]]
            wanted = padded[:, at[0] :: stride, at[1] :: stride][:, : outs[0], : outs[1]]
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 4), (7, 3)])
def test_steps_take_every_tap_once_and_all_of_a_band_together(
    library: ctypes.CDLL, kernel: tuple[int, int], stride: int
) -> None:
    count = 2 * kernel[0] * kernel[1]
    found = (ctypes.c_int * (7 * count))()
    library.steps(kernel[0], stride, found)
    steps = [tuple(found[7 * i : 7 * i + 7]) for i in range(count)]
    assert sorted((run, tap) for run, *_, tap, _ in steps) == [
        (run, tap) for run in (0, 1) for tap in range(kernel[0] * kernel[1])
    ]
    bands = [(run, first_h, first_w) for run, first_h, first_w, *_, begins in steps if begins]
    assert bands == [(run, h, w) for run in (0, 1) for h in range(stride) for w in range(stride)]
    for _, first_h, first_w, row, column, tap, _ in steps:
        assert tap == (row * stride + first_h) * kernel[1] + column * stride + first_w


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 5000))
def test_positions_follow_each_other_along_rows_and_images(
    library: ctypes.CDLL, width: int, height: int, position: int
) -> None:
    found = (ctypes.c_int * 3)()
    library.place(width, height, position, found)
    assert tuple(found) == (position // (width * height), position // width % height, position % width)


@pytest.mark.parametrize(
    ("outputs", "of_group", "channels", "row", "span"),
    [(64, 8, 8, 16, 16), (64, 16, 16, 16, 16), (64, 32, 32, 32, 32), (96, 24, 24, 96, 96), (128, 64, 32, 32, 64)],
)
def test_filters_of_groups_stand_where_their_channels_do(
    library: ctypes.CDLL, outputs: int, of_group: int, channels: int, row: int, span: int
) -> None:
    given = np.arange(1, 1 + outputs * channels * 9, dtype=np.uint16).reshape(outputs, channels, 9)
    fields = (ctypes.c_int * 6)(outputs, of_group, channels, 9, row, span)
    to = np.zeros(library.pack(None, None, fields), np.uint16)
    library.pack(given.ctypes.data_as(ctypes.c_void_p), to.ctypes.data_as(ctypes.c_void_p), fields)
    found, wanted = to.reshape(outputs, 9, row), np.zeros((outputs, 9, row), np.uint16)
    for output in range(outputs):
        begin = (output // of_group - output // span * span // of_group) * channels
        wanted[output, :, begin : begin + channels] = given[output].T
    np.testing.assert_array_equal(found, wanted)


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def problem(
    x: tuple[int, ...], filters: int, stride: int = 1, *, kernel: tuple[int, int] = (3, 3), residual: bool = False,
    groups: int = 1,
) -> KernelProblem:  # fmt: skip
    layer = conv("c", x, filters, kernel, stride, groups=groups, epilogue=RESIDUAL if residual else ())
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


def product(*shape: int, filters: int = 128, kernel: tuple[int, int] = (3, 3)) -> Product:
    return product_of(problem(shape, filters, kernel=kernel))


@given(st.sampled_from(BAND_TILES))
def test_a_candidate_says_which_tile_it_is(tile: BandTile) -> None:
    candidate = Kernel(tile).candidate(Settings())
    assert BANDS.kernel_of(candidate) == Kernel(tile)
    assert kind_of(problem((2, 128, 28, 28), 128), candidate) is BANDS


def test_positions_between_images_and_rows_are_shared() -> None:
    assert Numbering.of(product(32, 128, 28, 28)) == Numbering(29, 29, 2 * 29 + 2, 32 * 29 * 29 - 30)
    # A window that reaches over neighbours of its row alone has no rows between images.
    assert Numbering.of(product(32, 128, 17, 17, kernel=(1, 7))) == Numbering(20, 17, 6, 32 * 20 * 17 - 3)
    assert Numbering.of(product(32, 128, 17, 17, kernel=(7, 1))) == Numbering(17, 20, 6 * 17, 32 * 20 * 17 - 3 * 17)
    # Of windows with a stride of two every second one is numbered, and a band has two of three taps.
    halved = product_of(problem((32, 128, 28, 28), 128, 2))
    assert Numbering.of(halved) == Numbering(15, 15, 15 + 1, 32 * 15 * 15 - 16)


def test_a_band_is_a_tile_and_what_windows_reach_beyond() -> None:
    wanted = product(32, 128, 28, 28)
    assert turns(128, 128).rows(wanted) == 192  # 128 + 60, in patterns of eight rows of 128 bytes
    assert turns(128, 64, 32).rows(wanted) == 192  # of sixteen rows of 64 bytes
    assert together(256, 128).rows(wanted) == 320
    assert together(256, 128).blocks(wanted) == ceil((32 * 29 * 29 - 30) / 256)
    assert replace(together(256, 128), cluster=2).blocks(wanted) == 106


def test_stages_of_filters_lie_beside_two_bands() -> None:
    wanted = product(32, 128, 28, 28)
    taken = 2 * 192 * 64 * 2
    beside = store_bytes(128, 1, False, 128 * 64 * 2, taken)
    assert turns(128, 128).stages(gpu(), wanted) == stages(gpu().shared_memory, 128 * 64 * 2, taken + beside)
    assert turns(64, 64).stages(gpu(), wanted) == 16
    # A row of taps is a stage of three filters; short filters of groups leave room for all nine.
    assert turns(64, 64, stage="row").stages(gpu(), wanted) == 6
    assert turns(128, 128, stage="row").refuse(gpu(), wanted) is None
    wide = turns(128, 128, stage="window").refuse(gpu(), wanted)
    assert wide == "shared memory has room for 1 stages of filters, 3 are needed"
    assert replace(pairs(128, 64, stage="window"), width=16).refuse(gpu(), wanted) is None
    strided = product_of(problem((2, 64, 28, 28), 64, 2))
    assert turns(64, 64, stage="row").refuse(gpu(), strided) == "a stage of several taps is of one band"
    line = product(32, 128, 17, 17, kernel=(1, 7))
    assert turns(64, 64, stage="window").refuse(gpu(), line) == "a row of its taps is all of them"


def test_why_tiles_are_none() -> None:
    good = product(32, 128, 28, 28)
    assert turns(128, 64).refuse(gpu(), good) is None
    assert A100.gpu is not None
    assert turns(128, 64).refuse(A100.gpu, good) == "needs WGMMA"
    assert turns(128, 64).refuse(gpu(), replace(good, n=12)) == "stores 8 columns at once, 12 is no multiple"
    assert turns(128, 64).refuse(gpu(), product_of(problem((2, 64, 28, 28), 64, 2))) is None
    strided = product_of(problem((2, 64, 28, 28), 64, 2, kernel=(1, 7)))
    left_out = "its windows leave out elements, or have a stride of 2 along one axis alone"
    assert turns(128, 64).refuse(gpu(), strided) == left_out
    single = product_of(problem((2, 64, 28, 28), 64, kernel=(1, 1)))
    assert turns(128, 64).refuse(gpu(), single) == "is for windows of several taps"
    tiny = product(32, 128, 2, 2)
    assert turns(128, 64).refuse(gpu(), tiny) == "of 284 numbered positions 128 are outputs"
    narrow = product(32, 128, 28, 28, filters=24)
    assert turns(128, 64).refuse(gpu(), narrow) is None
    assert turns(128, 128).refuse(gpu(), narrow) == "over half of its columns would be beyond the 24 of the product"
    assert pairs(256, 32).refuse(gpu(), good) == "a narrow tile reads the rows again for every 32 of 128 columns"
    thin = product(32, 32, 28, 28)
    assert turns(128, 64).refuse(gpu(), thin) == "half of its depth would be beyond the 32 of the product"
    assert turns(128, 64, 32).refuse(gpu(), good) == "runs of 32 channels are for as many at most, here are 128"
    few = product(1, 128, 7, 7)
    assert together(256, 64).refuse(gpu(), few) == "over half of its rows would be beyond 55 positions"
    far = product(4, 128, 28, 200, kernel=(5, 3))
    assert together(256, 64).refuse(gpu(), far) == "a band of 1064 positions is beyond TMA's 1024"
    wide = product(4, 128, 28, 200)
    assert together(256, 128).refuse(gpu(), wide) == "shared memory has room for 2 stages of filters, 3 are needed"
    assert pairs(256, 128).refuse(gpu(), good) == "a thread would hold 128 sums, four warpgroups leave room for 64"
    assert turns(128, 64).refuse_whole(gpu(), product(25, 128, 14, 14, filters=192)) is None
    assert turns(128, 64).refuse_whole(gpu(), product(26, 128, 14, 14, filters=192)) == (
        "138 tiles fill little more than half of 2 waves over 132 multiprocessors"
    )
    assert turns(128, 64).refuse_slices(gpu(), good) == (
        "its taps share a band, which slices of the depth would load again"
    )


def test_the_kernel_in_words_and_in_cxx() -> None:
    wanted = problem((2, 80, 28, 28), 192, residual=True)
    candidate = Kernel(together(128, 192, cluster=2)).candidate()
    assert str(candidate) == "cutlass m=128 n=192 k=64 warpgroups=cooperative cluster=2x1 bands=2"
    assert str(BANDS.kernel_of(candidate)) == "tile 128x192x64 cooperative of 2 bands in clusters of 2x1"
    assert FAMILY.refuse(wanted, candidate, H200) is None
    (unit,) = FAMILY.units([(wanted, candidate)], H200)
    # The second run has 16 of its 64 channels.
    assert unit.text == (
        '#include "bolt_cutlass/units/conv_band_kernel.h"\n\n'
        "template void bolt::cutlass_kernels::launch_conv(\n"
        "    bolt::cutlass_kernels::BandTile<128, 192, 64, true, 1, 2, 192, 2, 1, 3, 3, 1, 64, 1>,\n"
        "    const bolt::cutlass_kernels::ConvArguments&,\n"
        "    const bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Join<bolt::portable::Add, false>, "
        "bolt::cutlass_kernels::Map<bolt::portable::Relu>>&, void*);\n"
    )


GROUPED = problem((2, 128, 14, 14), 128, groups=16)


def grouped(tile: BandTile, width: int = 0) -> Candidate:
    return Candidate("cutlass", GroupedTile(replace(tile, width=width)).parameters)


def test_tiles_of_groups_have_the_channels_of_their_outputs() -> None:
    what = GROUPS.computed(GROUPED)
    assert (what.channels, what.outputs) == (8, 8)
    assert GroupedTile(replace(turns(64, 64), width=16)).product(what).depth == 64
    deep = GROUPS.computed(problem((2, 256, 14, 14), 512, groups=2))
    assert GroupedTile(turns(64, 128)).product(deep).depth == 128
    candidate = grouped(turns(64, 64), 16)
    assert str(candidate) == "cutlass m=64 n=64 k=64 warpgroups=pingpong bands=2 filters=of16"
    assert kind_of(GROUPED, candidate) is GROUPS
    (unit,) = FAMILY.units([(GROUPED, candidate)], H200)
    assert "BandTile<64, 64, 64, false, 2, 1, 96, 2, 4, 3, 3, 1, 16, 1>," in unit.text
    names = ("x", "w", "b")
    code = FAMILY.emit(GROUPED, candidate, H200, StepExpressions(names, ("y",), (None, "w", "b"), (256,), (160, 0, 0)))
    assert ".dilation_w = 1, .groups = 16, .x_image = 31360, .x_row = 2240, .x_column = 160" in code.member_arguments
    assert (
        "GroupedFilter{.outputs = 128, .of_group = 8, .channels = 8, .taps = 9, .row = 16, .span = 16}"
        in code.member_arguments
    )


def test_why_tiles_of_groups_are_none() -> None:
    def why(of: KernelProblem, tile: BandTile, width: int = 0) -> str | None:
        return FAMILY.refuse(of, grouped(tile, width), H200)

    assert why(GROUPED, turns(64, 64), 16) is None
    assert why(GROUPED, turns(64, 64)) == "its filters would be mostly zeros"
    odd = problem((2, 120, 14, 14), 120, groups=5)
    assert why(odd, turns(64, 64), 16) == "64 outputs are no whole groups, and no part of one, of 24"
    assert why(odd, turns(64, 96)) is None
    wider = problem((2, 64, 14, 14), 128, groups=8)
    assert why(wider, turns(64, 64), 16) == "filters of 16 channels are for whole groups of them, here are 8"
    # Of groups of half a load nothing is said but that other families have them.
    small = conv("c", (2, 64, 9, 9), 64, (3, 3), groups=16)
    graph, node = graph_with(small)
    refusals = FAMILY.propose(graph, node, H200, DType.F16)[1]
    assert [str(refusal.reason) for refusal in refusals] == ["has no groups, here are 16"]


def test_trials_are_of_every_schedule_and_row_of_filters() -> None:
    tried = {BANDS.kernel_of(trial.candidate).tile.schedule for trial in band_trials()}
    assert tried == {"pingpong", "cooperative", "pairs"}
    assert {GROUPS.tile_of(trial.candidate).band.width for trial in grouped_band_trials()} == {0, 16, 32}
