// What kernels of attention do with scores, whatever instructions make them.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "bolt_attention/bounds.h"
#include "bolt_attention/launch.h"
#include "bolt_attention/score_masks.h"
#include "bolt_portable/cuda/halves.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::attention {

/// 2^x, by the multiprocessor's own function: 2 units in the last place.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The same in other words. Where the compiler sees that both sides of a branch end alike it makes one piece of code of
/// them, for which registers did not suffice: products then waited for each other.
__device__ inline float worded_power_of_two(float x) {
  float y;
  asm("{ ex2.approx.ftz.f32 %0, %1; }" : "=f"(y) : "f"(x));
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

/// What a row is divided by, inverted: within a unit in the last place. Of a row of hidden keys the sum is zero and so are
/// its products.
__device__ inline float share_of(float sum, bool safe) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum));
  return safe && sum == 0.0f ? 0.0f : inverse;
}

/// The sum of a row's powers, whose scores less `most` they are of, with the power of the sink of `query` and `head`: it needs
/// no place among scores, for it reads no value.
template <typename Seen>
__device__ inline float with_sink(const Arguments& a, int head, int query, float sum, float most) {
  if constexpr (std::is_void_v<SinkIn<Seen>>) {
    return sum;
  } else {
    constexpr float log2e = 1.4426950408889634f;
    const int at = head * a.sink_steps[0] + min(query, a.queries - 1) * a.sink_steps[1];
    const float sink = static_cast<float>(static_cast<const SinkIn<Seen>*>(a.sinks)[at]);
    return sum + power_of_two(fmaf(sink, log2e, -subtracted(most) * a.scale));
  }
}

/// What a kernel computes where some keys may be padding: without a mask, over as many keys as there are.
__device__ inline Arguments counted(const Arguments& a) {
  Arguments own = a;
  if (a.mask != nullptr) own.keys = min(a.keys, static_cast<int>(*static_cast<const std::int64_t*>(a.mask)));
  return own;
}

/// Which queries a block computes, of which head and image.
struct Place {
  int tile, head, image;

  __device__ Place(const Arguments& a, int block, int tiles) {
    // Of causal heads the last queries have most to do: they begin first.
    int which, before;
    if (a.longest_first) {
      before = a.by_pairs.quotient(block);
      which = block - before * a.batch * a.heads;
    } else {
      which = a.by_tiles.quotient(block);
      before = block - which * tiles;
    }
    tile = tiles - 1 - before;
    image = a.by_heads.quotient(which);
    head = which - image * a.heads;
  }
};

/// Products become tanh(score / c): what is left of 1 by a power and a reciprocal, within two units in the last place of 1.
template <typename Seen, int scores>
__device__ inline void cap(const Arguments& a, float (&score)[scores][4]) {
  if constexpr (capped<Seen>) {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float inverse;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(power_of_two(score[j][i] * a.cap_scale) + 1.0f));
        score[j][i] = fmaf(-2.0f, inverse, 1.0f);
      }
  }
}

/// What is known of two rows, the second of them eight below the first, of which a lane has some columns.
struct TwoRows {
  float most[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  // of this lane's columns
};

/// What two rows, the first of them `query`, are divided by, inverted.
template <typename Seen>
__device__ inline void shares_of(const Arguments& a, int head, int query, const TwoRows& rows, float (&share)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
    share[r] = share_of(with_sink<Seen>(a, head, query + 8 * r, sum_of_row(rows.sum[r]), rows.most[r]), a.safe);
}

/// Scores of two rows become powers, of the largest score of each row so far. A lane has two columns of every eight, as
/// tensor-core instructions leave sums. Leaves in `shrink` what all that was summed up before must be multiplied with. One
/// power of `every` (0: none) is computed by products: powers of two take a multiprocessor as long as products of heads of
/// 64 elements. Polynomials know no NaN, so the largest score does then; of hidden keys they leave 2^-126. `worded`: for
/// one side of a branch.
template <int every = 0, bool worded = false, int scores>
__device__ inline void soften(float scale, float (&score)[scores][4], TwoRows& rows, float (&shrink)[2]) {
  const auto of_two = [](float a, float b) { return every > 0 ? larger_or_nan(a, b) : larger(a, b); };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float now = rows.most[r];
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) now = of_two(now, score[j][2 * r + i]);
    now = largest_of_row(now, of_two);
    // Scores are scaled with what is subtracted, in one instruction.
    const float less = subtracted(now) * scale;
    shrink[r] = power_of_two(fmaf(rows.most[r], scale, -less));
    rows.most[r] = now;
    float sum[2] = {rows.sum[r] * shrink[r], 0.0f};
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = score[j][2 * r + i];
        x = fmaf(x, scale, -less);
        x = every > 0 && (2 * j + i) % (every > 0 ? every : 1) == every - 1 ? power_by_products(x)
            : worded                                                        ? worded_power_of_two(x)
                                                                            : power_of_two(x);
        sum[i] += x;
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
