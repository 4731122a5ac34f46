// Stores of sums of slices as they are, and what is the same for stores of all kinds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/sharing.h"
#include "cute/int_tuple.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/pipeline/sm90_pipeline.hpp"

namespace bolt::cutlass_kernels {

/// What the kernels ask of every epilogue, and what is the same for all of them. `stages` are buffers of the residual.
template <int stages>
struct StoreBase {
  using StrideC = cute::Stride<std::int64_t, cute::_1, std::int64_t>;
  using StrideD = StrideC;
  using LoadPipeline = ::cutlass::PipelineTransactionAsync<stages>;
  using LoadPipelineState = ::cutlass::PipelineState<stages>;
  using PipelineStorage = typename LoadPipeline::SharedStorage;
  using StorePipeline = ::cutlass::PipelineTmaStore<2>;
  using StorePipelineState = ::cutlass::PipelineState<2>;

  template <typename Problem, typename Arguments>
  static std::size_t get_workspace_size(const Problem&, const Arguments&) {
    return 0;
  }
  /// Rows from a tile of so many to the next, of Arguments or Params.
  template <typename Given>
  CUTLASS_HOST_DEVICE static constexpr int apart(const Given&, int rows) {
    return rows;
  }
};

/// Where a thread's sums stand in its warpgroup's 64 rows: `row` and 8 below it, columns in pairs from `column` on,
/// every 8 columns.
struct Fragment {
  int warpgroup, warp, lane;
  CUTLASS_DEVICE explicit Fragment(int thread)
      : warpgroup(thread / 128), warp(thread % 128 / 32), lane(thread % 32) {}
  CUTLASS_DEVICE int row() const { return warp * 16 + lane / 4; }
  CUTLASS_DEVICE int column() const { return lane % 4 * 2; }
};

/// Sums of one slice of the depth, straight from registers: four neighbouring threads write the 32 bytes of a sector.
template <int m, int n, bool cooperative>
struct PartialStore : StoreBase<0> {
  using ElementC = void;
  using ElementD = float;
  static constexpr bool RequiresTransactionBytes = false;
  static constexpr bool holds_two_tiles = true;
  struct Arguments {
    float* sums;
  };
  using Params = Arguments;
  struct TensorStorage {};

  template <typename Problem>
  static Params to_underlying_arguments(const Problem&, const Arguments& a, void*) {
    return a;
  }
  template <typename Tile>
  CUTLASS_HOST_DEVICE static constexpr int get_load_pipe_increment(Tile) {
    return 1;
  }
  template <typename Tile>
  CUTLASS_HOST_DEVICE static constexpr int get_store_pipe_increment(Tile) {
    return 1;
  }
  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params&) {}
  CUTLASS_DEVICE static void ask_ahead(const Params&, int, int) {}
  template <typename At>
  CUTLASS_DEVICE void prepare(int, const At&, int) {}

  CUTLASS_DEVICE PartialStore(const Params& params, TensorStorage&) : params_(params) {}
  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  template <typename... Rest>
  CUTLASS_DEVICE LoadPipelineState load(LoadPipeline, LoadPipelineState state, const Rest&...) {
    return state;
  }
  CUTLASS_DEVICE LoadPipelineState load_tail(LoadPipeline, LoadPipelineState state) { return state; }

  template <typename Problem, typename Tile, typename At, typename Sums, typename Mma>
  CUTLASS_DEVICE cute::tuple<LoadPipelineState, StorePipelineState> store(
      LoadPipeline, LoadPipelineState load, StorePipeline, StorePipelineState store, const Problem& problem, Tile,
      const At& at, const Sums& sums, const Mma&, int thread, TensorStorage&, int = -1) {
    const int rows = cute::get<0>(problem), columns = cute::get<1>(problem);
    const Fragment fragment(thread);
    const int row = cute::get<0>(at) * m + fragment.warpgroup * 64 + fragment.row();
    const int column = cute::get<1>(at) * n + fragment.column();
    float* const to = params_.sums + static_cast<std::int64_t>(cute::get<3>(at)) * rows * columns;
    const float* const from = sums.data();
    constexpr int below = 64 * sharing(m, cooperative);
#pragma unroll
    for (int i = 0; i < m / below; ++i) {
#pragma unroll
      for (int j = 0; j < n / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + i * below + half * 8, c = column + j * 8, first = i * (n / 2) + j * 4 + half * 2;
          if (r < rows && c < columns)
            *reinterpret_cast<float2*>(to + static_cast<std::int64_t>(r) * columns + c) =
                make_float2(from[first], from[first + 1]);
        }
      }
    }
    return {load, store};
  }
  CUTLASS_DEVICE cute::tuple<LoadPipelineState, StorePipelineState> store_tail(
      LoadPipeline, LoadPipelineState load, StorePipeline, StorePipelineState store) {
    return {load, store};
  }

 private:
  const Params& params_;
};

}  // namespace bolt::cutlass_kernels
