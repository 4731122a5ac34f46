// What kernels of attention do with scores, whatever instructions make them.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "bolt_attention/launch.h"

namespace bolt::attention {

/// 2^x, by the multiprocessor's own function: 2 units in the last place.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger; where one is no number, the other. What maxf instructions do.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }

/// Of the four lanes that have parts of the same row.
__device__ inline float largest_of_row(float x) {
  x = larger(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return larger(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Two numbers as neighbours in half precision, the first at the lower address.
__device__ inline std::uint32_t pair(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

/// What is subtracted from scores whose largest is `most`: nothing where all of them are hidden, so that their powers are
/// zero and not NaN.
__device__ inline float subtracted(float most) { return most == -INFINITY ? 0.0f : most; }

/// What a row is divided by, inverted. Of a row of hidden keys the sum is zero and so are its products.
__device__ inline float share_of(float sum, bool safe) { return safe && sum == 0.0f ? 0.0f : 1.0f / sum; }

/// What becomes of scores of one query before the softmax: the mask is added, and keys that it does not read are at -inf.
/// Without a mask scores stay as they are; with one they are scaled, as powers of two want them.
template <typename Mask>
struct ScoreRow {
  static constexpr bool masked = !std::is_same_v<Mask, Unmasked>;
  const Mask* mask;  // of this query and key 0
  int step;          // from a key to the next
  int end;           // the first key that it does not read

  __device__ ScoreRow(const Arguments& a, int image, int head, int query)
      : mask(nullptr), step(static_cast<int>(a.mask_steps[3])), end(a.causal ? min(a.keys, query + 1) : a.keys) {
    if constexpr (masked) {
      const int there = min(query, a.queries - 1);
      mask = static_cast<const Mask*>(a.mask) + image * a.mask_steps[0] + head * a.mask_steps[1] + there * a.mask_steps[2];
    }
  }

  __device__ float operator()(const Arguments& a, float score, int key) const {
    if (key >= end) return -INFINITY;
    if constexpr (masked) {
      constexpr float log2e = 1.4426950408889634f;
      return fmaf(static_cast<float>(mask[key * step]), log2e, score * a.scale);
    } else {
      return score;
    }
  }
};

}  // namespace bolt::attention
