// How warpgroups multiply the steps of a tile that the pipeline has loaded.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_cutlass/warpgroups/sharing.h"
#include "cute/arch/util.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/numeric_types.h"

namespace bolt::cutlass_kernels {

/// Two bytes in shared memory, an element of either type.
using Half = ::cutlass::half_t;

/// Columns of the depth that lie side by side in shared memory, at most 128 bytes; a step of `k` has several such parts.
template <int k>
struct FactorShape {
  static constexpr int width = k < 64 ? k : 64, parts = k / width;
  static_assert(k % width == 0 && width % 16 == 0);
};

/// A thread's sums of `down` times 64 rows, in the order of the instruction's.
template <int down, int n>
struct TileSums {
  float at[down][n / 2];
  CUTLASS_DEVICE const float* data() const { return at[0]; }
  CUTLASS_DEVICE void fence() {
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int j = 0; j < n / 2; ++j) cute::warpgroup_fence_operand(at[i][j]);
    }
  }
};

/// Both factors of a tile of m x n stay in shared memory, `k` of the depth a step: numbers of type `Element`, two bytes
/// each.
template <int m, int n, int k, bool cooperative, typename Element = portable::f16>
struct SharedProducts {
  static constexpr int warpgroups = sharing(m, cooperative);  // that share a tile
  static constexpr int down = m / (64 * warpgroups);
  static constexpr int width = FactorShape<k>::width, parts = FactorShape<k>::parts;
  static constexpr int stage_bytes = (m + n) * k * static_cast<int>(sizeof(Half));
  static constexpr int deep = 1;  // warpgroups that share the depth of a tile
  static constexpr int taken = 0;  // registers of a thread beside the sums
  static constexpr bool has_table = false, completes = false;
  static_assert(m % (64 * warpgroups) == 0);
  using Sums = TileSums<down, n>;

  template <int stages>
  struct Factors {
    alignas(1024) Half x[stages][parts][m][width];
    alignas(1024) Half weights[stages][parts][n][width];
  };

  /// Steps of a tile, one behind the other; the instructions of the last one are still under way at the end.
  template <typename Params, typename Loaded, typename Pipeline, typename State>
  CUTLASS_DEVICE static void multiply(const Params&, int, int steps, Loaded& factors, Pipeline& pipeline, State read,
                                      Sums& sums, int part_of_rows) {
    // The same in all threads of a warp, which the compiler does not see.
    const std::uint64_t x = describe_factor<width>(factors.x[0][0][__shfl_sync(0xffffffff, part_of_rows, 0) * 64]);
    const std::uint64_t weights = describe_factor<width>(factors.weights[0][0][0]);
    State release = read;
    sums.fence();
    step(pipeline, read, x, weights, sums, true);
    ++read;
    sums.fence();
#pragma unroll 1
    for (--steps; steps > 0; --steps) {
      sums.fence();
      step(pipeline, read, x, weights, sums, false);
      // Those of the step before have read their stage.
      cute::warpgroup_wait<1>();
      sums.fence();
      pipeline.consumer_release(release);
      ++read;
      ++release;
    }
    sums.fence();
  }

  /// Waits for the last step's instructions, and frees its stage. The sums are not read before.
  template <typename Pipeline, typename State>
  CUTLASS_DEVICE static void finish(Pipeline& pipeline, State release, int steps, Sums& sums) {
    release.advance(steps - 1);
    cute::warpgroup_wait<0>();
    sums.fence();
    pipeline.consumer_release(release);
  }

 private:
  template <typename Pipeline, typename State>
  CUTLASS_DEVICE static void step(Pipeline& pipeline, const State& read, std::uint64_t x, std::uint64_t weights,
                                  Sums& sums, bool fresh) {
    pipeline.consumer_wait(read, pipeline.consumer_try_wait(read));
    cute::warpgroup_arrive();
    // Descriptors count in 16 bytes.
    const std::uint64_t left = x + read.index() * (m * k / 8), right = weights + read.index() * (n * k / 8);
#pragma unroll
    for (int sixteen = 0; sixteen < k / 16; ++sixteen) {
      const int part = sixteen * 16 / width, column = sixteen * 16 % width;
#pragma unroll
      for (int i = 0; i < down; ++i)
        WarpgroupMma<n, Element>::shared(left + (part * m * width + i * warpgroups * 64 * width + column) / 8,
                                         right + (part * n * width + column) / 8, fresh && sixteen == 0, sums.at[i]);
    }
    cute::warpgroup_commit_batch();
  }
};

}  // namespace bolt::cutlass_kernels
