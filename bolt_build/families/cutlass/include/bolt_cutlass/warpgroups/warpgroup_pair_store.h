// A second product between the sums of a first one and their store: a block owns whole rows of the first product's result, which
// never leaves its registers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/warpgroups/shared_mma.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"

namespace bolt::cutlass_kernels {

/// In the place of an epilogue: what follows the first product's sums, up to a result of `second_n` columns at most.
template <int second_n, typename Between, typename After>
struct ThenMultiply {
  SecondArguments second;
  Between between;
  After after;
};

/// TMA's view of weights [rows, columns] in half precision, in boxes of `height` rows by 64 columns,
/// swizzled over 128 bytes as WGMMA reads them; zero beyond the tensor. Throws std::runtime_error.
template <int height>
cute::TmaDescriptor weight_boxes(const void* weights, int rows, int columns) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * sizeof(Half)};
  const cuuint32_t box[] = {64, height}, steps[] = {1, 1};
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(weights), extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe second weights to TMA");
  return descriptor;
}

/// Other numbers of columns are made up of several instructions: as kernels were measured, before there were all widths.
constexpr int instruction_width(int columns) {
  for (const int width : {256, 192, 128, 96, 64, 32, 16})
    if (columns >= width) return width;
  return 8;
}

/// sums[64 rows, `columns`] += rows[64, 16] * weights[`columns`, 16], the left factor in registers. `weights` describes
/// the right one in shared memory; `fresh` sums begin at zero.
template <int columns, typename Element>
CUTLASS_DEVICE void multiply(const std::uint32_t (&rows)[4], std::uint64_t weights, bool fresh, float* sums) {
  constexpr int width = instruction_width(columns);
  WarpgroupMma<width, Element>::registers(rows, weights, fresh, sums);
  // Descriptors count in 16 bytes; a row of a box has 128.
  if constexpr (columns > width) multiply<columns - width, Element>(rows, weights + width * 8, fresh, sums + width / 2);
}

/// y = after(rounded(between(sums + first bias)) * second weights + second bias, residual), rounded to `Element` between
/// the products. Everything behind the second sums is TileStore's, of the second width.
template <int m, int n, int k, bool cooperative, int second_n, typename Between, typename After, typename Element>
struct SecondProduct : TileStore<m, second_n, cooperative, After, (m + n) * k * 2, (n + 63) / 64 * second_n * 128 + 1024,
                                 cooperative ? 1 : 2, Element> {
  static_assert(!Between::reads_residual, "a residual is read after the second product alone");
  using Store = TileStore<m, second_n, cooperative, After, (m + n) * k * 2, (n + 63) / 64 * second_n * 128 + 1024,
                          cooperative ? 1 : 2, Element>;
  using typename Store::LoadPipeline;
  using typename Store::LoadPipelineState;

  static constexpr int warpgroups = cooperative ? 2 : 1;
  static constexpr int down = m / (64 * warpgroups);
  static constexpr int boxes = (n + 63) / 64;
  static constexpr int first_sums = down * n / 2, second_sums = down * second_n / 2;
  static_assert(n % 16 == 0 && second_n % 16 == 0 && second_n <= 256, "no instructions and boxes of these widths");
  // The first sums leave half as many registers of left factor, which lives as long as the second sums grow: of the 232
  // that a thread has, 192 at most.
  static_assert(first_sums <= 128 && second_sums <= 128, "the two products would not stay in registers");

  struct Arguments {
    typename Store::Arguments store;
    const void* weights;
    const float* bias;
    int columns;
    Between between;
  };
  struct Params : Store::Params {
    cute::TmaDescriptor weights;
    const float* first_bias;
    int second_columns;
    Between between;
  };
  struct TensorStorage {
    alignas(1024) Half weights[boxes][second_n][64];
    typename Store::TensorStorage store;
    alignas(16) ::cutlass::arch::ClusterTransactionBarrier loaded;
  };

  template <typename Problem>
  static Params params(const Problem& problem, const Arguments& a) {
    return {Store::params(second(problem, a.columns), a.store),
            weight_boxes<second_n>(a.weights, a.columns, (cute::get<1>(problem) + 7) / 8 * 8), a.bias, a.columns,
            a.between};
  }
  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& params) {
    cute::prefetch_tma_descriptor(&params.weights);
    Store::prefetch_tma_descriptors(params);
  }

  /// Of both products; whole rows of the first are in one tile.
  CUTLASS_DEVICE static void ask_ahead(const Params& params, int, int columns) {
    ask_for<n>(params.first_bias, 0, columns);
    ask_for<second_n>(params.bias, 0, params.second_columns);
  }

  /// The warp that loads the first product's factors is the one to begin here too: the kernels make one of these for it
  /// exactly once, what it sets up is seen by whoever has seen its first load arrive, and it has not yet waited for the
  /// kernel in front, which cannot have written weights.
  CUTLASS_DEVICE SecondProduct(const Params& params, TensorStorage& storage)
      : Store(params, storage.store), params_(params) {
    if (threadIdx.x < 32 && cute::elect_one_sync()) {
      storage.loaded.init(1);
      ::cutlass::arch::fence_barrier_init();
      ::cutlass::arch::fence_view_async_shared();
      storage.loaded.arrive_and_expect_tx(sizeof(storage.weights));
#pragma unroll 1
      for (int box = 0; box < boxes; ++box)
        cute::SM90_TMA_LOAD_2D::copy(&params.weights, reinterpret_cast<std::uint64_t*>(&storage.loaded),
                                     static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST),
                                     storage.weights[box], box * 64, 0);
    }
  }

  template <typename At>
  CUTLASS_DEVICE LoadPipelineState load(LoadPipeline pipeline, LoadPipelineState state, const At& at, TensorStorage& storage) {
    return Store::load(pipeline, state, at, storage.store);
  }

  /// The threads of a warpgroup (cooperative: of both): a tile from the first sums to memory.
  template <typename Problem, typename At, typename Sums, typename Early>
  CUTLASS_DEVICE LoadPipelineState store(LoadPipeline pipeline, LoadPipelineState wait, const Problem& problem, const At& at,
                                         const Sums& first, const Early& early, int thread, TensorStorage& storage) {
    InRegisters sums;
    multiply_rows(Fragment(thread), cute::get<1>(problem), first.data(), sums.at, storage);
    return Store::store(pipeline, wait, second(problem, params_.second_columns), at, sums, early, thread, storage.store);
  }

 private:
  /// A thread's part of the second sums, in the order of the instruction's.
  struct InRegisters {
    float at[second_sums];
    CUTLASS_DEVICE const float* data() const { return at; }
  };

  template <typename Problem>
  CUTLASS_HOST_DEVICE static auto second(const Problem& problem, int columns) {
    return cute::make_shape(cute::get<0>(problem), columns, cute::get<2>(problem), cute::get<3>(problem));
  }

  /// `sums` = between(`first` + bias) * weights. The first product left its sums where an instruction wants its left
  /// factor: sixteen columns of 64 rows at a time. Rows that are ready are multiplied while the next are computed.
  CUTLASS_DEVICE void multiply_rows(const Fragment& fragment, int columns, const float* first,
                                    float (&sums)[second_sums], TensorStorage& storage) const {
    std::uint32_t rows[down][n / 16][4];
    storage.loaded.wait(0);
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int step = 0; step < n / 16; ++step)
        left_factor(fragment, columns, step, first + i * (n / 2), rows[i][step]);
      float* const to = sums + i * (second_n / 2);
#pragma unroll
      for (int j = 0; j < second_n / 2; ++j) cute::warpgroup_fence_operand(to[j]);
      cute::warpgroup_arrive();
#pragma unroll
      for (int step = 0; step < n / 16; ++step)
        multiply<second_n, Element>(rows[i][step], describe_factor<64>(storage.weights[step / 4]) + step % 4 * 2, step == 0, to);
      cute::warpgroup_commit_batch();
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (int i = 0; i < second_sums; ++i) cute::warpgroup_fence_operand(sums[i]);
  }

  /// Sixteen columns, from `step` * 16 on, of 64 rows. Columns that the first product has not are zero, whatever
  /// `between` makes of zero.
  CUTLASS_DEVICE void left_factor(const Fragment& fragment, int columns, int step, const float* first,
                                  std::uint32_t (&rows)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = step * 16 + half * 8 + fragment.column();
      const std::uint32_t there = column + 1 < columns ? 0xffffffff : column < columns ? 0x0000ffff : 0;
      const float2 bias = there != 0 && params_.first_bias != nullptr
                              ? __ldg(reinterpret_cast<const float2*>(params_.first_bias + column))
                              : make_float2(0.0f, 0.0f);
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const float* const pair = first + step * 8 + half * 4 + below * 2;
        std::uint32_t& factor = rows[half * 2 + below];
        factor = portable::paired<Element>(params_.between(pair[0] + bias.x, 0.0f),
                                           params_.between(pair[1] + bias.y, 0.0f)) &
                 there;
        // Computed before the instructions that read it are begun.
        cute::warpgroup_fence_operand(factor);
      }
    }
  }

  const Params& params_;
};

}  // namespace bolt::cutlass_kernels
