// How the positions of images are numbered where a band of them is the left factor of taps of a window, and in which order
// taps are multiplied.
#pragma once

#include <cuda_runtime.h>

namespace bolt::cutlass_kernels {

/// One behind the other lie `pitch_w` positions a row, `pitch_h` rows an image: as many as the output has at least, and so
/// many that no window reaches from a row, or an image, into anything but zeros of the next. So a tap of all windows is the
/// band itself, some positions further on. Where windows have a `stride` the numbered ones have it too.
struct BandShape {
  int pitch_w, pitch_h;

  /// Along one axis: of `extent` positions with `pad` in front, where windows reach over `reach` more than their first.
  static constexpr int pitch(int extent, int out, int pad, int reach, int stride) {
    const int inside = (extent + pad + stride - 1) / stride;
    const int last = stride * (out - 1) - pad + reach, behind = last < 0 ? 0 : last / stride + 1;
    return inside > behind ? (inside > out ? inside : out) : (behind > out ? behind : out);
  }

  /// Positions in front of an axis where its numbers begin, `pad` or some more: none lie behind its end.
  static constexpr int front(int extent, int pitch, int pad, int stride) {
    const int beyond = (pitch - 1) * stride + 1 - extent - pad;
    return pad + (beyond > 0 ? (beyond + stride - 1) / stride * stride : 0);
  }

  __host__ __device__ int positions() const { return pitch_w * pitch_h; }
};

/// Where a numbered position is.
struct BandPlace {
  int w, h, image;
  __host__ __device__ BandPlace(const BandShape& shape, int position)
      : w(position % shape.pitch_w), h(position / shape.pitch_w % shape.pitch_h), image(position / shape.positions()) {}
};

/// Windows of so many taps with a `stride`. Taps that lie a multiple of the stride apart share a band.
template <int kernel_h_, int kernel_w_, int stride_>
struct BandWindow {
  static constexpr int kernel_h = kernel_h_, kernel_w = kernel_w_, stride = stride_;
  static constexpr int taps = kernel_h * kernel_w, bands = stride * stride;
  static_assert(kernel_h >= stride && kernel_w >= stride, "every band has a tap");

  /// Taps of a column, or of a row, that share the band which begins at the tap `first`.
  static constexpr __host__ __device__ int rows(int first) { return (kernel_h - first + stride - 1) / stride; }
  static constexpr __host__ __device__ int columns(int first) { return (kernel_w - first + stride - 1) / stride; }
};

/// What the taps of windows have in common: positions from one to the next of a row, and of a column; `runs` of channels.
struct BandTaps {
  int next_column, next_row, runs;
};

/// A tap and a run of channels, of the band whose first tap is (`first_w`, `first_h`): the taps of a band, then the bands of a
/// run, then the runs.
template <typename Window>
struct BandStep {
  int run = 0, first_h = 0, first_w = 0, row = 0, column = 0;

  __host__ __device__ bool begins() const { return row == 0 && column == 0; }
  __host__ __device__ int tap() const {
    return (row * Window::stride + first_h) * Window::kernel_w + column * Window::stride + first_w;
  }
  __host__ __device__ void next() {
    if (++column < Window::columns(first_w)) return;
    column = 0;
    if (++row < Window::rows(first_h)) return;
    row = 0;
    if (++first_w < Window::stride) return;
    first_w = 0;
    if (++first_h < Window::stride) return;
    first_h = 0;
    ++run;
  }
};

}  // namespace bolt::cutlass_kernels
