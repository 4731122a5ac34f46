// Brings an image of few channels into cells of two by two pixels, so that a window with a stride of two becomes one with
// a stride of one over enough channels.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::cutlass_kernels {

/// x as [batch, height, width, channels] with strides in elements, to dense [batch, rows, columns, 2, 2, 4]: cell (i, j)
/// begins at row 2 i - top and column 2 j - left, and what x has not is zero. At most four channels.
struct Fold {
  int batch, height, width, channels;
  long long image, row, column, channel;
  int rows, columns, top, left;

  std::size_t bytes() const {
    return static_cast<std::size_t>(batch) * rows * columns * 16 * 2;
  }
};

template <typename In, typename Out>
void fold(const Run& r, const Fold& p, const void* x, void* to) {
  const In* in = static_cast<const In*>(x);
  Out* out = static_cast<Out*>(to);
  portable::launch_each(
      r, static_cast<portable::Index>(p.batch) * p.rows * p.columns,
      [=] __device__(std::uint32_t item) {
        struct alignas(16) Half {
          Out at[8];  // two pixels of a row
        };
        const int column = static_cast<int>(item % p.columns) * 2 - p.left;
        const std::uint32_t line = item / p.columns;
        const int row = static_cast<int>(line % p.rows) * 2 - p.top;
        const In* from = in + line / p.rows * p.image;
        Half cell[2];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const int y = row + i / 8, x = column + i / 4 % 2, c = i % 4;
          const bool there = y >= 0 && y < p.height && x >= 0 && x < p.width && c < p.channels;
          const float value = there ? portable::load(from + y * p.row + x * p.column + c * p.channel) : 0.0f;
          cell[i / 8].at[i % 8] = Out(value);
        }
        Half* written = reinterpret_cast<Half*>(out + static_cast<portable::Index>(item) * 16);
        written[0] = cell[0];
        written[1] = cell[1];
      },
      "folding");
}

}  // namespace bolt::cutlass_kernels
