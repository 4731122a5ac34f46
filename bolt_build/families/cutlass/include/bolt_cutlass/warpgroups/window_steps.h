// Where the windows of a tile begin in the image, and which tap and channels of them a step of the product takes.
#pragma once

#include <cuda_runtime.h>

namespace bolt::cutlass_kernels {

/// What windows have in common; `runs` of channels make up a tap.
struct WindowShape {
  int runs, kernel_w;
  int dilation_w, dilation_h, stride_w, stride_h, pad_w, pad_h, out_w, out_h;
};

/// A step of the product of a tile: its first row's window has its first tap at (`w`, `h`) of `image`, which may be
/// padding. The depth goes through the runs of a tap, then through the taps of a row of the filter, then through its rows.
struct WindowStep {
  int image, w, h;
  int run, tap, tap_w, tap_h;

  /// The first of `count` steps of a slice of the depth, of the tile that begins at an output position, `row`.
  __host__ __device__ WindowStep(const WindowShape& shape, int row, int slice, int count) {
    const int line = row / shape.out_w;
    w = row % shape.out_w * shape.stride_w - shape.pad_w;
    h = line % shape.out_h * shape.stride_h - shape.pad_h;
    image = line / shape.out_h;
    begin(shape, slice * count);
  }

  /// Of all steps of the tile the one of that number.
  __host__ __device__ void begin(const WindowShape& shape, int first) {
    run = first % shape.runs;
    tap = first / shape.runs;
    tap_w = tap % shape.kernel_w;
    tap_h = tap / shape.kernel_w;
  }

  __host__ __device__ void next(const WindowShape& shape) {
    if (++run < shape.runs) return;
    run = 0;
    ++tap;
    if (++tap_w < shape.kernel_w) return;
    tap_w = 0;
    ++tap_h;
  }
};

}  // namespace bolt::cutlass_kernels
