// Sums of a tile's results over its positions, and what kernels leave of them beside the results.
#pragma once

#include "bolt_grouped/halves.h"

namespace bolt::grouped {

/// A thread's sums of `vector` neighbouring channels over its positions, in fp32, and those of its block: `lanes` threads
/// beside each other have other channels, `strips` of them the same ones, and so for each of `images` images. Added up in one
/// order, whatever the order in which threads and blocks run.
template <int vector, int lanes, int strips, int images = 1>
struct TileSums {
  static constexpr int outputs = vector * lanes, threads = lanes * strips * images, bytes = 4 * vector * threads;
  static constexpr int images_of_block = images, strips_of_image = strips, together = vector < 4 ? vector : 4;
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
};

/// What a block's sums are of: images from `image` on, each of which has sums in `rows` rows, the block's in row `row`; and
/// channels from `first` on, part `part` of `parts` of them.
struct SumsOf {
  int image, rows, row, first, part, parts;
};

/// Which part of the channels a block has, and which run of tiles.
struct BlockPlace {
  int part, run;
};

/// A kernel leaves its results alone.
struct LeavesResults {
  static constexpr bool sums = false, means = false;
  static __device__ BlockPlace place(const Arguments&, int parts) {
    const auto beside = static_cast<unsigned>(parts);
    return {static_cast<int>(blockIdx.x % beside), static_cast<int>(blockIdx.x / beside)};
  }
  static int cluster(const Arguments&) { return 1; }
};

/// It leaves sums of each tile as well.
struct LeavesSums : LeavesResults {
  static constexpr bool sums = true;

  /// Behind the barrier that follows share().
  template <typename Sums, typename Half>
  static __device__ void leave(const float* shared, const Arguments& a, const SumsOf& of) {
    constexpr int outputs = Sums::outputs, strips = Sums::strips_of_image;
    for (int i = threadIdx.x; i < Sums::images_of_block * outputs; i += Sums::threads) {
      const int image = i / outputs, one = i % outputs;
      if (of.image + image >= a.batch || of.first + one >= a.out_channels) continue;
      float sum = 0.0f;
#pragma unroll 4
      for (int strip = 0; strip < strips; ++strip) sum += shared[(image * strips + strip) * outputs + one];
      a.sums[(Index{of.image + image} * of.rows + of.row) * a.out_channels + of.first + one] = sum;
    }
  }
  /// At a block's end, behind that.
  template <typename Sums, typename Half>
  static __device__ void finish(const float*, const Arguments&, const SumsOf&) {}
};

}  // namespace bolt::grouped
