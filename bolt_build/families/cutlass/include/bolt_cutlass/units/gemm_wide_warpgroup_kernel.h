// launch_gemm on WGMMA, with results in fp32: a model's own, of which nothing is to be converted behind the product.
#pragma once

#include "bolt_cutlass/warpgroups/warpgroup.h"
#include "bolt_cutlass/plans/wide.h"

namespace bolt::cutlass_kernels {

/// y = stages(sums + bias). Rows may have any number of columns, which TMA's boxes of half precision do not take: words of
/// vocabularies are seldom a multiple of 8. Straight from registers four threads would write 32 bytes, which are parts of two
/// sectors where rows begin between them: an H100 took twice as long. So a warp brings 16 rows of a box to shared memory of its
/// own, and stores them row by row.
template <int m, int n, bool cooperative, typename Stages, int teams>
struct WideStore : PartialStore<m, n, cooperative> {
  using Base = PartialStore<m, n, cooperative>;
  using typename Base::LoadPipeline;
  using typename Base::LoadPipelineState;
  static constexpr int width = n % 32 == 0 ? 32 : 16, tall = 16, pitch = width + 8;  // in banks of their own
  static constexpr int warps = 4 * sharing(m, cooperative) * teams, below = 64 * sharing(m, cooperative);
  static_assert(n % width == 0);

  struct Arguments : Base::Arguments {
    const float* bias;
    Stages stages;
    int y_row;
  };
  using Params = Arguments;
  struct TensorStorage : Base::TensorStorage {
    alignas(16) float rows[warps][tall][pitch];
  };

  template <typename Problem>
  static Params params(const Problem& problem, const Arguments& a) {
    Params found = a;
    if (found.y_row == 0) found.y_row = cute::get<1>(problem);
    return found;
  }
  CUTLASS_DEVICE static void ask_ahead(const Params& params, int first, int columns) {
    ask_for<n>(params.bias, first, columns);
  }

  CUTLASS_DEVICE WideStore(const Params& params, TensorStorage& storage) : Base(params, storage), params_(params) {}

  template <typename Problem, typename At, typename Sums, typename Early>
  CUTLASS_DEVICE LoadPipelineState store(LoadPipeline, LoadPipelineState wait, const Problem& problem, const At& at,
                                         const Sums& sums, const Early&, int thread, TensorStorage& storage) {
    const int rows = cute::get<0>(problem), columns = cute::get<1>(problem);
    const Fragment fragment(thread);
    // The first warpgroup only loads.
    float(&box)[tall][pitch] = storage.rows[static_cast<int>(threadIdx.x) / 32 - 4];
    const int row = cute::get<0>(at) * m + fragment.warpgroup * 64 + fragment.warp * tall;
    const bool whole = params_.y_row % 4 == 0 && columns % 4 == 0;
#pragma unroll
    for (int j = 0; j < n / width; ++j) {
      const int column = cute::get<1>(at) * n + j * width;
      if (column >= columns) break;
      float2 bias[width / 8];
#pragma unroll
      for (int q = 0; q < width / 8; ++q) bias[q] = bias_of(column + q * 8 + fragment.column(), columns);
#pragma unroll
      for (int i = 0; i < m / below; ++i) {
        __syncwarp();  // what was there is stored
#pragma unroll
        for (int q = 0; q < width / 8; ++q) {
          const int first = column + q * 8 + fragment.column(), channel[] = {min(first, columns - 1), min(first + 1, columns - 1)};
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float* const own = sums.data() + i * (n / 2) + (j * (width / 8) + q) * 4 + half * 2;
            *reinterpret_cast<float2*>(&box[fragment.lane / 4 + half * 8][q * 8 + fragment.column()]) =
                make_float2(params_.stages(own[0] + bias[q].x, 0.0f, channel[0]),
                            params_.stages(own[1] + bias[q].y, 0.0f, channel[1]));
          }
        }
        __syncwarp();
        if (whole) {
          store_rows<4>(box, fragment.lane, row + i * below, rows, column, columns);
        } else {
          store_rows<1>(box, fragment.lane, row + i * below, rows, column, columns);
        }
      }
    }
    return wait;
  }

 private:
  CUTLASS_DEVICE float2 bias_of(int column, int columns) const {
    const bool first = params_.bias != nullptr && column < columns, second = first && column + 1 < columns;
    return make_float2(first ? __ldg(params_.bias + column) : 0.0f, second ? __ldg(params_.bias + column + 1) : 0.0f);
  }

  /// A warp's rows, `lanes` columns a thread.
  template <int lanes>
  CUTLASS_DEVICE void store_rows(const float (&box)[tall][pitch], int lane, int row, int rows, int column, int columns) const {
    constexpr int beside = width / lanes < 32 ? width / lanes : 32, at_once = 32 / beside;
    const int x = lane % beside * lanes, y = lane / beside;
    float* const to = params_.sums + static_cast<std::int64_t>(row) * params_.y_row + column + x;
#pragma unroll
    for (int down = 0; down < tall; down += at_once) {
      if (row + down + y >= rows || column + x >= columns) continue;
      float* const place = to + static_cast<std::int64_t>(down + y) * params_.y_row;
      if constexpr (lanes == 4) {
        *reinterpret_cast<float4*>(place) = *reinterpret_cast<const float4*>(&box[down + y][x]);
      } else {
        *place = box[down + y][x];
      }
    }
  }

  const Params& params_;
};

template <int m, int n, int k, bool cooperative, typename Stages, int teams, typename Element>
struct StoreOf<m, n, k, cooperative, Wide<Stages>, teams, Element> {
  using Type = WideStore<m, n, cooperative, Stages, teams>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Wide<Stages>& wide) {
    return {{static_cast<float*>(a.y)}, a.bias, wide.stages, a.y_row};
  }
};

}  // namespace bolt::cutlass_kernels

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
