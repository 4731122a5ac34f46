// Products whose left factor goes through registers on its way from shared memory to the tensor cores.
#pragma once

#include <cstdint>
#include <utility>

#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_cutlass/warpgroups/warpgroup_products.h"

namespace bolt::cutlass_kernels {

/// What a thread holds of sixteen columns of a left factor: two neighbouring columns of row `lane / 4`, the same 8 rows
/// below, and both again 8 columns further on.
using LeftFragment = std::uint32_t[4];

/// Whether a thread has registers to fetch half a step ahead: beside what it keeps, and addresses, `fetched` more. So many
/// warpgroups are `multiplying`.
constexpr bool fetches_ahead(int kept, int fetched, int multiplying) {
  return kept + fetched <= (multiplying <= 2 ? 176 : multiplying == 3 ? 124 : 84);
}

/// Sums of a tile over `steps` steps of depth `k`, half a step at a time: one half is prepared while the instructions of the
/// other one run. `Load` has what a thread reads of sixteen columns of its rows as `Fetched`, fetch(stage, column, fetched),
/// and prepare(fetched, fragments), one fragment for each 64 rows. The instructions of the last half are still under way at
/// the end. Where `deep` warpgroups share the depth, the columns of a step that this one has are the `own`-th of as many parts.
///
/// `ahead`: a half is fetched before the instructions of the half in front of the last are waited for, so that nobody waits for
/// shared memory afterwards. That takes registers.
template <typename Shared, typename Number, int n, int k, bool ahead = false, int deep = 1, typename Loaded, typename Pipeline,
          typename State, typename Sums, typename Load>
CUTLASS_DEVICE void multiply_in_halves(Loaded& factors, Pipeline& pipeline, State read, int steps, Sums& sums, Load& load,
                                       int own = 0) {
  constexpr int down = Shared::down, width = Shared::width, depths = k / deep / 32;
  static_assert(k % (32 * deep) == 0, "a step, or a warpgroup's part of it, has two halves");
  const int first = deep == 1 ? 0 : own * (k / deep);
  // Descriptors count in 16 bytes.
  const std::uint64_t weights =
      describe_factor<width>(factors.weights[0][0][0]) + (first / width * n * width + first % width) / 8;
  State release = read;
  typename Load::Fetched fetched[ahead ? depths : 1];
  LeftFragment left[2][depths][down];
  const auto fetch_ahead = [&](int half) {
    if constexpr (ahead) {
#pragma unroll
      for (int at = 0; at < depths; ++at) load.fetch(read.index(), first + (half * depths + at) * 16, fetched[at]);
    }
  };
  const auto keep = [](LeftFragment (&of)[depths][down]) {
#pragma unroll
    for (int at = 0; at < depths; ++at) {
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q) cute::warpgroup_fence_operand(of[at][i][q]);
      }
    }
  };
  const auto wait = [&] { pipeline.consumer_wait(read, pipeline.consumer_try_wait(read)); };
  if constexpr (ahead) wait();
  fetch_ahead(0);
  sums.fence();
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if constexpr (!ahead) wait();
    const std::uint64_t right = weights + read.index() * (n * k / 8);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int at = 0; at < depths; ++at) {
        if constexpr (!ahead) load.fetch(read.index(), first + (half * depths + at) * 16, fetched[0]);
        load.prepare(fetched[ahead ? at : 0], left[half][at]);
      }
      sums.fence();
      cute::warpgroup_arrive();
#pragma unroll
      for (int at = 0; at < depths; ++at) {
        const int column = (half * depths + at) * 16, part = column / width;
#pragma unroll
        for (int i = 0; i < down; ++i)
          WarpgroupMma<n, Number>::registers(left[half][at][i], right + (part * n * width + column % width) / 8,
                                             step == 0 && half == 0 && at == 0, sums.at[i]);
      }
      cute::warpgroup_commit_batch();
      if constexpr (ahead) {
        if (half == 0) {
          fetch_ahead(1);
        } else if (step + 1 < steps) {
          ++read;
          wait();
          fetch_ahead(0);
        }
      }
      // Those of the half before have read their registers and their stage. The compiler takes the registers for free as soon as
      // instructions that read them are begun, and would fetch into them.
      cute::warpgroup_wait<1>();
      sums.fence();
      if (half == 1) keep(left[0]);
      if (half == 0 && step > 0) {
        keep(left[1]);
        pipeline.consumer_release(release);
        ++release;
      }
    }
    if constexpr (!ahead) ++read;
  }
}

}  // namespace bolt::cutlass_kernels
