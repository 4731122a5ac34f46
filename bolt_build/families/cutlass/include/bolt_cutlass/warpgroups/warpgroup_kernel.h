// Persistent kernels of WGMMA: one warp keeps TMA loading factors, another the
// residual, and two warpgroups multiply and store. Written out over CUTLASS's instructions, barriers and pipelines: its
// own kernels and mainloops say the same in tensor algebra, which takes the compiler four times as long.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/warpgroups/sharing.h"
#include "bolt_cutlass/warpgroups/warpgroup_launch.h"
#include "bolt_cutlass/warpgroups/warpgroup_order.h"
#include "bolt_cutlass/warpgroups/warpgroup_products.h"
#include "bolt_cutlass/warpgroups/warpgroup_roles.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"

#if defined(__CUDA_ARCH__) && !defined(CUTE_ARCH_MMA_SM90A_ENABLED)
#error "these kernels' instructions are those of sm_90a alone"
#endif

namespace bolt::cutlass_kernels {

/// sums[rows, columns] = x[rows, depth] * weights[columns, depth] in tiles of m x n, `k` of the depth a step, and
/// `Store` of every tile. `Loads` knows where the factors lie; a stage of the pipeline is one step, and `stages` of them
/// are loaded ahead. A team computes a tile: one warpgroup, or two or three (`cooperative`: sharing.h), each its part of
/// the rows. Two `teams` take tiles in turns, so that one multiplies while the other stores, or both store. Blocks of a
/// cluster load together what they have in common. `Products` says how a step is multiplied: with both factors in shared
/// memory, unless said.
///
/// One team of one warpgroup (`single`) has half a multiprocessor, so that the next kernel's blocks find room beside those of
/// this one: they load their weights, and ask for the rest of them to be brought to L2, while this one still computes.
template <typename Loads, typename Store, int m, int n, int k, bool cooperative, int cluster_m, int cluster_n,
          int stages, typename Products = SharedProducts<m, n, k, cooperative>, int teams = cooperative ? 1 : 2>
struct WarpgroupKernel {
  using ClusterShape = cute::Shape<cute::Int<cluster_m>, cute::Int<cluster_n>, cute::Int<1>>;
  using Order = TileOrder<cluster_m, cluster_n>;
  using Problem = cute::Shape<int, int, int, int>;
  using Pipeline = ::cutlass::PipelineTmaAsync<stages>;
  using PipelineState = ::cutlass::PipelineState<stages>;
  static constexpr int warpgroups = Products::warpgroups, deep = Products::deep;  // that share a tile, and of them its depth
  using Roles = WarpgroupRoles<Pipeline, Store, m, n, warpgroups, teams, Products::stage_bytes, deep>;
  static constexpr bool stores_in_turns = Roles::stores_in_turns;
  using Turns = typename Roles::Turns;
  using AfterFactors = typename Roles::AfterFactors;

  static constexpr bool single = is_single(cooperative, teams);
  static constexpr int MaxThreadsPerBlock = 128 * (1 + warpgroups * teams), MinBlocksPerMultiprocessor = single ? 2 : 1;
  static constexpr unsigned cluster_x = cluster_m, cluster_y = cluster_n;
  // What loads needs few registers, and leaves the others more.
  static constexpr int multiplying = warpgroups * teams;
  static constexpr bool many_sums = m * n / (128 * warpgroups) > 128;
  static constexpr int loading_registers = many_sums ? 24 : multiplying > 2 ? 32 : 40;
  static constexpr int registers =
      multiplying == 4 ? 112 : multiplying == 3 ? 160 : single ? 216 : many_sums ? 240 : 232;
  using Registers = DividedRegisters<multiplying, loading_registers, registers, MinBlocksPerMultiprocessor>;
  // Whether the bias of a tile is loaded in front of its products.
  static constexpr bool early = single || (deep == 1 && has_room_for_bias<Store, n>(m * n / (128 * warpgroups),
                                                                                    Products::taken, registers));
  static constexpr int width = FactorShape<k>::width, parts = FactorShape<k>::parts;
  static_assert(stages >= 3, "LEAST_STAGES of wgmma.py");

  struct Arguments {
    typename Loads::Arguments loads;
    typename Store::Arguments store;
    int rows, columns, steps, slices;
    int swizzle, along;
  };
  struct Params {
    typename Loads::Params loads;
    typename Store::Params store;
    Order order;
    int multiprocessors;
    int rows, columns, steps, slices;
  };
  using Factors = typename Products::template Factors<stages>;
  struct SharedStorage {
    Factors factors;
    typename Store::TensorStorage store;
    alignas(16) typename Pipeline::SharedStorage pipeline;
    typename Roles::SharedStorage roles;
  };
  static constexpr int SharedStorageSize = sizeof(SharedStorage);

  /// What the kernel is launched with. Throws std::runtime_error.
  static Params params(const Arguments& a) {
    const Problem problem = cute::make_tuple(a.rows, a.columns, a.steps * k, a.slices);
    const int apart = Store::apart(a.store, m);
    return {Loads::params(a.loads),
            Store::params(problem, a.store),
            Order::of((a.rows + apart - 1) / apart, (a.columns + n - 1) / n, a.slices, a.swizzle, a.along),
            resident_blocks<WarpgroupKernel>(),
            a.rows,
            a.columns,
            a.steps,
            a.slices};
  }
  static dim3 get_grid_shape(const Params& params) { return params.order.grid(params.multiprocessors); }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock); }

  CUTLASS_DEVICE void operator()(const Params& params, char* memory) {
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int warp = ::cutlass::canonical_warp_idx_sync(), warpgroup = warp / 4;
    if (warp == 0 && cute::elect_one_sync()) {
      Loads::prefetch(params.loads);
      Store::prefetch_tma_descriptors(params.store);
    }
    Pipeline pipeline(shared.pipeline, Roles::pipeline_params(warp), ClusterShape{});
    LoadPipeline residuals(shared.roles.residual, Roles::residual_params(params.store, warp));
    Turns turns = Roles::turns(shared.roles, warpgroup);
    AfterFactors after_factors = Roles::after_factors(shared.roles, warp);
    Store store(params.store, shared.store);
    // Barriers are there for whoever arrives at them.
    if constexpr (Order::together > 1) {
      cute::cluster_arrive_relaxed();
      cute::cluster_wait();
    } else {
      __syncthreads();
    }

    // What the next kernel does before it waits, its weights' loads above all, costs this one nothing.
    let_next_kernel_begin();
    if (warpgroup == 0) {
      Registers::load();
      if (warp == 0)
        load_factors(params, shared.factors, pipeline, after_factors);
      else if (warp == 1 && params.order.first() < params.order.tiles) {
#pragma unroll
        for (int part = 0; part < deep; ++part)
          Store::ask_ahead(params.store, params.order.place(params.order.first()).column * n + part * (n / deep),
                           params.columns);
      }
      else if (warp == 2 && Store::reads_residual)
        Roles::template load_residuals<WarpgroupKernel>(params, shared.store, store, residuals, after_factors);
    } else {
      Registers::compute();
      compute(params, shared, store, pipeline, residuals, turns, warpgroup);
    }
  }

  CUTLASS_DEVICE static Problem problem(const Params& params) {
    return cute::make_tuple(params.rows, params.columns, params.steps * k, params.slices);
  }

 private:
  using LoadPipeline = typename Store::LoadPipeline;
  using LoadPipelineState = typename Store::LoadPipelineState;

  using Sums = typename Products::Sums;

  /// The tile that this block computes in a round; none from `tiles` on.
  CUTLASS_DEVICE static unsigned tile_of(const Params& params, unsigned round) {
    return params.order.first() + round * (gridDim.x * gridDim.y);
  }

  /// One warp: factors of every tile of the block, step by step. Of what blocks of a cluster have in common each loads
  /// its part for all. No kernel in front has written weights, so those of the first steps are asked for before it has
  /// finished.
  CUTLASS_DEVICE void load_factors(const Params& params, Factors& factors, Pipeline& pipeline, AfterFactors& after_factors) {
    PipelineState state = ::cutlass::make_producer_start_state<Pipeline>();
    const int own_m = cluster_m == 1 ? 0 : static_cast<int>(blockIdx.x) % cluster_m;
    const int own_n = cluster_n == 1 ? 0 : static_cast<int>(blockIdx.y) % cluster_n;
    constexpr int rows = m / cluster_n, columns = n / cluster_m;
    const auto all_n = static_cast<std::uint16_t>(((1 << cluster_n) - 1) << own_m * cluster_n);
    const auto all_m = static_cast<std::uint16_t>(((1 << cluster_m) - 1) << own_n * cluster_m);
    static_assert(cluster_m == 1 || cluster_n == 1, "the blocks of a row of a cluster would lie apart in the masks");
    const auto steps_of = [&](const TilePlace& place) {
      const int row = place.row * Store::apart(params.store, m);
      return typename Loads::Steps(params.loads, row + own_n * rows, place.column * n + own_m * columns, place.slice,
                                   params.steps);
    };
    const auto load_x = [&](const typename Loads::Steps& steps, const PipelineState& to) {
      std::uint64_t* const barrier = pipeline.producer_get_barrier(to);
#pragma unroll
      for (int part = 0; part < parts; ++part)
        steps.template x<(cluster_n > 1)>(barrier, all_n, factors.x[to.index()][part][own_n * rows], part * width);
      if constexpr (Products::has_table) steps.table(barrier, &factors.tables[to.index()]);
    };
    const auto load_weights = [&](const typename Loads::Steps& steps, const PipelineState& to) {
      std::uint64_t* const barrier = pipeline.producer_get_barrier(to);
#pragma unroll
      for (int part = 0; part < parts; ++part)
        steps.template weights<(cluster_m > 1)>(barrier, all_m, factors.weights[to.index()][part][own_m * columns],
                                                part * width);
    };
    unsigned round = 0, tile = tile_of(params, round);
    // Steps of the first tile whose weights are on their way.
    int loaded = tile >= params.order.tiles ? 0 : params.steps < stages ? params.steps : stages;
    if (loaded > 0 && cute::elect_one_sync()) {
      typename Loads::Steps steps = steps_of(params.order.place(tile));
      PipelineState ahead = state;
#pragma unroll 1
      for (int step = 0; step < loaded; ++step) {
        pipeline.producer_acquire(ahead);
        load_weights(steps, ahead);
        steps.next();
        ++ahead;
      }
      if constexpr (single) {
#pragma unroll 1
        for (int step = loaded; step < params.steps; ++step) {
#pragma unroll
          for (int part = 0; part < parts; ++part) steps.weights_ahead(part * width);
          steps.next();
        }
      }
    }
    __syncwarp();
    wait_for_kernel_in_front();
    bool first = true;
    for (; tile < params.order.tiles; tile = tile_of(params, ++round)) {
      if (cute::elect_one_sync()) {
        typename Loads::Steps steps = steps_of(params.order.place(tile));
        PipelineState ahead = state;
#pragma unroll 1
        for (int step = 0; step < params.steps; ++step) {
          if (step >= loaded) pipeline.producer_acquire(ahead);
          load_x(steps, ahead);
          if (step >= loaded) load_weights(steps, ahead);
          steps.next();
          ++ahead;
        }
      }
      loaded = 0;
      state.advance(params.steps);
      __syncwarp();
      if (first) after_factors.arrive();
      first = false;
    }
    // No block of a cluster ends while another may still tell it that a stage is free.
    if (cute::elect_one_sync()) pipeline.producer_tail(state);
  }

  /// The teams: sums of every tile of the block, and their store.
  CUTLASS_DEVICE void compute(const Params& params, SharedStorage& shared, Store& store, Pipeline& pipeline,
                              LoadPipeline& residuals, Turns& turns, int warpgroup) {
    const int team = (warpgroup - 1) / warpgroups, part = (warpgroup - 1) % warpgroups;
    const int thread = static_cast<int>(threadIdx.x) - 128 - team * (128 * warpgroups);
    PipelineState state;
    LoadPipelineState residual;
    unsigned round = 0;
    if (team == 1) {
      // The other one has the first tile.
      ++round;
      state.advance(params.steps);
      residual.advance(Store::loads * deep);
    }
    if constexpr (deep > 1) residual.advance(Store::loads * part);
    for (unsigned tile = tile_of(params, round); tile < params.order.tiles; tile = tile_of(params, round += teams)) {
      Sums sums;
      if constexpr (early) store.prepare(params.columns, Roles::place(params.order.place(tile)), thread);
      turns.wait();
      Products::multiply(params.loads, params.order.place(tile).row, params.steps, shared.factors, pipeline, state, sums,
                         part);
      turns.arrive();
      Products::finish(pipeline, state, params.steps, sums);
      if constexpr (Products::completes) Products::complete(params.loads, params.order.place(tile).column * n, sums);
      state.advance(params.steps * teams);
      if constexpr (stores_in_turns) turns.wait();
      // A store may change the sums.
      const auto leave = [&](auto& of, int of_tile, int own) {
        residual = store.store(residuals, residual, problem(params), Roles::place(params.order.place(tile), of_tile), of,
                               std::bool_constant<early>{}, own, shared.store);
      };
      if constexpr (deep > 1) {
        auto own_columns = Products::added(shared.factors, sums, team, part);
        leave(own_columns, part, thread % 128);
      } else {
        leave(sums, 0, thread);
      }
      if constexpr (teams * deep > 1) residual.advance(Store::loads * (teams * deep - 1));
      if constexpr (stores_in_turns) turns.arrive();
    }
  }
};

}  // namespace bolt::cutlass_kernels
