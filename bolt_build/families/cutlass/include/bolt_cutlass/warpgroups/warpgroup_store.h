// What becomes of the sums that WGMMA leaves in registers. Written out, because CUTLASS's own epilogues, in tensor algebra,
// take the compiler longer than all the rest of a kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/warpgroups/box_means.h"
#include "bolt_cutlass/warpgroups/box_moments.h"
#include "bolt_cutlass/image_numbers.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/paired_stages.h"
#include "bolt_cutlass/warpgroups/partial_store.h"
#include "bolt_cutlass/warpgroups/sharing.h"
#include "bolt_cutlass/warpgroups/store_boxes.h"
#include "bolt_cutlass/warpgroups/swizzle.h"
#include "bolt_portable/cuda/halves.h"
#include "cute/arch/copy_sm75.hpp"
#include "cute/arch/copy_sm90.hpp"
#include "cute/int_tuple.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/cutlass.h"
#include "cutlass/numeric_types.h"
#include "cutlass/pipeline/sm90_pipeline.hpp"

namespace bolt::cutlass_kernels {

/// Whether a bias is to be added to a tile's sums: not where it is part of them.
template <typename Sums>
inline constexpr bool wants_bias = true;

/// y = epilogue(sums + bias, residual), stored as `Element`. Sub-tiles go through shared memory to TMA, and the
/// residual comes the same way. `Rows` says where those of a tile lie in both. Stages WithMeans leave means of images too,
/// and those WithMoments their mean and squares.
template <int m, int n, bool cooperative, typename Stages, int stage, int taken = 0, int teams = cooperative ? 1 : 2,
          typename Element = portable::f16, typename Rows = DenseRows,
          typename BoxesOf = StoreBoxes<n, sharing(m, cooperative), Stages::reads_residual, stage, taken, teams>>
struct TileStore : StoreBase<BoxesOf::loaded> {
  static constexpr bool reads_residual = Stages::reads_residual;
  using Boxes = BoxesOf;
  using Base = StoreBase<Boxes::loaded>;
  using typename Base::LoadPipeline;
  using typename Base::LoadPipelineState;
  static constexpr bool keeps = keeps_results<Stages>, by_tma = keeps && !Rows::by_threads;

  static constexpr int width = Boxes::width, warpgroups = Boxes::together;
  static constexpr int down = m / (64 * warpgroups), across = n / width, box = 64 * width;
  static constexpr int loads = down * across;  // boxes of a tile's residual
  static_assert(m % (64 * warpgroups) == 0 && n % width == 0);
  /// Rows of a part whose moments are left: those of a warpgroup's boxes, where they follow each other.
  static constexpr int granule = warpgroups == 1 ? m : 64;
  /// Whether the residual of two tiles, if any, has room at once.
  static constexpr bool holds_two_tiles = !reads_residual || Boxes::loaded >= 2 * down * across;

  struct Arguments {
    const float* bias;
    const void* residual;
    void* y;
    Stages stages;
    int y_row = 0;
    int residual_row = 0;
    Rows rows = {};
  };
  struct Params {
    cute::TmaDescriptor y;
    cute::TmaDescriptor residual;
    const float* bias;
    Stages stages;
    std::uint32_t tma_transaction_bytes;
    Rows rows;
  };
  /// What warpgroups that share a tile leave each other of its image, of two columns of boxes in turn.
  struct TensorSums {
    float left[teams][2][warpgroups][width];
  };
  struct TensorStorage : std::conditional_t<leaves_means<Stages> && (warpgroups > 1), TensorSums, NoSums> {
    alignas(1024) Half boxes[Boxes::staged + Boxes::loaded * warpgroups][box];
    CUTLASS_DEVICE Half* staged(int warpgroup, int which) { return boxes[warpgroup * 2 + which]; }
    CUTLASS_DEVICE Half* loaded(int which, int warpgroup) { return boxes[Boxes::staged + which * warpgroups + warpgroup]; }
  };

  template <typename Problem>
  static Params params(const Problem& problem, const Arguments& a) {
    const int rows = cute::get<0>(problem), columns = cute::get<1>(problem);
    if constexpr (leaves_means<Stages>) require_images(a.stages.means, m, warpgroups > 1);
    if constexpr (leaves_moments<Stages>) require_granule(a.stages.moments, granule);
    const cute::TmaDescriptor y = keeps ? a.rows.template view<width>(a.y, rows, columns, a.y_row) : cute::TmaDescriptor{};
    return {y, reads_residual ? a.rows.template view<width>(a.residual, rows, columns, a.residual_row) : y, a.bias, a.stages,
            static_cast<std::uint32_t>(warpgroups * box * sizeof(Half)), a.rows};
  }
  template <typename Given>
  CUTLASS_HOST_DEVICE static int apart(const Given& given, int rows) {
    if constexpr (leaves_means<Stages>) return given.stages.means.apart(rows);
    return rows;
  }
  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& params) {
    if constexpr (by_tma) cute::prefetch_tma_descriptor(&params.y);
    if constexpr (reads_residual) cute::prefetch_tma_descriptor(&params.residual);
  }
  /// One warp: asks for the constants of a tile's columns, from `first` on.
  CUTLASS_DEVICE static void ask_ahead(const Params& params, int first, int columns) {
    ask_for<n>(params.bias, params.rows.channel(first), params.rows.channels(columns));
  }

  CUTLASS_DEVICE TileStore(const Params& params, TensorStorage&) : params_(params) {}
  TileStore(const TileStore&) = delete;
  TileStore& operator=(const TileStore&) = delete;
  /// No store may still read the block's shared memory when the block ends.
  CUTLASS_DEVICE ~TileStore() { cute::tma_store_wait<0>(); }

  /// One warp: asks for the residual of a tile, a sub-tile at a time.
  template <typename At>
  CUTLASS_DEVICE LoadPipelineState load(LoadPipeline pipeline, LoadPipelineState state, const At& at, TensorStorage& storage) {
    if constexpr (reads_residual) {
      const bool leads = cute::elect_one_sync();
#pragma unroll 1
      for (int j = 0; j < across; ++j) {
#pragma unroll 1
        for (int i = 0; i < down; ++i) {
          std::uint64_t* const barrier = pipeline.producer_get_barrier(state);
          pipeline.producer_acquire(state);
          if (leads) {
#pragma unroll
            for (int warpgroup = 0; warpgroup < warpgroups; ++warpgroup)
              params_.rows.load(params_.residual, barrier, storage.loaded(state.index(), warpgroup),
                                cute::get<1>(at) * n + j * width,
                                cute::get<0>(at) * apart(params_, m) + (i * warpgroups + warpgroup) * 64);
            pipeline.producer_expect_transaction(state);
          }
          pipeline.producer_commit(state);
          ++state;
        }
      }
    }
    return state;
  }
  CUTLASS_DEVICE void load_tail(LoadPipeline pipeline, LoadPipelineState state) {
    if constexpr (reads_residual) {
      if (cute::elect_one_sync()) pipeline.producer_tail(state);
    }
  }

  /// The threads of a warpgroup: the bias of a tile, before its products. It comes from L2, or from memory where an engine's
  /// weights exceed that, and would be waited for behind them.
  template <typename At>
  CUTLASS_DEVICE void prepare(int columns, const At& at, int thread) {
#pragma unroll
    for (int j = 0; j < across; ++j)
      load_bias(params_.rows.channels(columns), params_.rows.channel(cute::get<1>(at) * n) + j * width, Fragment(thread),
                early_[j]);
  }

  /// The threads of a warpgroup (cooperative: of all that share it): a tile from registers to memory. `Early` is
  /// std::true_type where they have called `prepare`.
  template <typename Problem, typename At, typename Sums, typename Early>
  CUTLASS_DEVICE LoadPipelineState store(LoadPipeline pipeline, LoadPipelineState wait, const Problem& problem, const At& at,
                                         const Sums& sums, const Early&, int thread, TensorStorage& storage) {
    constexpr bool early = std::is_same_v<Early, std::true_type>;
    const Fragment fragment(thread);
    // Of the block: warpgroups that take turns have both a `fragment.warpgroup` of 0. The first one only loads.
    const int own = Boxes::single ? 0 : static_cast<int>(threadIdx.x) / 128 - 1;
    const int columns = cute::get<1>(problem);
    const int row = cute::get<0>(at) * apart(params_, m) + fragment.warpgroup * 64;
    const int column = cute::get<1>(at) * n, channel = params_.rows.channel(column);
    const bool leads = thread % 128 == 0;
    [[maybe_unused]] const ImageNumbers<Stages, down> images(params_.stages, params_.rows, row + fragment.row(),
                                                             warpgroups * 64, cute::get<0>(problem), columns);
    [[maybe_unused]] const int begin = cute::get<0>(at) * apart(params_, m);
    [[maybe_unused]] const int end = min(begin + apart(params_, m), cute::get<0>(problem));
#pragma unroll
    for (int j = 0; j < across; ++j) {
      [[maybe_unused]] float2 open = make_float2(0.0f, 0.0f);
      [[maybe_unused]] OpenColumns<Element, leaves_moments<Stages> ? width : 16> started;
      [[maybe_unused]] std::uint32_t numbers[reads_images<Stages> ? width / 8 : 1][2] = {};
      float2 loaded[width / 8];
      const int first = channel + j * width + fragment.column();
      if constexpr (!early && wants_bias<Sums>)
        load_bias(params_.rows.channels(columns), channel + j * width, fragment, loaded);
      const float2* const bias = early ? early_[j] : loaded;
#pragma unroll
      for (int i = 0; i < down; ++i) {
        if constexpr (reads_images<Stages>) images.load(i, first, numbers);
        // All stores but the latest: the one before it was of this box.
        if (by_tma && leads) cute::tma_store_wait<1>();
        sync(own);
        Half* const place = storage.staged(own, next_);
        next_ ^= 1;
        const Half* residual = nullptr;
        if constexpr (reads_residual) {
          pipeline.consumer_wait(wait);
          residual = storage.loaded(wait.index(), fragment.warpgroup);
        }
#pragma unroll
        for (int pair = 0; pair < width / 16; ++pair)
          finish<wants_bias<Sums>>(fragment, sums.data() + i * (n / 2) + (j * (width / 8) + pair * 2) * 4,
                                   bias + pair * 2, residual, place, pair, first + pair * 16,
                                   reads_images<Stages> ? numbers + pair * 2 : nullptr, images.one(i));
        // Before TMA reads one box and writes the other.
        if constexpr (by_tma) cute::tma_store_fence();
        if constexpr (reads_residual) {
          pipeline.consumer_release(wait);
          ++wait;
        }
        sync(own);
        if constexpr (by_tma) {
          if (leads) {
            params_.rows.store(params_.y, place, column + j * width, row + i * warpgroups * 64);
            cute::tma_store_arrive();
          }
        } else if constexpr (keeps) {
          params_.rows.template store<width>(place, thread % 128, columns, column + j * width, row + i * warpgroups * 64);
        }
        // The next box but one lies in the same place, behind two barriers.
        if constexpr (leaves_means<Stages> && warpgroups > 1)
          means_of(problem).template add_box<width>(place, thread % 128, row + i * warpgroups * 64, end, open);
        else if constexpr (leaves_means<Stages>)
          means_of(problem).template average_box<width>(place, thread % 128, row + i * 64, column + j * width, end, open);
        else if constexpr (leaves_moments<Stages>)
          moments_of(problem).template add_box<width>(place, thread % 128, row + i * warpgroups * 64, column + j * width,
                                                      warpgroups > 1 || i + 1 == down, started);
      }
      if constexpr (leaves_means<Stages> && warpgroups > 1) {
        const int team = own / warpgroups;
        turn_ ^= 1;
        means_of(problem).template average_together<width>(
            storage.left[team][turn_], fragment.warpgroup, thread % 128, begin / params_.stages.means.positions,
            column + j * width, open, [&] { ::cutlass::arch::NamedBarrier::sync(128 * warpgroups, 4u + team); });
      }
    }
    return wait;
  }

 protected:
  /// The 128 threads of a warpgroup.
  CUTLASS_DEVICE static void sync(int warpgroup) {
    ::cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(warpgroup));
  }

  /// Of `width` columns from `first` on, those that a thread has sums of.
  CUTLASS_DEVICE void load_bias(int columns, int first, const Fragment& fragment, float2 (&bias)[width / 8]) const {
#pragma unroll
    for (int q = 0; q < width / 8; ++q) {
      const int c = first + q * 8 + fragment.column();
      const bool there = params_.bias != nullptr && c < columns;
      bias[q] = there ? __ldg(reinterpret_cast<const float2*>(params_.bias + c)) : make_float2(0.0f, 0.0f);
    }
  }

  /// 16 rows by 16 columns a warp: `sums` of a thread in the order of four 8 x 8 matrices, upper and lower, left first. Its first
  /// column is `column`. `numbers` are those of images, upper and lower, left first; the upper ones are all where both rows are of
  /// `one` image.
  template <bool biased = true>
  CUTLASS_DEVICE void finish(const Fragment& fragment, const float* sums, const float2* bias, const Half* loaded, Half* place,
                             int pair, int column, const std::uint32_t (*numbers)[2] = nullptr, bool one = true) const {
    const int matrix = fragment.lane / 8;
    const int at = swizzled<width>(fragment.warp * 16 + matrix % 2 * 8 + fragment.lane % 8, pair * 2 + matrix / 2);
    std::uint32_t words[4] = {0, 0, 0, 0};
    if constexpr (reads_residual)
      cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(loaded + at), words[0], words[1], words[2],
                                    words[3]);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 wide = reads_residual ? portable::unpaired<Element>(words[q]) : make_float2(0.0f, 0.0f);
      float2 sum = make_float2(sums[q * 2], sums[q * 2 + 1]);
      if constexpr (biased) sum = make_float2(sum.x + bias[q / 2].x, sum.y + bias[q / 2].y);
      const int c = column + q / 2 * 8;
      if constexpr (reads_images<Stages>) {
        const std::uint32_t number = q % 2 == 0 || one ? numbers[q / 2][0] : numbers[q / 2][1];
        words[q] = paired_result<Element>(applied(params_.stages), sum, wide, c, portable::unpaired<Element>(number));
      } else {
        words[q] = paired_result<Element>(applied(params_.stages), sum, wide, c);
      }
    }
    cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                  *reinterpret_cast<cute::uint128_t*>(place + at));
  }

  int next_ = 0, turn_ = 0;

 private:
  template <typename Problem>
  CUTLASS_DEVICE BoxMeans<Element, Rows> means_of(const Problem& problem) const {
    return {params_.stages.means, params_.rows, cute::get<0>(problem), cute::get<1>(problem)};
  }

  template <typename Problem>
  CUTLASS_DEVICE BoxMoments<Element, Rows, granule> moments_of(const Problem& problem) const {
    return {params_.stages.moments, params_.rows, cute::get<0>(problem), cute::get<1>(problem)};
  }

  const Params& params_;
  float2 early_[across][width / 8];
};

template <typename Store>
inline constexpr bool is_tile_store = false;
template <int m, int n, bool cooperative, typename Stages, int stage, int taken, int teams, typename Element, typename Rows,
          typename Boxes>
inline constexpr bool is_tile_store<TileStore<m, n, cooperative, Stages, stage, taken, teams, Element, Rows, Boxes>> = true;

/// Whether a thread of so many `registers` has room for the bias of n columns beside its `sums`, what else is `taken`, and
/// addresses: then `prepare` is called in front of the products.
template <typename Store, int n>
constexpr bool has_room_for_bias(int sums, int taken, int registers) {
  return is_tile_store<Store> && sums + n / 4 + taken <= registers - 72;
}

}  // namespace bolt::cutlass_kernels
