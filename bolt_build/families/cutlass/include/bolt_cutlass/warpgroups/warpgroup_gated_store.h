// Two products in one: of 16 columns of a tile eight are a gate of the other eight, before anything is stored.
#pragma once

#include "bolt_cutlass/warpgroups/warpgroup.h"

namespace bolt::cutlass_kernels {

/// What is left of a thread's sums behind a gate.
template <int count>
struct GatedSums {
  float values[count];
  CUTLASS_DEVICE const float* data() const { return values; }
};
template <int count>
inline constexpr bool wants_bias<GatedSums<count>> = false;

/// y = after(first(a + bias) * second(b + bias), residual) of tiles of `n` columns, which are a's and b's, eight in turns. A
/// thread holds the same columns of all eights, so it has both sides of each of its results: those are the sums of a tile
/// half as wide, and all behind them is that tile's store.
template <int m, int n, bool cooperative, typename Gate, typename After, int stage, int teams, typename Element>
struct GatedStore : TileStore<m, n / 2, cooperative, After, stage, 0, teams, Element> {
  using Base = TileStore<m, n / 2, cooperative, After, stage, 0, teams, Element>;
  using typename Base::LoadPipeline;
  using typename Base::LoadPipelineState;
  using typename Base::TensorStorage;
  static constexpr bool biased = Gate::reads_bias, early = biased && Base::Boxes::single;
  static constexpr int pairs = n / 16;
  static_assert(n % 32 == 0, "stores go in boxes of 16 columns");

  struct Arguments {
    const float* bias;
    const void* residual;
    void* y;
    Gate gate;
    int y_row = 0;
    int residual_row = 0;
  };
  struct Params : Base::Params {
    const float* biases;
    Gate gate;
  };

  template <typename Problem>
  static Params params(const Problem& problem, const Arguments& a) {
    // The biases are added before the gate; what is behind it has none.
    return {Base::params(stored(problem), {nullptr, a.residual, a.y, a.gate.after, a.y_row, a.residual_row}), a.bias, a.gate};
  }
  CUTLASS_DEVICE static void ask_ahead(const Params& params, int first, int columns) {
    ask_for<n>(params.biases, first, columns);
  }

  CUTLASS_DEVICE GatedStore(const Params& params, TensorStorage& storage) : Base(params, storage), params_(params) {}

  /// The biases of a tile of a warpgroup that is alone in its block, before its products.
  template <typename At>
  CUTLASS_DEVICE void prepare(int columns, const At& at, int thread) {
    if constexpr (early) {
#pragma unroll
      for (int pair = 0; pair < pairs; ++pair) load_biases(columns, at, Fragment(thread), pair, early_[pair]);
    }
  }

  template <typename Problem, typename At, typename Sums, typename Early>
  CUTLASS_DEVICE LoadPipelineState store(LoadPipeline pipeline, LoadPipelineState wait, const Problem& problem, const At& at,
                                         const Sums& sums, const Early& whether, int thread, TensorStorage& storage) {
    GatedSums<Base::down * (n / 4)> results;
    const Fragment fragment(thread);
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      float2 loaded[2];
      if constexpr (biased && !early) load_biases(cute::get<1>(problem), at, fragment, pair, loaded);
      const float2* const bias = early ? early_[early ? pair : 0] : loaded;
#pragma unroll
      for (int i = 0; i < Base::down; ++i) {
        const float* const a = sums.data() + i * (n / 2) + pair * 8;
        float* const to = results.values + i * (n / 4) + pair * 4;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          float left = a[q], right = a[q + 4];
          if constexpr (biased) {
            left += q % 2 ? bias[0].y : bias[0].x;
            right += q % 2 ? bias[1].y : bias[1].x;
          }
          to[q] = params_.gate.gated(left, right);
        }
      }
    }
    return Base::store(pipeline, wait, stored(problem), at, results, whether, thread, storage);
  }

 private:
  template <typename Problem>
  CUTLASS_HOST_DEVICE static auto stored(const Problem& problem) {
    return cute::make_tuple(cute::get<0>(problem), cute::get<1>(problem) / 2);
  }

  /// Of eight columns of a, and eight of b, those that a thread has sums of.
  template <typename At>
  CUTLASS_DEVICE void load_biases(int columns, const At& at, const Fragment& fragment, int pair, float2 (&bias)[2]) const {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int c = cute::get<1>(at) * n + pair * 16 + side * 8 + fragment.column();
      const bool there = params_.biases != nullptr && c < columns;
      bias[side] = there ? __ldg(reinterpret_cast<const float2*>(params_.biases + c)) : make_float2(0.0f, 0.0f);
    }
  }

  const Params& params_;
  float2 early_[early ? pairs : 1][2];
};

template <int m, int n, int k, bool cooperative, typename First, typename Second, typename After, bool biased, int teams,
          typename Element>
struct StoreOf<m, n, k, cooperative, Gated<First, Second, After, biased>, teams, Element> {
  using Gate = Gated<First, Second, After, biased>;
  using Type = GatedStore<m, n, cooperative, Gate, After, (m + n) * k * 2, teams, Element>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Gate& gate) {
    return {a.bias, a.residual, a.y, gate, a.y_row, a.residual_row};
  }
};

}  // namespace bolt::cutlass_kernels
