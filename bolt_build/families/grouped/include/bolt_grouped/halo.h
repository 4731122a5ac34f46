// What a tile reads of the input, in shared memory: copied while the tile in front is computed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_grouped/halves.h"
#include "bolt_portable/cuda/async_copy.h"

namespace bolt::grouped {

using portable::commit;
using portable::copy;
using portable::settle;

/// Begins the copies of `count` times 16 bytes, by all `threads` of a block.
template <int threads, int count>
__device__ inline void copy_chunks(void* to, const void* from) {
#pragma unroll
  for (int first = 0; first < count; first += threads) {
    const int i = first + threadIdx.x;
    if (first + threads <= count || i < count)
      copy<8>(static_cast<Half*>(to) + i * 8, static_cast<const Half*>(from) + i * 8, true);
  }
}

/// Where a tile begins in the output.
struct Corner {
  int image, y, x;
};

/// Tiles of an image row by row, images one behind the other.
template <int rows, int columns>
struct Tiles {
  int across, down;

  __host__ __device__ explicit Tiles(const Arguments& a)
      : across((a.out_w + columns - 1) / columns), down((a.out_h + rows - 1) / rows) {}
  __host__ __device__ int count(const Arguments& a) const { return a.batch * down * across; }
  __device__ Corner corner(int tile) const {
    const int x = tile % across, line = tile / across;
    return {line / down, line % down * rows, x * columns};
  }
};

/// The halo of a tile: its pixels row by row, `pitch` elements each, of which a unit takes `padded` and copies `channels`.
template <typename Window, int rows, int columns, int units, int channels, int padded, int pitch, int load>
struct Halo {
  static constexpr int height = Window::rows(rows), width = Window::columns(columns);
  static constexpr int halves = height * width * pitch;
  static constexpr int of_unit = channels / load, of_pixel = units * of_unit;
  static_assert(channels % load == 0 && padded % load == 0 && pitch >= units * padded && pitch % 8 == 0);

  /// Begins the copies of `threads` threads, from channel `first` on.
  template <int threads, typename Half>
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int first) {
    const Half* const x = static_cast<const Half*>(a.x);
    const int top = corner.y * Window::step_h - a.pad_h, left = corner.x * Window::step_w - a.pad_w;
    for (int i = threadIdx.x; i < height * width * of_pixel; i += threads) {
      const int pixel = i / of_pixel, part = i % of_pixel, unit = part / of_unit, from = part % of_unit * load;
      const int row = top + pixel / width, column = left + pixel % width, channel = first + unit * channels + from;
      const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(a.height) &&
                          static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index at = ((Index{corner.image} * a.height + row) * a.width + column) * x_pitch(a) + channel;
      copy<load>(to + pixel * pitch + unit * padded + from, inside ? x + at : x, inside);
    }
  }
};

/// Queues a kernel, which gets the arguments and the epilogue. Throws std::runtime_error.
template <typename Epilogue>
void queue(void (*kernel)(Arguments, Epilogue), int blocks, int threads, int shared, const Arguments& a,
           const Epilogue& epilogue, void* stream, int cluster = 1) {
  const portable::Launch how{
      .blocks = static_cast<unsigned>(blocks), .threads = static_cast<unsigned>(threads), .shared = shared,
      .overlap = a.overlap, .cluster = static_cast<unsigned>(cluster), .stream = stream};
  portable::queue("a grouped convolution", how, kernel, a, epilogue);
}

}  // namespace bolt::grouped
