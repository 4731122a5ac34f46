// Two warpgroups that share a tile along its depth: each has sums of its own part of every step's columns, and both together
// add them up.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/warpgroups/warpgroup_products.h"
#include "cutlass/arch/barrier.h"
#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// Through which a team's two warpgroups add up sums of 64 x n. A warpgroup gives away those of one half of the columns, and
/// keeps the other half, which it also stores. What a thread gives goes to the thread that has the same places in the other
/// warpgroup, 16 bytes at a time, so no two threads share a bank.
template <int n>
class DepthExchange {
 public:
  /// The first warpgroup (`part` is 0) gets the left half of the columns. All threads of both call it. `team` names the
  /// barrier: stores of tiles have the first four.
  CUTLASS_DEVICE TileSums<1, n / 2> added(const TileSums<1, n>& sums, int team, int part) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const auto barrier = static_cast<std::uint32_t>(4 + team);
    TileSums<1, n / 2> kept;
#pragma unroll
    for (int first = 0; first < half; first += at_once) {
#pragma unroll
      for (int i = 0; i < at_once; i += 4) {
        float given[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) given[j] = chosen(sums, first + i + j, part == 0);
        slots_[part][i / 4][thread] = make_float4(given[0], given[1], given[2], given[3]);
      }
      ::cutlass::arch::NamedBarrier::sync(256, barrier);
#pragma unroll
      for (int i = 0; i < at_once; i += 4) {
        const float4 taken = slots_[1 - part][i / 4][thread];
        const float others[] = {taken.x, taken.y, taken.z, taken.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
          kept.at[0][first + i + j] = chosen(sums, first + i + j, part != 0) + others[j];
      }
      // Both have read before either writes again.
      ::cutlass::arch::NamedBarrier::sync(256, barrier);
    }
    return kept;
  }

 private:
  /// One number of either half. Both are named, so that sums stay in registers.
  CUTLASS_DEVICE static float chosen(const TileSums<1, n>& sums, int which, bool right) {
    const float of_left = sums.at[0][which], of_right = sums.at[0][half + which];
    return right ? of_right : of_left;
  }

  static constexpr int half = n / 4;  // numbers of a thread
  static constexpr int at_once = half <= 16 ? half : half % 16 == 0 ? 16 : 12;
  static_assert(n % 32 == 0 && half % at_once == 0, "halves that TMA stores");
  float4 slots_[2][at_once / 4][128];
};

}  // namespace bolt::cutlass_kernels
