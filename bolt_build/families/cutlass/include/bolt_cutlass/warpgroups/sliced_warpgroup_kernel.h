// A kernel of WGMMA for products of few tiles: the blocks of a cluster share the depth of one tile, and add up their sums
// through the shared memory of each other. So no sums go through global memory, and no second kernel adds them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/warpgroups/cluster_exchange.h"
#include "bolt_cutlass/warpgroups/divided_registers.h"
#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/paired_stages.h"
#include "bolt_cutlass/shared_memory.h"
#include "bolt_cutlass/warpgroups/warpgroup_launch.h"
#include "bolt_cutlass/warpgroups/warpgroup_products.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"
#include "bolt_portable/cuda/launch.h"
#include "cutlass/pipeline/sm90_pipeline.hpp"

namespace bolt::cutlass_kernels {

/// What follows the sums of a product: as in GemmArguments, whose rows of y and of the residual are these.
template <typename Stages>
struct SlicedResult {
  const float* bias;
  const void* residual;
  void* y;
  int y_row, residual_row;
  Stages stages;
};

/// y = epilogue(x[rows, depth] * weights[columns, depth] + bias, residual) in tiles of 64 x n, `k` of the depth a step. The
/// `slices` blocks of a cluster have as many steps of a tile each, or one more, and the sums of all its rows. Each stores a
/// part of the rows: the others write what they have of these into its shared memory, where a barrier counts the bytes. It
/// adds slices up in their order.
///
/// One warp loads, one warpgroup multiplies as `Products` says, and two blocks share a multiprocessor.
template <typename Loads, int n, int k, int slices, int stages, typename Element, typename Stages,
          typename Products = SharedProducts<64, n, k, false, Element>>
struct SlicedKernel {
  static constexpr int m = 64, together = 8;  // columns that a thread stores at once
  using Pipeline = ::cutlass::PipelineTransactionAsync<stages>;
  using PipelineState = ::cutlass::PipelineState<stages>;
  using Sums = typename Products::Sums;
  static constexpr int parts = FactorShape<k>::parts, width = FactorShape<k>::width;
  static constexpr int MaxThreadsPerBlock = 256, MinBlocksPerMultiprocessor = 2;
  static constexpr unsigned cluster_x = slices, cluster_y = 1;
  using Registers = DividedRegisters<1, 40, 216, MinBlocksPerMultiprocessor>;
  static constexpr int most = (m + slices - 1) / slices;  // rows that a block stores
  static constexpr int apart = n + 8;  // numbers between rows of sums: those of a warp's fragment are in different banks
  static_assert(slices > 1 && slices <= 8 && n % 32 == 0 && stages >= 3);

  struct Arguments {
    typename Loads::Arguments loads;
    SlicedResult<Stages> result;
    int rows, columns, steps;
  };
  struct Params {
    typename Loads::Params loads;
    SlicedResult<Stages> result;
    int rows, columns, steps, across;
  };
  struct SharedStorage {
    typename Products::template Factors<stages> factors;
    alignas(16) float told[slices][most][apart];
    alignas(16) typename Pipeline::SharedStorage pipeline;
    alignas(16) std::uint64_t all_told;
  };
  static constexpr int SharedStorageSize = sizeof(SharedStorage);

  static Params params(const Arguments& a) {
    return {Loads::params(a.loads), a.result, a.rows, a.columns, a.steps, (a.columns + n - 1) / n};
  }
  static dim3 get_grid_shape(const Params& params) {
    return dim3(static_cast<unsigned>((params.rows + m - 1) / m * params.across * slices), 1, 1);
  }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock); }

  CUTLASS_DEVICE void operator()(const Params& params, char* memory) {
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int warp = ::cutlass::canonical_warp_idx_sync();
    if (warp == 0 && cute::elect_one_sync()) {
      Loads::prefetch(params.loads);
      ::cutlass::arch::ClusterTransactionBarrier::init(&shared.all_told, 1);
    }
    using Role = typename Pipeline::ThreadCategory;
    typename Pipeline::Params how;
    how.role = warp == 0 ? Role::Producer : warp >= 4 ? Role::Consumer : Role::NonParticipant;
    how.transaction_bytes = Products::stage_bytes;
    how.consumer_arv_count = 128;
    Pipeline pipeline(shared.pipeline, how);
    // Barriers are there for whoever arrives at them.
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
    let_next_kernel_begin();

    const Own own(params);
    if (warp < 4) {
      Registers::load();
      if (warp == 0) load_factors(params, shared, pipeline, own);
      if (warp == 1) ask_for<n>(params.result.bias, own.column, params.columns);
    } else {
      Registers::compute();
      Sums sums;
      const PipelineState state;
      Products::multiply(params.loads, own.row / m, own.steps, shared.factors, pipeline, state, sums, 0);
      Products::finish(pipeline, state, own.steps, sums);
      const int thread = static_cast<int>(threadIdx.x) - 128;
      tell(params, sums, shared, own, thread);
      store(params, shared, own, thread);
    }
  }

 private:
  /// What is this block's: the tile of its cluster, steps of it, and rows of it.
  struct Own {
    int rank, row, column;  // the tile's first ones
    int first, steps;
    int rows_each;  // that a block of the cluster stores, at most
    CUTLASS_DEVICE explicit Own(const Params& params) {
      const int tile = static_cast<int>(blockIdx.x) / slices;
      rank = static_cast<int>(blockIdx.x) % slices;
      row = tile / params.across * m;
      column = tile % params.across * n;
      first = rank * params.steps / slices;
      steps = (rank + 1) * params.steps / slices - first;
      rows_each = ((params.rows - row < m ? params.rows - row : m) + slices - 1) / slices;
    }
    /// Rows that this block stores, from `from` of the tile on.
    CUTLASS_DEVICE int from() const { return rank * rows_each; }
    CUTLASS_DEVICE int count(const Params& params) const {
      const int left = (params.rows - row < m ? params.rows - row : m) - from();
      return left < 0 ? 0 : left < rows_each ? left : rows_each;
    }
  };

  /// One warp. No kernel in front has written weights, so those of the first steps are asked for before it has finished, and
  /// the others brought to L2.
  CUTLASS_DEVICE static void load_factors(const Params& params, SharedStorage& shared, Pipeline& pipeline, const Own& own) {
    if (!cute::elect_one_sync()) return;
    const auto begin = [&] {
      typename Loads::Steps steps(params.loads, own.row, own.column, 0, 0);
      steps.skip(own.first);
      return steps;
    };
    const auto load_weights = [&](const typename Loads::Steps& steps, const PipelineState& to) {
      pipeline.producer_acquire(to);
      pipeline.producer_expect_transaction(to);
      pipeline.producer_commit(to);
#pragma unroll
      for (int part = 0; part < parts; ++part)
        steps.template weights<false>(pipeline.producer_get_barrier(to), 0, shared.factors.weights[to.index()][part][0],
                                      part * width);
    };
    const int loaded = own.steps < stages ? own.steps : stages;
    {
      auto steps = begin();
      PipelineState ahead = ::cutlass::make_producer_start_state<Pipeline>();
#pragma unroll 1
      for (int step = 0; step < own.steps; ++step, steps.next()) {
        if (step < loaded) {
          load_weights(steps, ahead);
          ++ahead;
        } else {
#pragma unroll
          for (int part = 0; part < parts; ++part) steps.weights_ahead(part * width);
        }
      }
    }
    wait_for_kernel_in_front();
    auto steps = begin();
    PipelineState state = ::cutlass::make_producer_start_state<Pipeline>();
#pragma unroll 1
    for (int step = 0; step < own.steps; ++step, steps.next(), ++state) {
      if (step >= loaded) load_weights(steps, state);
#pragma unroll
      for (int part = 0; part < parts; ++part)
        steps.template x<false>(pipeline.producer_get_barrier(state), 0, shared.factors.x[state.index()][part][0],
                                part * width);
      if constexpr (Products::has_table)
        steps.table(pipeline.producer_get_barrier(state), &shared.factors.tables[state.index()]);
    }
  }

  /// The warpgroup: its sums of every row to the block that stores the row. All that come here are counted.
  CUTLASS_DEVICE static void tell(const Params& params, const Sums& sums, SharedStorage& shared, const Own& own, int thread) {
    if (thread == 0)
      ::cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(
          &shared.all_told, static_cast<std::uint32_t>(own.count(params) * slices * n * static_cast<int>(sizeof(float))));
    const Fragment fragment(thread);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = fragment.row() + half * 8, to = row / own.rows_each, at = row % own.rows_each;
      if (own.row + row >= params.rows) continue;
      const RemotePlace place(&shared.told[own.rank][at][fragment.column()], &shared.all_told,
                              static_cast<std::uint32_t>(to));
#pragma unroll
      for (int j = 0; j < n / 8; ++j)
        place.tell(make_float2(sums.at[0][j * 4 + half * 2], sums.at[0][j * 4 + half * 2 + 1]), j * 8);
    }
  }

  /// The warpgroup: the rows of this block. A thread has eight neighbouring columns.
  CUTLASS_DEVICE static void store(const Params& params, SharedStorage& shared, const Own& own, int thread) {
    // What the residual is made by has finished, as the factor that came of it says; this makes it seen.
    wait_for_kernel_in_front();
    const auto& result = params.result;
    const int items = own.count(params) * (n / together);
    // Constants and the residual come while other blocks still tell. No block ends before they have.
    bool told = false;
    const auto wait_for_all = [&] {
      if (!told) ::cutlass::arch::ClusterTransactionBarrier::wait(&shared.all_told, 0);
      told = true;
    };
#pragma unroll 1
    for (int item = thread; item < items; item += 128) {
      const int at = item / (n / together), first = item % (n / together) * together, column = own.column + first;
      const portable::Index row = own.row + own.from() + at;
      if (column >= params.columns) continue;
      float total[together], other[together], bias[together];
      if (result.bias != nullptr) portable::load_lanes<together>(result.bias + column, bias);
      if constexpr (Stages::reads_residual)
        portable::load_lanes<together>(static_cast<const Element*>(result.residual) + row * result.residual_row + column,
                                       other);
      wait_for_all();
#pragma unroll
      for (int slice = 0; slice < slices; ++slice) {
        const float* const from = &shared.told[slice][at][first];
#pragma unroll
        for (int i = 0; i < together; i += 4) {
          const float4 some = *reinterpret_cast<const float4*>(from + i);
          const float values[] = {some.x, some.y, some.z, some.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) total[i + j] = slice == 0 ? values[j] : total[i + j] + values[j];
        }
      }
      std::uint32_t words[together / 2];
#pragma unroll
      for (int i = 0; i < together; i += 2) {
        float2 sum = make_float2(total[i], total[i + 1]);
        if (result.bias != nullptr) sum = make_float2(sum.x + bias[i], sum.y + bias[i + 1]);
        const float2 wide = Stages::reads_residual ? make_float2(other[i], other[i + 1]) : make_float2(0.0f, 0.0f);
        words[i / 2] = paired_result<Element>(result.stages, sum, wide, column + i);
      }
      *reinterpret_cast<uint4*>(static_cast<Element*>(result.y) + row * result.y_row + column) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
    wait_for_all();
  }
};

/// The kernel of a tile, with as many stages as half of a multiprocessor's shared memory has room for.
template <typename Loads, int n, int k, int slices, typename Element, typename Stages,
          typename Products = SharedProducts<64, n, k, false, Element>>
struct SlicedKernelOf {
  static constexpr int told = slices * ((64 + slices - 1) / slices) * (n + 8) * 4;
  static constexpr int stages = (shared_bytes_of(2) - told - 2048) / (Products::stage_bytes + 16);
  using Type = SlicedKernel<Loads, n, k, slices, stages, Element, Stages, Products>;
};

}  // namespace bolt::cutlass_kernels
