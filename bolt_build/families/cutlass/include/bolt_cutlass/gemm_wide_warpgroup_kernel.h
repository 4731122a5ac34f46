// launch_gemm on WGMMA, with results in fp32: a model's own, of which nothing is to be converted behind the product.
#pragma once

#include "bolt_cutlass/warpgroup.h"
#include "bolt_cutlass/wide.h"

namespace bolt::cutlass_kernels {

/// y = stages(sums + bias), straight from registers: four neighbouring threads write the 32 bytes of a sector. Rows may have any
/// number of columns, which TMA's boxes of half precision do not take: words of vocabularies are seldom a multiple of 8.
template <int m, int n, bool cooperative, typename Stages>
struct WideStore : PartialStore<m, n, cooperative> {
  using Base = PartialStore<m, n, cooperative>;
  using typename Base::LoadPipeline;
  using typename Base::LoadPipelineState;
  using typename Base::StorePipeline;
  using typename Base::StorePipelineState;
  using typename Base::TensorStorage;

  struct Arguments : Base::Arguments {
    const float* bias;
    Stages stages;
    int y_row;
  };
  using Params = Arguments;

  template <typename Problem>
  static Params to_underlying_arguments(const Problem& problem, const Arguments& a, void*) {
    Params found = a;
    if (found.y_row == 0) found.y_row = cute::get<1>(problem);
    return found;
  }
  CUTLASS_DEVICE static void ask_ahead(const Params& params, int first, int columns) {
    ask_for<n>(params.bias, first, columns);
  }

  CUTLASS_DEVICE WideStore(const Params& params, TensorStorage& storage) : Base(params, storage), params_(params) {}

  template <typename Problem, typename Tile, typename At, typename Sums, typename Mma>
  CUTLASS_DEVICE cute::tuple<LoadPipelineState, StorePipelineState> store(
      LoadPipeline, LoadPipelineState load, StorePipeline, StorePipelineState store, const Problem& problem, Tile,
      const At& at, const Sums& sums, const Mma&, int thread, TensorStorage&, int = -1) {
    const int rows = cute::get<0>(problem), columns = cute::get<1>(problem);
    const Fragment fragment(thread);
    const int row = cute::get<0>(at) * m + fragment.warpgroup * 64 + fragment.row();
    const int column = cute::get<1>(at) * n + fragment.column();
    const float* const from = sums.data();
    constexpr int below = 64 * sharing(m, cooperative);
    const bool pairs = params_.y_row % 2 == 0;
#pragma unroll
    for (int j = 0; j < n / 8; ++j) {
      const int c = column + j * 8;
      if (c >= columns) break;
      const bool both = c + 1 < columns;
      const float2 bias = bias_of(c, both);
#pragma unroll
      for (int i = 0; i < m / below; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + i * below + half * 8, first = i * (n / 2) + j * 4 + half * 2;
          if (r >= rows) continue;
          float* const to = params_.sums + static_cast<std::int64_t>(r) * params_.y_row + c;
          const float2 y = make_float2(params_.stages(from[first] + bias.x, 0.0f),
                                       params_.stages(from[first + 1] + bias.y, 0.0f));
          if (pairs && both) {
            *reinterpret_cast<float2*>(to) = y;
          } else {
            to[0] = y.x;
            if (both) to[1] = y.y;
          }
        }
      }
    }
    return {load, store};
  }

 private:
  CUTLASS_DEVICE float2 bias_of(int column, bool both) const {
    if (params_.bias == nullptr) return make_float2(0.0f, 0.0f);
    return make_float2(__ldg(params_.bias + column), both ? __ldg(params_.bias + column + 1) : 0.0f);
  }

  const Params& params_;
};

template <int m, int n, int k, bool cooperative, typename Stages, int teams, typename Element>
struct StoreOf<m, n, k, cooperative, Wide<Stages>, teams, Element> {
  using Type = WideStore<m, n, cooperative, Stages>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Wide<Stages>& wide) {
    return {{static_cast<float*>(a.y)}, a.bias, wide.stages, a.y_row};
  }
};

}  // namespace bolt::cutlass_kernels

#include "bolt_cutlass/gemm_warpgroup_kernel.h"
