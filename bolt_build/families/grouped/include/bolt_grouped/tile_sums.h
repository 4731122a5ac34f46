// Sums of a tile's results over its positions, as kernels leave them beside the results.
#pragma once

#include "bolt_grouped/halves.h"

namespace bolt::grouped {

/// A thread's sums of `vector` neighbouring channels over its positions, in fp32, and those of its block: `lanes` threads
/// beside each other have other channels, `strips` of them the same ones. Added up in one order, whatever the order in
/// which threads and blocks run.
template <int vector, int lanes, int strips>
struct TileSums {
  static constexpr int outputs = vector * lanes, bytes = 4 * outputs * strips;
  float at[vector] = {};

  __device__ void add(const float (&x)[vector]) {
#pragma unroll
    for (int i = 0; i < vector; ++i) at[i] += x[i];
  }
  /// All threads of the block, before a barrier: `shared` has `bytes`.
  __device__ void share(float* shared) {
    float* const to = shared + threadIdx.x * vector;
#pragma unroll
    for (int i = 0; i < vector; ++i) {
      to[i] = at[i];
      at[i] = 0.0f;
    }
  }
  /// Behind the barrier: the block's sums of channels from `first` on, of tile number `tile` of all images.
  static __device__ void leave(const float* shared, const Arguments& a, int tile, int first) {
    for (int i = threadIdx.x; i < outputs && first + i < a.out_channels; i += lanes * strips) {
      float sum = 0.0f;
#pragma unroll 4
      for (int strip = 0; strip < strips; ++strip) sum += shared[strip * outputs + i];
      a.sums[Index{tile} * a.out_channels + first + i] = sum;
    }
  }
};

}  // namespace bolt::grouped
