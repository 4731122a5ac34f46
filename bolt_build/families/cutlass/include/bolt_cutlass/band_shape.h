// How the positions of images are numbered where a band of them is the left factor of every tap of a window.
#pragma once

#include <cuda_runtime.h>

namespace bolt::cutlass_kernels {

/// One behind the other lie `pitch_w` positions a row, `pitch_h` rows an image: as many as the output has at least, and so
/// many that no window reaches from a row, or an image, into anything but zeros of the next. So a tap of all windows is the
/// band itself, some positions further on.
struct BandShape {
  int pitch_w, pitch_h;

  /// Along one axis: of `extent` positions with `pad` in front, where windows reach over `reach` more than their first.
  static constexpr int pitch(int extent, int out, int pad, int reach) {
    const int behind = out + reach - pad - extent;
    const int zeros = pad > behind ? pad : behind;
    const int inside = extent + (zeros > 0 ? zeros : 0);
    return inside > out ? inside : out;
  }

  __host__ __device__ int positions() const { return pitch_w * pitch_h; }
};

/// Where a numbered position is.
struct BandPlace {
  int w, h, image;
  __host__ __device__ BandPlace(const BandShape& shape, int position)
      : w(position % shape.pitch_w), h(position / shape.pitch_w % shape.pitch_h), image(position / shape.positions()) {}
};

}  // namespace bolt::cutlass_kernels
