// What becomes of the sums that WGMMA leaves where whole rows of the product are normalised before they are stored: several
// blocks own the columns of a row together and tell each other its statistics.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/plans/normed.h"
#include "bolt_cutlass/warpgroups/row_exchange.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"

namespace bolt::cutlass_kernels {

/// y = normalised(epilogue(sums + bias, residual)) * scale + shift, or epilogue(normalised(sums + bias) * scale + shift, residual)
/// where stages are `Behind`; in rows of several tiles of `n` columns, whose blocks tell each other their statistics by
/// `Exchange`. `keeps`: what is normalised is stored as well. `centred`: by mean and variance, otherwise by the mean of squares.
template <int m, int n, bool cooperative, bool centred, bool keeps, typename Stages, int stage, int teams,
          typename Element, typename Exchange,
          typename Boxes = StoreBoxes<n, sharing(m, cooperative), Stages::reads_residual, stage, Exchange::bytes, teams>>
struct NormStore : TileStore<m, n, cooperative, Stages, stage, Exchange::bytes, teams, Element, DenseRows, Boxes> {
  using Base = TileStore<m, n, cooperative, Stages, stage, Exchange::bytes, teams, Element, DenseRows, Boxes>;
  using typename Base::LoadPipeline;
  using typename Base::LoadPipelineState;
  using Base::down;
  using Base::reads_residual;
  using Base::warpgroups;
  using Base::width;
  static constexpr int boxes_across = Base::across;
  static constexpr bool behind = stands_behind<Stages>, reads_early = reads_residual && !behind;
  /// The residual of a whole tile comes to the boxes from which what is normalised is stored. A block's tiles are all of the
  /// same columns, whose constants then wait in shared memory: a thread has no registers for them beside many sums.
  static constexpr bool whole = reads_residual && Boxes::staged == 0;
  static_assert(!whole || !keeps || !behind, "a residual's box holds it until it is added");
  enum Constant { bias_of, scale_of, shift_of, constants };
  using Statistics = RowStatistics<centred>;

  struct Arguments {
    typename Base::Arguments tile;
    const float* scale;
    const float* shift;
    void* kept;
    float epsilon;
    typename Exchange::Arguments exchange;
  };
  struct Params : Base::Params {
    cute::TmaDescriptor kept;
    const float* scale;
    const float* shift;
    float epsilon;
    typename Exchange::Arguments exchange;
  };
  struct Constants {
    alignas(16) float constants[NormStore::constants][n];
  };
  struct NoConstants {};
  struct TensorStorage : Base::TensorStorage, Exchange::Storage, std::conditional_t<whole, Constants, NoConstants> {};

  template <typename Problem>
  static Params params(const Problem& problem, const Arguments& a) {
    const auto tile = Base::params(problem, a.tile);
    return {tile, keeps ? boxes<width>(a.kept, cute::get<0>(problem), cute::get<1>(problem)) : tile.y, a.scale, a.shift,
            a.epsilon, a.exchange};
  }
  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& params) {
    Base::prefetch_tma_descriptors(params);
    if constexpr (keeps) cute::prefetch_tma_descriptor(&params.kept);
  }

  CUTLASS_DEVICE static void ask_ahead(const Params& params, int first, int columns) {
    ask_for<n>(params.bias, first, columns);
    ask_for<n>(params.scale, first, columns);
    ask_for<n>(params.shift, first, columns);
  }

  CUTLASS_DEVICE NormStore(const Params& params, TensorStorage& storage) : Base(params, storage), params_(params) {
    if (threadIdx.x == 0) Exchange::begin(storage);
    if constexpr (whole) {
      const int first = static_cast<int>(blockIdx.y) % Exchange::tiles * n;
      for (int at = static_cast<int>(threadIdx.x); at < n; at += static_cast<int>(blockDim.x)) {
        storage.constants[bias_of][at] = params.bias == nullptr ? 0.0f : __ldg(params.bias + first + at);
        storage.constants[scale_of][at] = params.scale == nullptr ? 1.0f : __ldg(params.scale + first + at);
        storage.constants[shift_of][at] = params.shift == nullptr ? 0.0f : __ldg(params.shift + first + at);
      }
    }
  }

  /// The threads of a warpgroup (cooperative: of both): a tile from registers to memory. `sums` become what is normalised.
  template <typename Problem, typename At, typename Sums, typename Early>
  CUTLASS_DEVICE LoadPipelineState store(LoadPipeline pipeline, LoadPipelineState wait, const Problem&, const At& at,
                                         Sums& sums, const Early&, int thread, TensorStorage& storage) {
    const Fragment fragment(thread);
    const int own = static_cast<int>(threadIdx.x) / 128 - 1;
    const int row = cute::get<0>(at) * m + fragment.warpgroup * 64, column = cute::get<1>(at) * n;
    const bool leads = thread % 128 == 0;
    [[maybe_unused]] const LoadPipelineState begin = wait;
    const auto send = [&](const cute::TmaDescriptor& to, Half* place, int j, int i) {
      // Before TMA reads one box and writes the other.
      cute::tma_store_fence();
      Base::sync(own);
      if (leads) {
        cute::SM90_TMA_STORE_2D::copy(&to, place, column + j * width, row + i * warpgroups * 64);
        cute::tma_store_arrive();
      }
    };
#pragma unroll
    for (int j = 0; j < boxes_across; ++j) {
      [[maybe_unused]] float2 bias[whole ? 1 : width / 8];
      if constexpr (!whole) read(params_.bias, column + j * width + fragment.column(), 0.0f, bias);
#pragma unroll
      for (int i = 0; i < down; ++i) {
        Half* const place = !keeps  ? nullptr
                            : whole ? storage.loaded(wait.index(), fragment.warpgroup)
                                    : free_box(own, leads, storage);
        const Half* residual = nullptr;
        if constexpr (reads_early) {
          pipeline.consumer_wait(wait);
          residual = storage.loaded(wait.index(), fragment.warpgroup);
        }
#pragma unroll
        for (int pair = 0; pair < width / 16; ++pair) {
          float* const of = sums.at[i] + (j * (width / 8) + pair * 2) * 4;
          if constexpr (whole) {
            float2 plus[2];
            recall(storage, bias_of, j * width + pair * 16 + fragment.column(), plus);
            complete(fragment, of, plus, residual, place, pair);
          } else {
            complete(fragment, of, bias + pair * 2, residual, place, pair);
          }
        }
        if constexpr (reads_early && !whole) {
          cute::tma_store_fence();
          pipeline.consumer_release(wait);
        }
        if constexpr (reads_early) ++wait;
        if constexpr (keeps) send(params_.kept, place, j, i);
      }
    }
    float2 found[down][2];
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        found[i][half] = Statistics::template of<n / 4, 4>(
            [&](int at) { return sums.at[i][at / 2 * 4 + half * 2 + at % 2]; });
    }
    const ExchangePlace place{static_cast<int>(cute::get<0>(at)), static_cast<int>(cute::get<1>(at)), own, leads};
    exchange_(params_.exchange, fragment, place, params_.epsilon, [&] { Base::sync(own); }, storage, found);
    if constexpr (whole) {
      // Nobody reads a residual from a box any longer, nor TMA sums, before normalised ones take their place.
      if (keeps && leads) cute::tma_store_wait<0>();
      Base::sync(own);
    }
    [[maybe_unused]] LoadPipelineState box = begin;
#pragma unroll
    for (int j = 0; j < boxes_across; ++j) {
      [[maybe_unused]] float2 scale[whole ? 1 : width / 8], shift[whole ? 1 : width / 8];
      if constexpr (!whole) {
        read(params_.scale, column + j * width + fragment.column(), 1.0f, scale);
        read(params_.shift, column + j * width + fragment.column(), 0.0f, shift);
      }
#pragma unroll
      for (int i = 0; i < down; ++i) {
        Half* const place =
            whole ? storage.loaded(box.index(), fragment.warpgroup) : free_box(own, leads, storage);
        ++box;
        const Half* residual = nullptr;
        if constexpr (reads_residual && behind) {
          pipeline.consumer_wait(wait);
          residual = storage.loaded(wait.index(), fragment.warpgroup);
        }
#pragma unroll
        for (int pair = 0; pair < width / 16; ++pair) {
          const float* const of = sums.at[i] + (j * (width / 8) + pair * 2) * 4;
          if constexpr (whole) {
            float2 times[2], plus[2];
            recall(storage, scale_of, j * width + pair * 16 + fragment.column(), times);
            recall(storage, shift_of, j * width + pair * 16 + fragment.column(), plus);
            normalise(fragment, of, found[i], times, plus, residual, place, pair);
          } else {
            normalise(fragment, of, found[i], scale + pair * 2, shift + pair * 2, residual, place, pair);
          }
        }
        if constexpr (reads_residual && behind && !whole) {
          cute::tma_store_fence();
          pipeline.consumer_release(wait);
        }
        if constexpr (reads_residual && behind) ++wait;
        send(params_.y, place, j, i);
      }
    }
    if constexpr (whole) {
      // Behind the stores of the tile its boxes are free for the next residual.
      if (leads) cute::tma_store_wait<0>();
      Base::sync(own);
      LoadPipelineState free = begin;
#pragma unroll
      for (int each = 0; each < Base::loads; ++each) {
        pipeline.consumer_release(free);
        ++free;
      }
    }
    return wait;
  }

 private:
  /// A thread's columns of a 16 x 16 matrix, from `at` of the tile's on.
  CUTLASS_DEVICE static void recall(const TensorStorage& storage, Constant which, int at, float2 (&values)[2]) {
#pragma unroll
    for (int q = 0; q < 2; ++q) values[q] = *reinterpret_cast<const float2*>(&storage.constants[which][at + q * 8]);
  }

  /// A thread's columns of a box: pairs, eight apart.
  CUTLASS_DEVICE static void read(const float* from, int column, float otherwise, float2 (&values)[width / 8]) {
#pragma unroll
    for (int q = 0; q < width / 8; ++q)
      values[q] = from == nullptr ? make_float2(otherwise, otherwise)
                                  : __ldg(reinterpret_cast<const float2*>(from + column + q * 8));
  }

  /// A box of the warpgroup that TMA has read.
  CUTLASS_DEVICE Half* free_box(int own, bool leads, TensorStorage& storage) {
    if (leads) cute::tma_store_wait<1>();
    Base::sync(own);
    Half* const place = storage.staged(own, this->next_);
    this->next_ ^= 1;
    return place;
  }

  /// Where a thread's row of a 16 x 16 matrix lies in a box.
  CUTLASS_DEVICE static int place_of(const Fragment& fragment, int pair) {
    const int matrix = fragment.lane / 8;
    return swizzled<width>(fragment.warp * 16 + matrix % 2 * 8 + fragment.lane % 8, pair * 2 + matrix / 2);
  }

  CUTLASS_DEVICE void complete(const Fragment& fragment, float* sums, const float2* bias, const Half* loaded,
                               Half* place, int pair) const {
    const int at = place_of(fragment, pair);
    std::uint32_t words[4] = {0, 0, 0, 0};
    if constexpr (reads_early) read_box(loaded + at, words);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 wide = reads_early ? portable::unpaired<Element>(words[q]) : make_float2(0.0f, 0.0f);
      sums[q * 2] = early(sums[q * 2] + bias[q / 2].x, wide.x);
      sums[q * 2 + 1] = early(sums[q * 2 + 1] + bias[q / 2].y, wide.y);
      if constexpr (keeps) words[q] = portable::paired<Element>(sums[q * 2], sums[q * 2 + 1]);
    }
    if constexpr (keeps)
      cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                    *reinterpret_cast<cute::uint128_t*>(place + at));
  }

  CUTLASS_DEVICE void normalise(const Fragment& fragment, const float* sums, const float2* found, const float2* scale,
                                const float2* shift, const Half* loaded, Half* place, int pair) const {
    const int at = place_of(fragment, pair);
    std::uint32_t words[4] = {0, 0, 0, 0};
    if constexpr (reads_residual && behind) read_box(loaded + at, words);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 by = found[q % 2], times = scale[q / 2], plus = shift[q / 2];
      float2 y = {(sums[q * 2] - by.x) * by.y * times.x + plus.x, (sums[q * 2 + 1] - by.x) * by.y * times.y + plus.y};
      if constexpr (behind) {
        const float2 wide = reads_residual ? portable::unpaired<Element>(words[q]) : make_float2(0.0f, 0.0f);
        y = {params_.stages(y.x, wide.x), params_.stages(y.y, wide.y)};
      }
      words[q] = portable::paired<Element>(y.x, y.y);
    }
    cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                  *reinterpret_cast<cute::uint128_t*>(place + at));
  }

  /// Four words of a residual's box, as a thread's sums of a 16 x 16 matrix lie.
  CUTLASS_DEVICE static void read_box(const Half* from, std::uint32_t (&words)[4]) {
    cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(from), words[0], words[1], words[2], words[3]);
  }
  /// What is normalised of a sum.
  CUTLASS_DEVICE float early(float sum, float residual) const {
    if constexpr (behind)
      return sum;
    else
      return params_.stages(sum, residual);
  }

  const Params& params_;
  Exchange exchange_;
};

}  // namespace bolt::cutlass_kernels
