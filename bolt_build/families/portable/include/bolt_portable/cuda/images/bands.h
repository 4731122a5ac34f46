// Resampling along an axis as a product on tensor cores: results are a matrix of weights times elements. It is a band: a
// tile of results has a window of neighbours, beside which weights are zero. Weights and sums in fp32 are two halves each,
// what is nearest to them and what that leaves, so that products are as exact as those in fp32 are to what half precision
// rounds in the end.
#pragma once

#include <algorithm>
#include <type_traits>

#include "bolt_portable/cuda/halves.h"
#include "bolt_portable/resample.h"

namespace bolt::portable {

/// sums[16, 8] += left[16, 8] * right[8, 8]
template <typename T>
__device__ inline void multiply_eight(float (&sums)[4], std::uint32_t upper, std::uint32_t lower, std::uint32_t right) {
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(upper), "r"(lower), "r"(right));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(upper), "r"(lower), "r"(right));
}

/// sums[16, 8] += left[16, 16] * right[16, 8]. As multiply_halves (half_mma.h), but the compiler may move it.
template <typename T>
__device__ inline void multiply_sixteen(float (&sums)[4], const std::uint32_t (&left)[4], std::uint32_t low, std::uint32_t high) {
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
}

/// Two neighbours as they are multiplied: rounded, and what that leaves.
struct alignas(8) SplitPair {
  std::uint32_t high, low;

  template <typename T>
  __device__ static SplitPair of(float a, float b) {
    const std::uint32_t high = paired<T>(a, b);
    const float2 whole = unpaired<T>(high);
    return {high, paired<T>(a - whole.x, b - whole.y)};
  }
};

/// `before` plus zero times both: it is zero as long as all are numbers.
template <typename T>
__device__ inline std::uint32_t times_zero(std::uint32_t both, std::uint32_t before) {
  std::uint32_t now;
  if constexpr (std::is_same_v<T, bf16>)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(now) : "r"(both), "r"(0u), "r"(before));
  else
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(now) : "r"(both), "r"(0u), "r"(before));
  return now;
}

/// Weights of `made` results of `taps` neighbours each along an axis of `extent` elements, 0 as in ResampledAxis. Tiles of `tile`
/// results have windows of `depth` elements, which begin at multiples of `unit`.
template <int taps, int extent, int made, int tile, int depth, int unit>
struct Band {
  const ResampledAxis& axis;

  /// As in the table, but for what is farther outside. Counted in 32 bits: 64 would take several instructions each.
  __device__ int first(int result) const {
    if constexpr (taps == 0) return result;
    return min(max(static_cast<int>(axis.first[result]), -taps), extent);
  }
  __device__ static int inside(int place) { return min(max(place, 0), extent - 1); }
  /// Where a tile's window begins: inside, and so that it ends there where it has room.
  __device__ int window(int which) const {
    constexpr int last = extent > depth ? (extent - depth + unit - 1) / unit * unit : 0;
    return min(inside(first(which * tile)) / unit * unit, last);
  }
  /// What a result is made of, read once.
  struct Result {
    static constexpr int terms = std::max(taps, 1);
    int begin;
    float weights[terms];

    /// Whether it has neighbours outside of the window that begins there.
    __device__ bool leaves(int from) const {
      return inside(begin) < from || inside(begin + terms - 1) >= from + depth;
    }
    /// Its weight of a place: the edge's neighbours outside are its own too.
    __device__ float weight(int place) const {
      float sum = 0;
#pragma unroll
      for (int tap = 0; tap < terms; ++tap) sum += begin + tap == place ? weights[tap] : 0.0f;
      if (place >= extent) return 0.0f;
      if ((begin < 0 && place == 0) || (begin + terms > extent && place == extent - 1)) {
#pragma unroll
        for (int tap = 0; tap < terms; ++tap)
          sum += begin + tap != place && inside(begin + tap) == place ? weights[tap] : 0.0f;
      }
      return sum;
    }
    /// Those of two neighbouring places.
    template <typename T>
    __device__ SplitPair pair(int place) const {
      return SplitPair::of<T>(weight(place), weight(place + 1));
    }
  };
  /// Of results behind the last all weights are zero.
  __device__ Result result(int which) const {
    Result of;
    const bool there = which < made;
    const int last = there ? which : made - 1;
    of.begin = first(last);
    if constexpr (taps == 0) of.weights[0] = there ? 1.0f : 0.0f;
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) of.weights[tap] = there ? axis.weights[last * taps + tap] : 0.0f;
    return of;
  }
};

}  // namespace bolt::portable
