// Stores of sums of slices as they are, and what is the same for stores of all kinds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/warpgroups/sharing.h"
#include "cute/int_tuple.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/pipeline/sm90_pipeline.hpp"

namespace bolt::cutlass_kernels {

/// What the kernels ask of every epilogue, and what is the same for all of them. `stages` are buffers of the residual.
template <int stages>
struct StoreBase {
  using LoadPipeline = ::cutlass::PipelineTransactionAsync<stages>;
  using LoadPipelineState = ::cutlass::PipelineState<stages>;
  using PipelineStorage = typename LoadPipeline::SharedStorage;

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
  static constexpr bool reads_residual = false, holds_two_tiles = true;
  static constexpr int loads = 1;
  struct Arguments {
    float* sums;
  };
  using Params = Arguments;
  struct TensorStorage {};

  template <typename Problem>
  static Params params(const Problem&, const Arguments& a) {
    return a;
  }
  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params&) {}
  CUTLASS_DEVICE static void ask_ahead(const Params&, int, int) {}
  template <typename At>
  CUTLASS_DEVICE void prepare(int, const At&, int) {}

  CUTLASS_DEVICE PartialStore(const Params& params, TensorStorage&) : params_(params) {}
  template <typename At>
  CUTLASS_DEVICE LoadPipelineState load(LoadPipeline, LoadPipelineState state, const At&, TensorStorage&) {
    return state;
  }
  CUTLASS_DEVICE void load_tail(LoadPipeline, LoadPipelineState) {}

  template <typename Problem, typename At, typename Sums, typename Early>
  CUTLASS_DEVICE LoadPipelineState store(LoadPipeline, LoadPipelineState wait, const Problem& problem, const At& at,
                                         const Sums& sums, const Early&, int thread, TensorStorage&) {
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
    return wait;
  }

 private:
  const Params& params_;
};

}  // namespace bolt::cutlass_kernels
