// Sums over the positions of neighbouring channels, by the threads of a block: of norm_slabs.h and norm_passes.h.
#pragma once

#include "bolt_portable/cuda/norms/norm_neighbours.h"

namespace bolt::portable {

/// Floats that partial sums of a block take: of each warp where a warp's lanes end with a run of channels, else of each part.
BOLT_HD inline Index slab_partials(Index across, Index threads) {
  return across <= 32 && 32 % across == 0 ? threads / 32 * across * wide : threads / across * across * wide;
}

/// Sums of `wide` neighbouring channels, `across` threads of which lie side by side, over the `parts` of a block that each
/// have other positions. Calls put(statistic, sum of its `group` channels over all parts), each on one thread; begins and
/// ends with the block together. `partial`: `slab_partials` floats of shared memory.
template <typename Put>
__device__ inline void slab_total(float* values, float* partial, std::uint32_t across, std::uint32_t group,
                                  std::uint32_t parts, const Put& put) {
  const std::uint32_t own = across * wide, statistics = own / group;
  const std::uint32_t lane = threadIdx.x % across;
  std::uint32_t rows = parts;
  __syncthreads();  // an earlier sum may still be read
  if (statistics == 1) {
    // All is one sum: of a thread, of its warp, of the block. No thread without positions has anything but zeros.
    const auto add = [](float a, float b) { return a + b; };
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < wide; ++i) sum += values[i];
    sum = over_warp(sum, add);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
      sum = over_warp(threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f, add);
      if (threadIdx.x == 0) put(0, sum);
    }
    __syncthreads();
    return;
  }
  if (across <= 32 && 32 % across == 0) {
    rows = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < wide; ++i) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        if (distance >= across) values[i] += __shfl_xor_sync(0xffffffffu, values[i], distance);
      if (threadIdx.x % 32 < across) partial[threadIdx.x / 32 * own + lane * wide + i] = values[i];
    }
  } else if (threadIdx.x / across < parts) {
#pragma unroll
    for (int i = 0; i < wide; ++i) partial[threadIdx.x / across * own + lane * wide + i] = values[i];
  }
  __syncthreads();
  if (group == 1) {
    for (std::uint32_t at = threadIdx.x; at < own; at += blockDim.x) {
      float sum = 0.0f;
#pragma unroll 8
      for (std::uint32_t row = 0; row < rows; ++row) sum += partial[row * own + at];
      put(at, sum);
    }
  } else {
    const std::uint32_t columns = min(group, 32u), rows_at_once = 32 / columns;
    const std::uint32_t lines = threadIdx.x % 32 < columns * rows_at_once ? rows : 0u;
    for (std::uint32_t at = threadIdx.x / 32; at < statistics; at += blockDim.x / 32) {
      float sums[4] = {};  // one load waits for no other
      for (std::uint32_t k = threadIdx.x % 32 % columns; k < group; k += columns) {
        const float* const from = partial + at * group + k;
        std::uint32_t row = threadIdx.x % 32 / columns;
        for (; row + 3 * rows_at_once < lines; row += 4 * rows_at_once)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] += from[(row + i * rows_at_once) * own];
        for (; row < lines; row += rows_at_once) sums[0] += from[row * own];
      }
      float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      sum = over_warp(sum, [](float a, float b) { return a + b; });
      if (threadIdx.x % 32 == 0) put(at, sum);
    }
  }
  __syncthreads();
}

/// Of the elements that a thread or several have of a statistic: their mean, and squared distances from it (or 0, and what is
/// summed instead).
struct NormPart {
  float mean, sum;
};

/// Of `span` statistics a thread has so many after so many steps of `merge_halves`.
constexpr int halved(int span, int steps) { return span >> steps > 1 ? span >> steps : 1; }
/// Bits of a thread's number in its warp: those with any of them set have what another one has.
constexpr std::uint32_t repeated(int span, int steps) {
  std::uint32_t bits = 0;
  for (int step = 0; step < steps; ++step)
    if (halved(span, step) == 1) bits |= 16u >> step;
  return bits;
}

/// Puts together what a warp's threads have of the same statistics, in steps: each thread keeps half of its statistics and
/// gives the others away. Returns the first that it keeps. A thread's statistics are of `many` loads each, which become
/// those of all that were put together; a load has `each` elements of a statistic.
template <int steps, bool centred, int step = 0, int span>
__device__ inline int merge_halves(NormPart (&found)[span], float& many, float (&each)[span]) {
  if constexpr (step < steps) {
    constexpr int distance = 16 >> step, half = halved(span, step) / 2;
    const bool upper = threadIdx.x & distance;
    const float others = __shfl_xor_sync(0xffffffffu, many, distance), all = many + others;
    const float weight = all > 0.0f ? __fdividef(others, all) : 0.0f;
#pragma unroll
    for (int j = 0; j < halved(span, step + 1); ++j) {
      NormPart mine = found[j], theirs = mine;
      if constexpr (half > 0) {
        const NormPart other = found[half + j];
        theirs = upper ? mine : other;
        mine = upper ? other : mine;
        each[j] = upper ? each[half + j] : each[j];
      }
      found[j].sum = mine.sum + __shfl_xor_sync(0xffffffffu, theirs.sum, distance);
      if constexpr (centred) {
        const float apart = __shfl_xor_sync(0xffffffffu, theirs.mean, distance) - mine.mean;
        found[j].mean = mine.mean + apart * weight;
        found[j].sum += apart * apart * (many * weight * each[j]);
      }
    }
    many = all;
    return (upper ? half : 0) + merge_halves<steps, centred, step + 1>(found, many, each);
  } else {
    return 0;
  }
}

/// Mean and sum of squared distances from it (or 0 and what is summed instead) of `before` elements and of `many` others.
template <typename Statistic>
__device__ inline float2 norm_together(float2 a, float before, float2 b, float many) {
  if constexpr (!Statistic::centred) return {0.0f, a.y + b.y};
  const float apart = b.x - a.x, part = many / (before + many);
  return {a.x + apart * part, a.y + b.y + apart * apart * before * part};
}

}  // namespace bolt::portable
