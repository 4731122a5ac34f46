// Who does what in a persistent kernel of WGMMA: one warp loads factors, another residuals, and teams of warpgroups multiply
// and store; and the barriers of their turns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"

namespace bolt::cutlass_kernels {

/// Of warpgroups that share every tile.
struct NoTurns {
  struct SharedStorage {};
  struct Params {
    std::uint32_t group, threads;
  };
  CUTLASS_DEVICE NoTurns(SharedStorage&, const Params&) {}
  CUTLASS_DEVICE void wait() {}
  CUTLASS_DEVICE void arrive() {}
};

/// `teams` of so many `warpgroups` compute tiles of m x n. `Pipeline` has stages of `stage_bytes`. Where `deep` of them share a
/// tile's depth, each stores as many columns of it: for `Store` those are tiles of their own, side by side.
template <typename Pipeline, typename Store, int m, int n, int warpgroups, int teams, int stage_bytes, int deep = 1>
struct WarpgroupRoles {
  using LoadPipeline = typename Store::LoadPipeline;
  static constexpr int multiplying = warpgroups * teams;
  // Both teams may store at once, each its own tile: then twice as many warps hide the epilogue's latencies. But a
  // residual's boxes are told apart by one bit. Where those of two tiles do not fit, one tile's come first.
  static constexpr bool stores_in_turns = !Store::holds_two_tiles || (deep > 1 && Store::reads_residual);
  static_assert(deep == 1 || Store::holds_two_tiles, "both halves of a tile are stored at once");
  // Teams in turns: first to multiply, then to store.
  using Turns = std::conditional_t<teams == 1, NoTurns, ::cutlass::OrderedSequenceBarrier<stores_in_turns ? 2 : 1, 2>>;
  // The residual is not asked for before the first tile's factors.
  using AfterFactors = ::cutlass::OrderedSequenceBarrier<1, 2>;
  static_assert(m * n / (128 * warpgroups / deep) <= (multiplying == 4 ? 64 : multiplying == 3 ? 96 : 192),
                "sums beside what else a thread keeps");

  struct SharedStorage {
    alignas(16) typename Store::PipelineStorage residual;
    alignas(16) typename Turns::SharedStorage turns;
    alignas(16) typename AfterFactors::SharedStorage after_factors;
  };

  CUTLASS_DEVICE static typename Pipeline::Params pipeline_params(int warp) {
    using Role = typename Pipeline::ThreadCategory;
    typename Pipeline::Params params;
    params.transaction_bytes = stage_bytes;
    params.role = warp == 0 ? Role::Producer : warp >= 4 ? Role::Consumer : Role::NonParticipant;
    params.is_leader = 1;  // one thread alone calls
    params.num_consumers = 128 * warpgroups;
    return params;
  }
  CUTLASS_DEVICE static typename LoadPipeline::Params residual_params(const typename Store::Params& store, int warp) {
    using Role = typename LoadPipeline::ThreadCategory;
    typename LoadPipeline::Params made;
    made.role = warp == 2 ? Role::Producer : warp >= 4 ? Role::Consumer : Role::NonParticipant;
    made.producer_arv_count = 32;
    made.consumer_arv_count = 128 * warpgroups / deep;
    if constexpr (Store::reads_residual) made.transaction_bytes = store.tma_transaction_bytes;
    return made;
  }
  CUTLASS_DEVICE static Turns turns(SharedStorage& shared, int warpgroup) {
    return {shared.turns, {static_cast<std::uint32_t>((warpgroup - 1) / warpgroups), 128 * warpgroups}};
  }
  CUTLASS_DEVICE static AfterFactors after_factors(SharedStorage& shared, int warp) {
    return {shared.after_factors, {warp == 0 ? 0u : 1u, 32}};
  }

  /// One warp: residuals of every tile of the block.
  template <typename Kernel>
  CUTLASS_DEVICE static void load_residuals(const typename Kernel::Params& params, typename Store::TensorStorage& memory,
                                            Store& store, LoadPipeline& residuals, AfterFactors& after_factors) {
    wait_for_kernel_in_front();
    typename Store::LoadPipelineState state = ::cutlass::make_producer_start_state<LoadPipeline>();
    bool first = true;
    for (unsigned tile = params.order.first(); tile < params.order.tiles; tile += gridDim.x * gridDim.y) {
      if (first) after_factors.wait();
      first = false;
#pragma unroll
      for (int part = 0; part < deep; ++part)
        state = store.load(residuals, state, place(params.order.place(tile), part), memory);
    }
    store.load_tail(residuals, state);
  }
  /// Of the `part`-th columns of a tile.
  CUTLASS_DEVICE static auto place(const TilePlace& place, int part = 0) {
    return cute::make_tuple(place.row, place.column * deep + part, 0, place.slice);
  }
};

}  // namespace bolt::cutlass_kernels
