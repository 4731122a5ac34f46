// Numbers of each image and channel, as threads read them that store rows of a product.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/with_moments.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::cutlass_kernels {

/// What a thread with `down` pairs of rows, eight apart, reads for its results: nothing, of most stages.
template <typename Stages, int down>
struct ImageNumbers {
  template <typename Rows>
  __device__ ImageNumbers(const Stages&, const Rows&, int, int, int, int) {}
  __device__ static constexpr bool one(int) { return true; }
};

/// The rows of a tile may be of several images: each row has its own, which is divided out once a tile. Rows beyond the product
/// have the last one's.
template <typename Stages, int down>
struct ImageNumbers<OfImages<Stages>, down> {
  const std::uint16_t* numbers;
  int columns, begins[down][2];

  /// Pairs from `row` on, `apart` from each other. `order` says of which image a row is.
  template <typename Rows>
  __device__ ImageNumbers(const OfImages<Stages>& of, const Rows& order, int row, int apart, int rows, int columns)
      : numbers(static_cast<const std::uint16_t*>(of.numbers)), columns(columns) {
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int below = 0; below < 2; ++below)
        begins[i][below] = order.image_of(min(row + i * apart + below * 8, rows - 1), of.pixels) * columns;
    }
  }

  /// Whether both rows of a pair are of one image, whose numbers are the upper row's.
  __device__ bool one(int i) const { return begins[i][0] == begins[i][1]; }

  /// Of two neighbouring columns of every eight, from `column` on, for both rows of the `i`th pair, where `words` do not have them
  /// already: those of the pair before, if any. Most tiles are of one image, whose numbers are asked for once. The kernel in front
  /// may have written them, so they are no constants to a kernel.
  template <int count>
  __device__ void load(int i, int column, std::uint32_t (&words)[count][2]) const {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      if (below == 1 ? one(i) : i > 0 && begins[i][0] == begins[i > 0 ? i - 1 : 0][0]) continue;
#pragma unroll
      for (int q = 0; q < count; ++q) {
        const bool there = column + q * 8 < columns;
        words[q][below] =
            there ? *reinterpret_cast<const std::uint32_t*>(numbers + begins[i][below] + column + q * 8) : 0u;
      }
    }
  }
};

template <typename Stages, int down>
struct ImageNumbers<WithMoments<Stages>, down> : ImageNumbers<Stages, down> {
  template <typename Rows>
  __device__ ImageNumbers(const WithMoments<Stages>& of, const Rows& order, int row, int apart, int rows, int columns)
      : ImageNumbers<Stages, down>(of.stages, order, row, apart, rows, columns) {}
};

}  // namespace bolt::cutlass_kernels
