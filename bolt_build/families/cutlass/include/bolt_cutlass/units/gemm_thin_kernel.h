// launch_gemm of products of few channels: warps that share no barrier compute whole rows in registers, beside weights that a
// block keeps in shared memory.
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
#include "bolt_portable/divisor.h"

namespace bolt::cutlass_kernels {

/// y = stages(x * weights + bias, residual) of `k` and `n` columns. A warp takes `rows` rows at a time: it loads them in words
/// that are its left factor already, and stores whole words of what it computes. The weights lie in shared memory in the order in
/// which lanes read them. Nothing is waited for together, so while some warps load or store, others compute.
///
/// With whole rows in registers sums are of 32 columns at a time; with runs of their channels, of all columns. `gated`: x is
/// multiplied with the gates of its image, which are loaded with it, and rounded once.
template <int k, int n, int rows, int warps, ThinLoads loads, typename Element, typename Stages, bool gated = false>
struct ThinKernel {
  static constexpr int MaxThreadsPerBlock = 32 * warps, MinBlocksPerMultiprocessor = 1;
  static constexpr unsigned cluster_x = 1, cluster_y = 1;
  static constexpr int down = rows / 16, blocks = (k + 31) / 32;
  static constexpr bool in_blocks = loads == ThinLoads::runs;
  /// Blocks of 32 channels whose words a lane has room for.
  static constexpr int room = !in_blocks || blocks < 4 / down ? blocks : 4 / down;
  static_assert(k % 8 == 0 && n % 8 == 0 && (rows == 16 || rows == 32), "ThinTile of thin.py");

  struct Shared {
    alignas(16) std::uint32_t weights[n * k / 2];
    alignas(16) float bias[n];
  };
  static constexpr int SharedStorageSize = static_cast<int>(sizeof(Shared));

  struct Arguments {
    const GemmArguments& product;
    Stages stages;
    PrologueArguments before = {};
  };
  struct Params {
    const std::uint32_t *x, *weights, *residual;
    std::uint32_t* y;
    const float* bias;
    int m, tiles, blocks;
    int x_row, y_row, residual_row;  // in words
    std::uint32_t zero;  // which the compiler does not know
    Stages stages;
    const std::uint32_t* gates;
    portable::Divisor pixels;
  };

  static Params params(const Arguments& arguments) {
    const GemmArguments& a = arguments.product;
    const int x_row = gated ? arguments.before.x_row : a.x_row;
    const auto words = [](const void* tensor) { return static_cast<const std::uint32_t*>(tensor); };
    const int tiles = (a.m + rows - 1) / rows, multiprocessors = hardware().sm_count;
    return {words(a.x), words(a.weights), words(a.residual), static_cast<std::uint32_t*>(a.y),
            a.bias, a.m, tiles, tiles < multiprocessors ? tiles : multiprocessors,
            (x_row == 0 ? k : x_row) / 2, (a.y_row == 0 ? n : a.y_row) / 2,
            (a.residual_row == 0 ? n : a.residual_row) / 2, 0, arguments.stages,
            words(arguments.before.table), portable::Divisor(gated ? arguments.before.pixels : 1)};
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
    const int between = warps * params.blocks;
    int tile = static_cast<int>(blockIdx.x) + warp * params.blocks;
    if (tile >= params.tiles) return;
    Words words;
    if constexpr (loads != ThinLoads::whole) load_first(params, tile, lane, words);
#pragma unroll 1
    for (; tile < params.tiles; tile += between) {
      const int next = tile + between, row = tile * rows + lane / 4;
      // What is loaded ahead is under way already.
      const std::int64_t asked = (static_cast<std::int64_t>(tile) + between) * rows;
      if constexpr (loads != ThinLoads::ahead) ask_for_rows<k, rows>(params.x, params.x_row, asked, params.m, lane);
      if constexpr (Stages::reads_residual) ask_for_rows<n, rows>(params.residual, params.residual_row, asked, params.m, lane);
      if constexpr (in_blocks) {
        compute_blocks(params, shared, tile, lane, words, [&] {
          if (next < params.tiles) load_first(params, next, lane, words);
        });
      } else {
        if constexpr (loads == ThinLoads::whole) load_first(params, tile, lane, words);
        std::uint32_t x[down][blocks * 8];
        each_block([&](auto block) { arrange(params, words, block, x, block * 8); });
        if constexpr (loads == ThinLoads::ahead) {
          if (next < params.tiles) load_first(params, next, lane, words);
        }
        constexpr int whole = n / 32 * 32;
#pragma unroll 1
        for (int first = 0; first < whole; first += 32) compute_columns<32>(params, shared, first, row, lane, x);
        in_runs<n - whole>(
            [&](auto begin, auto columns) { compute_columns<columns>(params, shared, whole + begin, row, lane, x); });
      }
    }
  }

 private:
  /// A lane's words of its rows in blocks of 32 channels, side by side.
  struct Words {
    std::uint32_t of[room][down * 2][4];
    std::uint32_t gates[gated ? room : 1][gated ? down * 2 : 1][4];
  };

  /// `body(block)` of every block of 32 channels, as a constant.
  template <int block = 0, typename Body>
  static __device__ __forceinline__ void each_block(const Body& body) {
    if constexpr (block < blocks) {
      body(std::integral_constant<int, block>{});
      each_block<block + 1>(body);
    }
  }
  static constexpr int channels(int block) { return block * 32 + 32 <= k ? 32 : k - block * 32; }

  /// All threads: weights and the bias, which no kernel in front has written.
  static __device__ void load_weights(const Params& params, Shared& shared) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < n * k / 8; i += MaxThreadsPerBlock)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<std::uint32_t>(__cvta_generic_to_shared(shared.weights + i * 4))),
                   "l"(params.weights + i * 4));
    for (int i = thread; i < n; i += MaxThreadsPerBlock) shared.bias[i] = params.bias == nullptr ? 0.0f : params.bias[i];
    asm volatile("cp.async.wait_all;" ::: "memory");
  }

  /// The words of so many columns from `first` on, at a run of the depth that begins there.
  static __device__ const std::uint32_t* place(const Shared& shared, int first, int columns, int begin) {
    return shared.weights + first * (k / 2) + begin * (columns / 2);
  }

  template <int block>
  static __device__ __forceinline__ void load_block(const Params& params, int tile, int lane, Words& to) {
#pragma unroll
    for (int i = 0; i < down * 2; ++i) {
      // Rows beyond the last are computed as that is, and not stored.
      const int row = min(tile * rows + lane / 4 + i * 8, params.m - 1);
      const std::uint32_t* const from = params.x + static_cast<std::int64_t>(row) * params.x_row + block * 16;
      in_runs<channels(block)>([&](auto begin, auto size) {
        copy_words<size / 8>(to.of[block % room][i] + begin / 8, from + begin / 2 + lane % 4 * (size / 8));
      });
      if constexpr (gated) {
        const std::uint32_t* const gates =
            params.gates + params.pixels.quotient(static_cast<std::uint32_t>(row)) * (k / 2) + block * 16;
        in_runs<channels(block)>([&](auto begin, auto size) {
          copy_words<size / 8>(to.gates[block % room][i] + begin / 8, gates + begin / 2 + lane % 4 * (size / 8));
        });
      }
    }
  }
  /// As many blocks as there is room for.
  static __device__ __forceinline__ void load_first(const Params& params, int tile, int lane, Words& to) {
    each_block([&](auto block) {
      if constexpr (block < room) load_block<block>(params, tile, lane, to);
    });
  }

  /// As instructions want them: of each two words the upper row's and the lower's in turns. Loads leave a row's words side by
  /// side, and the compiler would move them in front of every instruction: what it cannot leave out moves them once.
  template <int count>
  static __device__ __forceinline__ void arrange(const Params& params, const Words& words, int place,
                                                 std::uint32_t (&x)[down][count], int begin) {
#pragma unroll
    for (int i = 0; i < down * 2; ++i) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const std::uint32_t own = words.of[place][i][word];
        if constexpr (gated)
          x[i / 2][begin + word * 2 + i % 2] = multiplied(own, words.gates[place][i][word]);
        else
          x[i / 2][begin + word * 2 + i % 2] = own ^ params.zero;
      }
    }
  }
  /// Two products, each rounded once: that of two bf16 is exact in fp32.
  static __device__ __forceinline__ std::uint32_t multiplied(std::uint32_t x, std::uint32_t gates) {
    if constexpr (std::is_same_v<Element, portable::f16>) {
      const __half2 y = __hmul2(*reinterpret_cast<const __half2*>(&x), *reinterpret_cast<const __half2*>(&gates));
      return *reinterpret_cast<const std::uint32_t*>(&y);
    } else {
      const float2 a = portable::unpaired<Element>(x), b = portable::unpaired<Element>(gates);
      return portable::paired<Element>(a.x * b.x, a.y * b.y);
    }
  }

  /// sums += x * weights of a run of columns, over the channels of a block, whose words in x begin at `at`.
  template <int block, int columns, int at, int count>
  static __device__ __forceinline__ void multiply(const Shared& shared, int first, int lane,
                                                  const std::uint32_t (&x)[down][count], float (&sums)[down][columns / 8][4]) {
    in_runs<channels(block)>([&](auto begin, auto size) {
      constexpr int of_run = size / 8, depth = of_run == 1 ? 8 : 16;
      const std::uint32_t* const from = place(shared, first, columns, block * 32 + begin) + lane * of_run;
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) {
        std::uint32_t weights[of_run];
        read_words(weights, from + j * 32 * of_run);
#pragma unroll
        for (int step = 0; step < (of_run + 1) / 2; ++step)
#pragma unroll
          for (int i = 0; i < down; ++i)
            multiply_from<depth, Element>(sums[i][j], x[i] + at + begin / 4 + step * 4, weights + step * 2, sums[i][j]);
      }
    });
  }

  template <int columns>
  static __device__ __forceinline__ void begin_sums(const Shared& shared, int column, float (&sums)[down][columns / 8][4]) {
#pragma unroll
    for (int j = 0; j < columns / 8; ++j) {
      const float2 bias = *reinterpret_cast<const float2*>(shared.bias + column + j * 2);
#pragma unroll
      for (int i = 0; i < down; ++i) {
        sums[i][j][0] = sums[i][j][2] = bias.x;
        sums[i][j][1] = sums[i][j][3] = bias.y;
      }
    }
  }

  template <int words>
  static __device__ __forceinline__ void load_residual(const Params& params, int row, int column,
                                                       std::uint32_t (&to)[down * 2][words]) {
    if constexpr (Stages::reads_residual) {
#pragma unroll
      for (int i = 0; i < down * 2; ++i)
        if (row + i * 8 < params.m)
          copy_words<words>(to[i], params.residual + static_cast<std::int64_t>(row + i * 8) * params.residual_row + column / 2);
    }
  }

  template <int words>
  static __device__ __forceinline__ void store(const Params& params, int row, int column,
                                               const std::uint32_t (&residual)[down * 2][words],
                                               const float (&sums)[down][words][4]) {
#pragma unroll
    for (int i = 0; i < down * 2; ++i) {
      if (row + i * 8 >= params.m) continue;
      std::uint32_t results[words];
#pragma unroll
      for (int j = 0; j < words; ++j)
        results[j] = paired_result<Element>(
            params.stages, make_float2(sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]),
            Stages::reads_residual ? portable::unpaired<Element>(residual[i][j]) : float2{}, column + j * 2);
      store_words<words>(params.y + static_cast<std::int64_t>(row + i * 8) * params.y_row + column / 2, results);
    }
  }

  /// Of a warp's rows, of which this lane has `row` and each eighth below it, so many columns.
  template <int columns>
  static __device__ __forceinline__ void compute_columns(const Params& params, const Shared& shared, int first, int row, int lane,
                                                         const std::uint32_t (&x)[down][blocks * 8]) {
    const int column = first + lane % 4 * (columns / 4);
    // Asked for before the products, and waited for behind them.
    std::uint32_t residual[down * 2][columns / 8] = {};
    load_residual(params, row, column, residual);
    float sums[down][columns / 8][4];
    begin_sums<columns>(shared, column, sums);
    each_block([&](auto block) { multiply<block, columns, block * 8>(shared, first, lane, x, sums); });
    store(params, row, column, residual, sums);
  }

  /// Sums of a run of columns, and of those behind it.
  template <int first, bool there = (first < n)>
  struct RunSums {
    static constexpr int columns = n - first >= 32 ? 32 : n - first >= 16 ? 16 : 8;
    float sums[down][columns / 8][4];
    RunSums<first + columns> behind;

    __device__ __forceinline__ void begin(const Shared& shared, int lane) {
      begin_sums<columns>(shared, first + lane % 4 * (columns / 4), sums);
      behind.begin(shared, lane);
    }
    template <int block>
    __device__ __forceinline__ void add(const Shared& shared, int lane, const std::uint32_t (&x)[down][8]) {
      multiply<block, columns, 0>(shared, first, lane, x, sums);
      behind.template add<block>(shared, lane, x);
    }
    __device__ __forceinline__ void leave(const Params& params, int row, int lane) const {
      const int column = first + lane % 4 * (columns / 4);
      std::uint32_t residual[down * 2][columns / 8] = {};
      load_residual(params, row, column, residual);
      store(params, row, column, residual, sums);
      behind.leave(params, row, lane);
    }
  };
  template <int first>
  struct RunSums<first, false> {
    __device__ void begin(const Shared&, int) {}
    template <int block>
    __device__ void add(const Shared&, int, const std::uint32_t (&)[down][8]) {}
    __device__ void leave(const Params&, int, int) const {}
  };

  /// A tile whose first blocks are on their way. `then` is called when the last one has been moved.
  template <typename Then>
  static __device__ __forceinline__ void compute_blocks(const Params& params, const Shared& shared, int tile, int lane,
                                                        Words& words, const Then& then) {
    RunSums<0> sums;
    sums.begin(shared, lane);
    each_block([&](auto block) {
      std::uint32_t x[down][8];
      arrange(params, words, block % room, x, 0);
      if constexpr (block + room < blocks) load_block<block + room>(params, tile, lane, words);
      if constexpr (block + 1 == blocks) then();
      sums.template add<block>(shared, lane, x);
    });
    sums.leave(params, tile * rows + lane / 4, lane);
  }
};

/// Throws std::runtime_error.
inline void require_columns(const GemmArguments& a, int k, int n) {
  if (a.k != k || a.n != n)
    throw std::runtime_error("could not launch a thin matrix product: it has " + std::to_string(a.k) + " and " +
                             std::to_string(a.n) + " columns, its kernel " + std::to_string(k) + " and " + std::to_string(n));
}

template <int k, int n, int rows, int warps, ThinLoads loads, typename Element, typename Stages>
void launch_gemm(ThinTile<k, n, rows, warps, loads, Element>, const GemmArguments& a, const Stages& stages, void* stream) {
  require_columns(a, k, n);
  launch<ThinKernel<k, n, rows, warps, loads, Element, Stages>>({a, stages}, a.overlap, stream, "thin matrix product");
}

template <int k, int n, int rows, int warps, ThinLoads loads, typename Element, int images, typename Stages>
void launch_gemm(ThinGate<k, n, rows, warps, loads, Element>, const GemmArguments& a, const PrologueArguments& before,
                 const Gate<images>&, const Stages& stages, void* stream) {
  require_columns(a, k, n);
  launch<ThinKernel<k, n, rows, warps, loads, Element, Stages, true>>({a, stages, before}, a.overlap, stream,
                                                                      "thin matrix product with a gate");
}

}  // namespace bolt::cutlass_kernels
