// Products whose left factor's rows are normalised: their statistics are taken of what goes through registers to the
// tensor cores, and applied to the sums.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/warpgroups/halved_steps.h"
#include "bolt_cutlass/warpgroups/swizzle.h"
#include "bolt_cutlass/warpgroups/warpgroup_products.h"
#include "bolt_portable/cuda/halves.h"
#include "cute/arch/copy_sm75.hpp"

namespace bolt::cutlass_kernels {

/// Two neighbours, each x / 2 + `added`, rounded once.
template <typename Number>
CUTLASS_DEVICE std::uint32_t halved_and_added(std::uint32_t x, std::uint32_t added) {
  std::uint32_t found;
  if constexpr (std::is_same_v<Number, portable::f16>)
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(0x38003800u), "r"(added));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(0x3f003f00u), "r"(added));
  return found;
}

/// normalised(x) * weights, where weights are those of `FoldedNorm`: sums of a tile of m x n, k of the depth a step, all
/// steps whole.
///
/// With x' = (x - p) / 2 a row's results are f (x' - m') W', whatever the pivot p: m' is the mean of x',
/// f = 2 / sqrt(variance + epsilon). Sums of x' W', of x' and of its squares are taken in the same pass. What is lost to
/// cancellation grows with |m'| over the standard deviation of x'. So p is the mean of the first k numbers of a row where
/// that is more than twice their deviation, and |m'| is at most sqrt(depth / k) deviations then, whatever the row, and
/// half of a rounding of p. Otherwise p is 0, which leaves x as it was rounded, and |m'| is at most three times as much.
/// Halves keep the distance of any two numbers finite. By the mean of squares nothing is taken from x.
///
/// x' is rounded once, to what is multiplied, and statistics are of what was rounded, in fp32.
template <int m, int n, int k, bool cooperative, bool centred, typename Number>
struct PrenormProducts {
  using Shared = SharedProducts<m, n, k, cooperative, Number>;
  static constexpr int warpgroups = Shared::warpgroups, down = Shared::down, width = Shared::width, parts = Shared::parts;
  static constexpr int stage_bytes = Shared::stage_bytes, deep = 1;
  static constexpr bool has_table = false, completes = true;
  template <int stages>
  using Factors = typename Shared::template Factors<stages>;
  // Registers of half a step of the left factor, and of what is known of its rows. By the mean of squares the left factor is what
  // was fetched, and the compiler gives both the same registers, which products under way may still read.
  static constexpr int half = k / 32 * down * 4, statistics = (centred ? 6 : 2) * down;
  static constexpr bool ahead =
      centred && fetches_ahead(down * n / 2 + 2 * half + statistics, half, warpgroups * (cooperative ? 1 : 2));
  static constexpr int taken = 2 * half + statistics + (ahead ? half : 0);

  /// And of a thread's two rows in each 64 what it has seen of them.
  struct Sums : Shared::Sums {
    float total[down][2], squares[down][2];
  };

  /// As in SharedProducts, half a step at a time.
  template <typename Params, typename Loaded, typename Pipeline, typename State>
  CUTLASS_DEVICE static void multiply(const Params&, int, int steps, Loaded& factors, Pipeline& pipeline, State read,
                                      Sums& sums, int part_of_rows) {
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int row = part_of_rows * 64 + thread / 32 * 16;
    std::uint32_t pivots[down][2];
#pragma unroll
    for (int i = 0; i < down; ++i)
      sums.total[i][0] = sums.total[i][1] = sums.squares[i][0] = sums.squares[i][1] = 0.0f;
    if constexpr (centred) {
      pipeline.consumer_wait(read, pipeline.consumer_try_wait(read));
      find_pivots(factors.x[read.index()], row, lane, pivots);
    }
    Load<Loaded> load{factors, row, lane, pivots, sums};
    multiply_in_halves<Shared, Number, n, k, ahead>(factors, pipeline, read, steps, sums, load);
  }

  template <typename Pipeline, typename State>
  CUTLASS_DEVICE static void finish(Pipeline& pipeline, State release, int steps, Sums& sums) {
    Shared::finish(pipeline, release, steps, sums);
  }

  /// Applies the rows' statistics to the sums of a tile that begins at `column`.
  template <typename Params>
  CUTLASS_DEVICE static void complete(const Params& params, int column, Sums& sums) {
    const float scale = __ldg(params.terms + 2 * params.columns);
    float mean[down][2], factor[down][2];
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        mean[i][below] = centred ? of_row(sums.total[i][below]) * params.share : 0.0f;
        const float squares = of_row(sums.squares[i][below]) * params.share;
        const float spread = squares - mean[i][below] * mean[i][below];
        // Not `fmaxf`, which would hide what is no number.
        factor[i][below] = rsqrtf((centred ? 4.0f : 1.0f) * (spread < 0.0f ? 0.0f : spread) + params.epsilon) * scale;
      }
    }
    const int first = column + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int q = 0; q < n / 8; ++q) {
      float2 weights = make_float2(0.0f, 0.0f);
      if (centred && first + q * 8 < params.columns)
        weights = __ldg(reinterpret_cast<const float2*>(params.terms + params.columns + first + q * 8));
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int below = 0; below < 2; ++below) {
          float* const of = sums.at[i] + q * 4 + below * 2;
          of[0] = (of[0] - mean[i][below] * weights.x) * factor[i][below];
          of[1] = (of[1] - mean[i][below] * weights.y) * factor[i][below];
        }
      }
    }
  }

 private:
  using Stage = Half[parts][m][width];

  /// Of the four threads that have a row.
  CUTLASS_DEVICE static float of_row(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
  }

  /// Sixteen columns, from `column` on, of a thread's rows in the i-th 64 of the warpgroup's.
  CUTLASS_DEVICE static void read(const Stage& x, int row, int lane, int column, int i, LeftFragment& left) {
    const Half* const part = x[column / width][0];
    // Four 8 x 8 matrices: upper and lower, left first.
    const int matrix = lane / 8, chunk = column % width / 8 + matrix / 2;
    const int at = swizzled<width>(i * warpgroups * 64 + row + matrix % 2 * 8 + lane % 8, chunk);
    cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(part + at), left[0], left[1], left[2], left[3]);
  }

  /// Half of the mean of a step's columns, rounded, twice, and negative; 0 where it is no more than two deviations.
  CUTLASS_DEVICE static void find_pivots(const Stage& x, int row, int lane, std::uint32_t (&pivots)[down][2]) {
#pragma unroll
    for (int i = 0; i < down; ++i) {
      float total[2] = {0.0f, 0.0f}, squares[2] = {0.0f, 0.0f};
#pragma unroll
      for (int column = 0; column < k; column += 16) {
        LeftFragment left;
        read(x, row, lane, column, i, left);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const float2 both = portable::unpaired<Number>(left[q]);
          total[q % 2] += both.x + both.y;
          squares[q % 2] = fmaf(both.x, both.x, fmaf(both.y, both.y, squares[q % 2]));
        }
      }
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const float mean = of_row(total[below]) / k;
        // mean^2 <= 4 (mean of squares - mean^2), without a difference.
        const float pivot = 1.25f * mean * mean <= of_row(squares[below]) / k ? 0.0f : -0.5f * mean;
        pivots[i][below] = portable::paired<Number>(pivot, pivot);
      }
    }
  }

  /// Sixteen columns of a thread's rows.
  template <typename Loaded>
  struct Load {
    using Fetched = LeftFragment[down];
    const Loaded& factors;
    int row, lane;
    const std::uint32_t (&pivots)[down][2];
    Sums& sums;

    CUTLASS_DEVICE void fetch(int stage, int column, Fetched& to) const {
#pragma unroll
      for (int i = 0; i < down; ++i) read(factors.x[stage], row, lane, column, i, to[i]);
    }
    CUTLASS_DEVICE void prepare(const Fetched& from, LeftFragment (&left)[down]) const {
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          left[i][q] = centred ? halved_and_added<Number>(from[i][q], pivots[i][q % 2]) : from[i][q];
          const float2 both = portable::unpaired<Number>(left[i][q]);
          if constexpr (centred) sums.total[i][q % 2] += both.x + both.y;
          sums.squares[i][q % 2] = fmaf(both.x, both.x, fmaf(both.y, both.y, sums.squares[i][q % 2]));
          // Computed before the instructions that read it are begun.
          cute::warpgroup_fence_operand(left[i][q]);
        }
      }
    }
  };
};

}  // namespace bolt::cutlass_kernels
