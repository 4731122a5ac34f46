"""What kernels tell TMA of their factors: extents, strides in bytes, boxes and corners."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from compiled_headers import WARNINGS, library_of

from bolt_build import runtime
from bolt_build.families import load
from bolt_build.targets import target_named
from bolt_build.toolchain import probe

_PROGRAM = """\
// As nvcc has it, for whom CUTLASS declares the driver's functions; and those are called by their names.
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9
#define CUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL 1
#include <cuda_runtime.h>
#include <cstring>
#include <sstream>
#include "bolt_cutlass/warpgroups/window_loads.h"
namespace {
std::ostringstream told;
template <typename T>
void tell(const char* what, const T* values, int count) {
  told << what;
  for (int i = 0; i < count; ++i) told << ' ' << values[i];
}
int swizzled(CUtensorMapSwizzle swizzle) {
  return swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 32;
}
char text[1000];
template <typename Call>
const char* told_by(Call call) {
  told.str("");
  try {
    call();
  } catch (const std::exception& error) {
    told << error.what();
  }
  return std::strncpy(text, told.str().c_str(), sizeof text - 1);
}
}  // namespace
extern "C" {
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void*, const cuuint64_t* extents,
    const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  tell("extents", extents, rank), tell(" strides", strides, rank - 1), tell(" box", box, rank);
  tell(" steps", steps, rank), told << " swizzle " << swizzled(swizzle);
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void*, const cuuint64_t* extents,
    const cuuint64_t* strides, const int* lower, const int* upper, cuuint32_t channels, cuuint32_t pixels,
    const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill) {
  tell("extents", extents, rank), tell(" strides", strides, rank - 1), tell(" lower", lower, 2);
  tell(" upper", upper, 2), told << " channels " << channels << " pixels " << pixels;
  tell(" steps", steps, rank), told << " swizzle " << swizzled(swizzle);
  return CUDA_SUCCESS;
}
const char* factor(const long long* of, int width, int height, int deep) {
  return told_by(
      [&] { bolt::cutlass_kernels::factor_boxes(nullptr, of[0], of[1], of[2], of[3], of[4], width, height, deep); });
}
const char* windows(const int* of, const long long* strides, int width, int height) {
  return told_by([&] {
    bolt::cutlass_kernels::window_boxes(
        {of[0], of[1], of[2], of[3], 8, of[4], of[5], of[6], of[7], of[8], of[9], of[10], of[11], of[12], of[13], 1,
         strides[0], strides[1], strides[2], nullptr, nullptr, nullptr, nullptr, nullptr},
        width, height);
  });
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    chain = probe(("nvcc", "cutlass"))
    if found := chain.diagnostics():
        pytest.skip(f"needs the headers of CUDA and CUTLASS: {found[0].message}")
    # CUDA 13 keeps its C++ library in a folder of its own, where nvcc looks by itself.
    headers = [Path(path) for tool in chain.tools for path in tool.include_dirs]
    tools = [flag for path in headers for each in (path, path / "cccl") for flag in ("-isystem", str(each))]
    families = [family for family in load(target_named("h200")) if family.name in ("cutlass", "portable")]
    includes = (*(family.include_dir for family in families), runtime.include_dir())
    made = library_of(tmp_path_factory.mktemp("loads"), _PROGRAM, includes, ("-O1", *WARNINGS, *tools))
    made.factor.restype = made.windows.restype = ctypes.c_char_p
    return made


def factor(
    library: ctypes.CDLL, columns: int, rows: int, slices: int, row: int, slice_: int, box: tuple[int, int, int]
) -> str:
    """What is told of a factor, whose rows and slices lie so many elements apart; boxes are (columns, rows, slices)."""
    return str(library.factor((ctypes.c_longlong * 5)(columns, rows, slices, row, slice_), *box).decode())


def windows(
    library: ctypes.CDLL, image: tuple[int, int, int, int], kernel: tuple[int, int], out: tuple[int, int], *,
    pad: tuple[int, int] = (0, 0), stride: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1),
    strides: tuple[int, int, int] | None = None, box: tuple[int, int] = (64, 128),
) -> str:  # fmt: skip
    """What is told of windows: image is (images, height, width, channels), its strides in elements, dense by default;
    others are (along the height, along the width); boxes are (channels, windows)."""
    of = (ctypes.c_int * 14)(*image, *kernel, *out, *pad, *stride, *dilation)
    _, height, width, channels = image
    apart = strides or (height * width * channels, width * channels, channels)
    return str(library.windows(of, (ctypes.c_longlong * 3)(*apart), *box).decode())


def test_a_matrix_is_a_factor_of_one_slice(library: ctypes.CDLL) -> None:
    assert factor(library, 264, 1000, 1, 264, 264, (64, 128, 1)) == (
        "extents 264 1000 1 strides 528 528 box 64 128 1 steps 1 1 1 swizzle 128"
    )


def test_a_slice_of_the_depth_ends_where_the_next_one_begins(library: ctypes.CDLL) -> None:
    """What a box reads beyond the depth of a slice is zero, not of the next one."""
    assert factor(library, 256, 128, 4, 1024, 256, (32, 64, 1)) == (
        "extents 256 128 4 strides 2048 512 box 32 64 1 steps 1 1 1 swizzle 64"
    )


def test_filters_are_told_of_tap_by_tap(library: ctypes.CDLL) -> None:
    """A box of one tap: channels beyond the last are zero, not of the next tap."""
    assert factor(library, 48, 9, 64, 48, 9 * 48, (16, 1, 64)) == (
        "extents 48 9 64 strides 96 864 box 16 1 64 steps 1 1 1 swizzle 32"
    )


def test_padding_is_between_the_corners_of_the_first_taps(library: ctypes.CDLL) -> None:
    assert windows(library, (32, 56, 58, 64), (3, 3), (56, 58), pad=(1, 1)) == (
        "extents 64 58 56 32 strides 128 7424 415744 lower -1 -1 upper -1 -1 channels 64 pixels 128 "
        "steps 1 1 1 1 swizzle 128"
    )


def test_strides_leave_positions_out_and_the_last_window_may_end_before_the_padding(library: ctypes.CDLL) -> None:
    assert windows(library, (4, 28, 30, 128), (3, 3), (14, 15), pad=(1, 1), stride=(2, 2), box=(64, 32)) == (
        "extents 128 30 28 4 strides 256 7680 215040 lower -1 -1 upper -2 -2 channels 64 pixels 32 "
        "steps 1 2 2 1 swizzle 128"
    )


def test_dilated_windows_reach_further(library: ctypes.CDLL) -> None:
    assert windows(library, (2, 30, 32, 48), (5, 3), (13, 16), pad=(2, 2), stride=(2, 2), dilation=(2, 2)) == (
        "extents 48 32 30 2 strides 96 3072 92160 lower -2 -2 upper -3 -7 channels 64 pixels 128 "
        "steps 1 2 2 1 swizzle 128"
    )


def test_rows_may_overlap(library: ctypes.CDLL) -> None:
    """Cells of two by two pixels, four of them as 64 channels: a row of windows of one column."""
    told = windows(library, (1, 115, 112, 64), (4, 1), (112, 112), strides=(115 * 115 * 16, 115 * 16, 16))
    assert told.startswith("extents 64 112 115 1 strides 32 3680 423200 lower 0 0 upper 0 -3 ")


@pytest.mark.parametrize(
    ("image", "kernel", "out", "pad"),
    [
        ((2, 224, 400, 64), (3, 300), (222, 101), (0, 0)),
        ((2, 56, 56, 64), (3, 3), (454, 454), (200, 200)),
        ((2, 300, 56, 64), (200, 3), (101, 54), (0, 0)),
    ],
    ids=["wide", "padded", "high"],
)
def test_windows_out_of_reach_are_not_launched(
    library: ctypes.CDLL, image: tuple[int, int, int, int], kernel: tuple[int, int], out: tuple[int, int],
    pad: tuple[int, int],
) -> None:  # fmt: skip
    assert windows(library, image, kernel, out, pad=pad) == (
        "could not launch a convolution: TMA does not reach its windows"
    )


def test_windows_that_do_not_make_up_the_output_are_not_launched(library: ctypes.CDLL) -> None:
    assert windows(library, (2, 17, 17, 64), (3, 3), (14, 14)) == (
        "could not launch a convolution: its windows do not make up its output"
    )
