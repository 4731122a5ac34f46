// launch_gemm of pairs of few channels: warps that share no barrier compute whole rows of both products, all in registers,
// beside weights that a block keeps in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/next_kernel.h"
#include "bolt_cutlass/paired_stages.h"
#include "bolt_cutlass/thin_rows.h"
#include "bolt_cutlass/warpgroups/warpgroup_launch.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::cutlass_kernels {

/// y = after(rounded(between(x * w1 + b1)) * w2 + b2, residual) of `k`, `n0` and `n1` columns. A warp takes `rows` rows at a
/// time: it loads them in words that are its left factor already, and 32 or 16 columns between the products go from the sums of
/// one to the left factor of the other in the same lane. Both weights lie in shared memory in the order in which lanes read
/// them. Nothing is waited for together, so while some warps load or store, others compute.
template <int k, int n0, int n1, int rows, int warps, typename Element, typename Between, typename After>
struct ThinPairKernel {
  static constexpr int MaxThreadsPerBlock = 32 * warps, MinBlocksPerMultiprocessor = 1;
  static constexpr unsigned cluster_x = 1, cluster_y = 1;
  static constexpr int down = rows / 16, chunk_columns = n0 % 32 == 0 ? 32 : 16, chunks = n0 / chunk_columns;
  static constexpr int fragments = chunk_columns / 8, steps = chunk_columns / 16;
  static_assert(k % 8 == 0 && n0 % 16 == 0 && n1 % 8 == 0 && rows % 16 == 0, "ThinChainTile of thin_chain.py");
  static_assert(!Between::reads_residual, "a residual is read after the second product alone");

  /// Words of a chunk of columns between the products: by the first's depth, and of the second's columns by them.
  static constexpr int first_words = chunk_columns * k / 2, second_words = chunk_columns * n1 / 2;
  struct Shared {
    alignas(16) std::uint32_t first[chunks][first_words];
    alignas(16) std::uint32_t second[chunks][second_words];
    alignas(16) float first_bias[n0 / 2][4];  // of two columns, twice: what a fragment's sums begin with
    alignas(16) float second_bias[n1];
  };
  static constexpr int SharedStorageSize = static_cast<int>(sizeof(Shared));

  struct Arguments {
    const GemmArguments& first;
    const SecondArguments& second;
    Between between;
    After after;
  };
  struct Params {
    const std::uint32_t *x, *first_weights, *second_weights, *residual;
    std::uint32_t* y;
    const float *first_bias, *second_bias;
    int m, tiles, blocks;
    int x_row, y_row, residual_row;  // in words
    std::uint32_t zero;  // which the compiler does not know
    Between between;
    After after;
  };

  static Params params(const Arguments& a) {
    const GemmArguments& f = a.first;
    const auto words = [](const void* tensor) { return static_cast<const std::uint32_t*>(tensor); };
    const int tiles = (f.m + rows - 1) / rows, multiprocessors = hardware().sm_count;
    return {words(f.x), words(f.weights), words(a.second.weights), words(f.residual), static_cast<std::uint32_t*>(f.y),
            f.bias, a.second.bias, f.m, tiles, tiles < multiprocessors ? tiles : multiprocessors,
            (f.x_row == 0 ? k : f.x_row) / 2, (f.y_row == 0 ? n1 : f.y_row) / 2,
            (f.residual_row == 0 ? n1 : f.residual_row) / 2, 0, a.between, a.after};
  }
  static dim3 get_grid_shape(const Params& params) { return dim3(static_cast<unsigned>(params.blocks), 1, 1); }
  static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock, 1, 1); }

  __device__ void operator()(const Params& params, char* memory) const {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    let_next_kernel_begin();
    load_weights(params, shared);
    __syncthreads();
    wait_for_kernel_in_front();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    // Tiles are dealt out over multiprocessors first.
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x) + warp * params.blocks; tile < params.tiles; tile += warps * params.blocks) {
      const std::int64_t row = static_cast<std::int64_t>(tile) * rows, next = row + warps * params.blocks * rows;
      ask_for_rows<k, rows>(params.x, params.x_row, next, params.m, lane);
      if constexpr (After::reads_residual)
        ask_for_rows<n1, rows>(params.residual, params.residual_row, row, params.m, lane);
      compute(params, shared, tile * rows + lane / 4, lane);
    }
  }

 private:
  /// All threads: weights and biases, which no kernel in front has written.
  static __device__ void load_weights(const Params& params, Shared& shared) {
    const int thread = static_cast<int>(threadIdx.x);
    in_runs<k>([&](auto begin, auto size) {
#pragma unroll 4
      for (int i = thread; i < chunks * fragments * 32; i += MaxThreadsPerBlock) {
        const int lane = i % 32, fragment = i / 32 % fragments, chunk = i / (fragments * 32);
        const int row = chunk * chunk_columns + row_of(fragment, lane / 4, chunk_columns);
        copy_words<size / 8>(shared.first[chunk] + begin * (chunk_columns / 2) + (fragment * 32 + lane) * (size / 8),
                             params.first_weights + row * (k / 2) + begin / 2 + lane % 4 * (size / 8));
      }
    });
    in_runs<n1>([&](auto begin, auto size) {
#pragma unroll 4
      for (int i = thread; i < chunks * (size * 4); i += MaxThreadsPerBlock) {
        const int lane = i % 32, fragment = i / 32 % (size / 8), chunk = i / (size * 4);
        const int row = begin + row_of(fragment, lane / 4, size);
        copy_words<fragments>(shared.second[chunk] + ((begin / 8 + fragment) * 32 + lane) * fragments,
                              params.second_weights + row * (n0 / 2) + (chunk * 4 + lane % 4) * fragments);
      }
    });
    for (int i = thread; i < n0; i += MaxThreadsPerBlock)
      shared.first_bias[i / 2][i % 2] = shared.first_bias[i / 2][i % 2 + 2] =
          params.first_bias == nullptr ? 0.0f : params.first_bias[i];
    for (int i = thread; i < n1; i += MaxThreadsPerBlock)
      shared.second_bias[i] = params.second_bias == nullptr ? 0.0f : params.second_bias[i];
  }

  /// A warp's rows, of which this lane has `row` and each eighth below it.
  static __device__ __forceinline__ void compute(const Params& params, const Shared& shared, int row, int lane) {
    const int t = lane % 4;
    std::uint32_t x[down][k / 8 * 2];
#pragma unroll
    for (int i = 0; i < down; ++i) load_rows(params, row + i * 16, t, x[i]);
    float sums[down][n1 / 8][4];
    in_runs<n1>([&](auto begin, auto size) {
#pragma unroll
      for (int j = 0; j < size / 8; ++j) {
        const float2 bias = *reinterpret_cast<const float2*>(shared.second_bias + begin + t * (size / 4) + j * 2);
#pragma unroll
        for (int i = 0; i < down; ++i) {
          sums[i][begin / 8 + j][0] = sums[i][begin / 8 + j][2] = bias.x;
          sums[i][begin / 8 + j][1] = sums[i][begin / 8 + j][3] = bias.y;
        }
      }
    });
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::uint32_t between[down][steps][4];
      first_product(params, shared, chunk, lane, x, between);
#pragma unroll
      for (int j = 0; j < n1 / 8; ++j) {
        std::uint32_t weights[fragments];
        copy_words<fragments>(weights, shared.second[chunk] + (j * 32 + lane) * fragments);
#pragma unroll
        for (int step = 0; step < steps; ++step)
#pragma unroll
          for (int i = 0; i < down; ++i)
            multiply_from<16, Element>(sums[i][j], between[i][step], weights + step * 2, sums[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < down * 2; ++i)
      if (row + i * 8 < params.m) store(params, row + i * 8, t, i % 2 * 2, sums[i / 2]);
  }

  /// A lane's words of two rows, eight apart, as instructions want them: of each two words the upper row's and the lower's
  /// in turns. Loads leave a row's words side by side, and the compiler would move them in front of every instruction:
  /// what it cannot leave out moves them once.
  static __device__ __forceinline__ void load_rows(const Params& params, int row, int t, std::uint32_t (&x)[k / 8 * 2]) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      // Rows beyond the last are computed as that is, and not stored.
      const std::uint32_t* const from =
          params.x + static_cast<std::int64_t>(min(row + below * 8, params.m - 1)) * params.x_row;
      in_runs<k>([&](auto begin, auto size) {
        std::uint32_t words[size / 8];
        copy_words<size / 8>(words, from + begin / 2 + t * (size / 8));
#pragma unroll
        for (int i = 0; i < size / 8; ++i) x[begin / 4 + i * 2 + below] = words[i] ^ params.zero;
      });
    }
  }

  /// A chunk of columns between the products, as the left factor of the second.
  static __device__ __forceinline__ void first_product(const Params& params, const Shared& shared, int chunk, int lane,
                                                       const std::uint32_t (&x)[down][k / 8 * 2],
                                                       std::uint32_t (&between)[down][steps][4]) {
    const int column = chunk * chunk_columns + lane % 4 * (chunk_columns / 4);
    float sums[down][fragments][4];
    in_runs<k>([&](auto begin, auto size) {
#pragma unroll
      for (int j = 0; j < fragments; ++j) {
        constexpr int words = size / 8, depth = words == 1 ? 8 : 16;
        std::uint32_t weights[words];
        copy_words<words>(weights, shared.first[chunk] + begin * (chunk_columns / 2) + (j * 32 + lane) * words);
        [[maybe_unused]] float bias[4];
        if constexpr (begin == 0)
          __builtin_memcpy(bias, __builtin_assume_aligned(shared.first_bias[column / 2 + j], 16), sizeof bias);
#pragma unroll
        for (int step = 0; step < (words + 1) / 2; ++step) {
#pragma unroll
          for (int i = 0; i < down; ++i)
            multiply_from<depth, Element>(sums[i][j], x[i] + begin / 4 + step * 4, weights + step * 2,
                                          begin + step == 0 ? bias : sums[i][j]);
        }
      }
    });
#pragma unroll
    for (int i = 0; i < down; ++i)
#pragma unroll
      for (int below = 0; below < 2; ++below)
#pragma unroll
        for (int j = 0; j < fragments; ++j)
          between[i][j / 2][j % 2 * 2 + below] = paired_result<Element>(
              params.between, make_float2(sums[i][j][below * 2], sums[i][j][below * 2 + 1]), float2{}, column + j * 2);
  }

  /// A row from its sums to memory: `first` is 0 or 2, the first of two sums of each fragment.
  static __device__ __forceinline__ void store(const Params& params, int row, int t, int first,
                                               const float (&sums)[n1 / 8][4]) {
    std::uint32_t* const to = params.y + static_cast<std::int64_t>(row) * params.y_row;
    const std::uint32_t* const added = params.residual + static_cast<std::int64_t>(row) * params.residual_row;
    in_runs<n1>([&](auto begin, auto size) {
      constexpr int words = size / 8;
      const int own = begin / 2 + t * words;
      std::uint32_t residual[words] = {}, results[words];
      if constexpr (After::reads_residual) copy_words<words>(residual, added + own);
#pragma unroll
      for (int j = 0; j < words; ++j)
        results[j] = paired_result<Element>(
            params.after, make_float2(sums[begin / 8 + j][first], sums[begin / 8 + j][first + 1]),
            After::reads_residual ? portable::unpaired<Element>(residual[j]) : float2{}, (own + j) * 2);
      store_words<words>(to + own, results);
    });
  }
};

template <int k, int n0, int n1, int rows, int warps, typename Element, typename Between, typename After>
void launch_gemm(ThinPair<k, n0, n1, rows, warps, Element>, const GemmArguments& first, const SecondArguments& second,
                 const Between& between, const After& after, void* stream) {
  if (first.k != k || first.n != n0 || second.n != n1)
    throw std::runtime_error("could not launch a thin pair of matrix products: it has " + std::to_string(first.k) + ", " +
                             std::to_string(first.n) + " and " + std::to_string(second.n) + " columns, its kernel " +
                             std::to_string(k) + ", " + std::to_string(n0) + " and " + std::to_string(n1));
  launch<ThinPairKernel<k, n0, n1, rows, warps, Element, Between, After>>({first, second, between, after}, first.overlap,
                                                                          stream, "thin pair of matrix products");
}

}  // namespace bolt::cutlass_kernels
