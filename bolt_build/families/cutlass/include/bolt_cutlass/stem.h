// What a plan holds of a convolution over an image's few channels, and its launch.
#pragma once

#include "bolt/plan.h"
#include "bolt_cutlass/epilogue.h"

namespace bolt::cutlass_kernels {

/// A window of `taps_h` by `taps_w` positions, `stride_h` and `stride_w` from each other, over `channels` of `In`: in `planes`,
/// or one pixel after the other. `out` channels of `Element`, in tiles of `rows` by `columns` positions.
template <typename Element, typename In, bool planes, int channels, int out, int taps_h, int taps_w, int stride_h, int stride_w,
          int rows, int columns>
struct StemTile {};

/// `bias` may be null. `x_row` are elements from a pixel to the next (of planes they are not looked at), `y_row` and
/// `residual_row` those of the output and the residual. `blocks` share the tiles.
struct StemArguments {
  const void* x;
  const void* weights;
  const float* bias;
  const void* residual;
  void* y;
  int batch, height, width, out_h, out_w, above, left, x_row, y_row, residual_row, blocks;
};

template <typename Tile, typename Stages>
void launch_stem(Tile, const StemArguments& arguments, const Stages& stages, const Run& run);

}  // namespace bolt::cutlass_kernels
