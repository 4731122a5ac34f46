// What kernels of attention do with scores, whatever instructions make them.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "bolt_attention/launch.h"
#include "bolt_portable/cuda/halves.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::attention {

/// 2^x, by the multiprocessor's own function: 2 units in the last place.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The same where it is no normal number too.
__device__ inline float any_power_of_two(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 2^x for x up to 0 by products and sums, which other lanes of the multiprocessor compute: 2^x is 2^n 2^f with |f| at
/// most 1/2, of which the second factor is a polynomial, within 7.5e-5 of it. Below -126 it stays at 2^-126.
__device__ inline float power_by_products(float x) {
  constexpr float whole = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const float bounded = fmaxf(x, -126.0f), n = bounded + whole, f = bounded - (n - whole);
  const float y = fmaf(fmaf(fmaf(0.05517164617776871f, f, 0.24261116981506348f), f, 0.6932609677314758f), f,
                       0.9999280571937561f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(n) << 23));
}

/// The larger; where one is no number, the other. What maxf instructions do.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }

/// The larger; NaN where one is.
__device__ inline float larger_or_nan(float a, float b) {
  float y;
#if __CUDA_ARCH__ >= 800
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
#else
  y = a != a || b != b ? NAN : fmaxf(a, b);
#endif
  return y;
}

/// Of the four lanes that have parts of the same row.
template <typename Larger>
__device__ inline float largest_of_row(float x, const Larger& of_two) {
  x = of_two(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return of_two(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// What is subtracted from scores whose largest is `most`: nothing where all of them are hidden, so that their powers are
/// zero and not NaN.
__device__ inline float subtracted(float most) { return most == -INFINITY ? 0.0f : most; }

/// What a row is divided by, inverted. Of a row of hidden keys the sum is zero and so are its products.
__device__ inline float share_of(float sum, bool safe) { return safe && sum == 0.0f ? 0.0f : 1.0f / sum; }

/// What a kernel computes where some keys may be padding: without a mask, over as many keys as there are.
__device__ inline Arguments counted(const Arguments& a) {
  Arguments own = a;
  if (a.mask != nullptr) own.keys = min(a.keys, static_cast<int>(*static_cast<const std::int64_t*>(a.mask)));
  return own;
}

/// One query and its keys. Without a mask scores stay as they are; with one they are scaled, as powers of two want them.
template <typename Mask>
struct ScoreRow {
  static constexpr bool masked = !std::is_same_v<Mask, Unmasked>;
  const Mask* mask;  // of this query and key 0
  int end;           // the first key that it does not read

  __device__ ScoreRow(const Arguments& a, int image, int head, int query)
      : mask(nullptr), end(a.causal ? min(a.keys, query + 1) : a.keys) {
    if constexpr (masked) {
      const int there = min(query, a.queries - 1);
      mask = static_cast<const Mask*>(a.mask) + image % a.mask_images * a.mask_steps[0] + head * a.mask_steps[1] +
             there * a.mask_steps[2];
    }
  }
};

/// A score with its mask.
__device__ inline float masked_score(const Arguments& a, float score, float mask) {
  constexpr float log2e = 1.4426950408889634f;
  return fmaf(mask, log2e, score * a.scale);
}

/// Adds the mask to scores of two rows, of which a lane has two columns of every eight, the first of them `key`. Those of
/// keys that there are not stay as they are. A mask that both rows share is read once.
template <typename Mask, int scores>
__device__ inline void add_mask(const Arguments& a, const ScoreRow<Mask> (&row)[2], int key, float (&score)[scores][4]) {
  const bool shared = row[0].mask == row[1].mask;
  const bool whole = a.mask_steps[3] == 1 && key + 8 * scores <= a.keys &&
                     (reinterpret_cast<std::uintptr_t>(row[0].mask) | reinterpret_cast<std::uintptr_t>(row[1].mask)) %
                             (2 * sizeof(Mask)) == 0;
  if (whole && shared) {
#pragma unroll
    for (int j = 0; j < scores; ++j) {
      float mask[2];
      portable::load_lanes<2>(row[0].mask + key + 8 * j, mask);
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] = masked_score(a, score[j][i], mask[i % 2]);
    }
  } else if (whole) {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float mask[2];
        portable::load_lanes<2>(row[r].mask + key + 8 * j, mask);
#pragma unroll
        for (int i = 0; i < 2; ++i) score[j][2 * r + i] = masked_score(a, score[j][2 * r + i], mask[i]);
      }
  } else {
    const int step = static_cast<int>(a.mask_steps[3]);
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + 8 * j + i % 2;
        if (at < a.keys) score[j][i] = masked_score(a, score[j][i], static_cast<float>(row[i / 2].mask[at * step]));
      }
  }
}

/// What is known of two rows, the second of them eight below the first, of which a lane has some columns.
struct TwoRows {
  float most[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  // of this lane's columns
};

/// Scores of two rows become powers, of the largest score of each row so far. A lane has two columns of every eight, the
/// first of them `key`, as tensor-core instructions leave sums. Leaves in `shrink` what all that was summed up before must
/// be multiplied with. Where no key is hidden, one power of `every` (0: none) is computed by products: powers of two take
/// a multiprocessor as long as products of heads of 64 elements. Polynomials know no NaN, so the largest score does then.
template <typename Mask, int every = 0, int scores>
__device__ inline void soften(const Arguments& a, int image, int head, int query, int key, float (&score)[scores][4],
                              TwoRows& rows, float (&shrink)[2]) {
  constexpr bool masked = ScoreRow<Mask>::masked;
  const auto of_two = [](float a, float b) { return every > 0 ? larger_or_nan(a, b) : larger(a, b); };
  const ScoreRow<Mask> both[2] = {{a, image, head, query}, {a, image, head, query + 8}};
  if constexpr (masked) add_mask(a, both, key, score);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Behind the end of the row keys are hidden.
    const bool hides = key - static_cast<int>(threadIdx.x) % 4 * 2 + 8 * scores > both[r].end;
    if (hides) {
#pragma unroll
      for (int j = 0; j < scores; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (key + 8 * j + i >= both[r].end) score[j][2 * r + i] = -INFINITY;
    }
    float now = rows.most[r];
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) now = of_two(now, score[j][2 * r + i]);
    now = largest_of_row(now, of_two);
    // Without a mask scores are scaled with what is subtracted, in one instruction.
    const float scale = masked ? 1.0f : a.scale, less = subtracted(now) * scale;
    shrink[r] = power_of_two(fmaf(rows.most[r], scale, -less));
    rows.most[r] = now;
    float sum[2] = {rows.sum[r] * shrink[r], 0.0f};
    const auto take_powers = [&](auto&& power) {
#pragma unroll
      for (int j = 0; j < scores; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = score[j][2 * r + i];
          x = power(fmaf(x, scale, -less), 2 * j + i);
          sum[i] += x;
        }
    };
    if (hides && !masked) {
      // Not the same instruction: one piece of code for both would be mixed with that of the other row, and there are not
      // registers enough for two.
      take_powers([](float x, int) { return any_power_of_two(x); });
    } else {
      take_powers([](float x, int i) {
        return every > 0 && i % (every > 0 ? every : 1) == every - 1 ? power_by_products(x) : power_of_two(x);
      });
    }
    rows.sum[r] = sum[0] + sum[1];
  }
}

/// Two rows of results times a number each.
template <int results>
__device__ inline void times(float (&result)[results][4], const float (&factor)[2]) {
#pragma unroll
  for (int j = 0; j < results; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) result[j][i] *= factor[i / 2];
}

/// Sixteen columns of powers as a left factor of 16 rows: they lie as the sums that they were.
template <typename Element, int scores>
__device__ inline void left_factor(const float (&power)[scores][4], int step, std::uint32_t (&left)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&x)[4] = power[2 * step + i / 2];
    left[i] = portable::paired<Element>(x[i % 2 * 2], x[i % 2 * 2 + 1]);
  }
}

/// A warp's 16 rows of results, through shared memory that is its own (rows `pitch` halves apart), to those rows from
/// `first_row` on that there are.
template <typename Element, int columns, int access, int pitch, int results>
__device__ inline void store_rows(const Arguments& a, const float (&result)[results][4], Half* to, Half* y,
                                  int first_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int j = 0; j < results; ++j)
      *reinterpret_cast<std::uint32_t*>(to + (8 * r + lane / 4) * pitch + 8 * j + lane % 4 * 2) =
          portable::paired<Element>(result[j][2 * r], result[j][2 * r + 1]);
  __syncwarp();
  constexpr int of_row = columns / access;
#pragma unroll
  for (int i = 0; i < (16 * of_row + 31) / 32; ++i) {
    const int part = 32 * i + lane, row = part / of_row, at = part % of_row * access;
    if (part < 16 * of_row && first_row + row < a.queries)
      *reinterpret_cast<portable::Lanes<Half, access>*>(y + (first_row + row) * a.y_rows.row + at) =
          *reinterpret_cast<const portable::Lanes<Half, access>*>(to + row * pitch + at);
  }
}

}  // namespace bolt::attention
