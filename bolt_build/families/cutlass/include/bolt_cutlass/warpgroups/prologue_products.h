// Products whose left factor is transformed on its way from shared memory to the registers that the instructions read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/warpgroups/halved_steps.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/warpgroups/shared_depth.h"
#include "bolt_cutlass/warpgroups/swizzle.h"
#include "bolt_cutlass/warpgroups/warpgroup_products.h"
#include "bolt_portable/cuda/halves.h"
#include "cute/arch/copy_sm75.hpp"

namespace bolt::cutlass_kernels {

/// How `Prologue` transforms a left factor of `Number`s, of which a step of the pipeline holds `k` columns. `Table` is what of its
/// operands lies beside the factors of a step, `across` numbers for a column in each of its `rows`, `Rows` what a thread
/// knows of its rows in a tile of `down` times 64 of them,
/// `between` apart.
template <typename Prologue, int k, typename Number>
struct PrologueStep;

template <typename Function, int k, typename Number>
struct PrologueStep<Affine<Function>, k, Number> {
  using Element = float;
  static constexpr int rows = 1, across = 2;
  /// As `affine_table` lays them out.
  struct Table {
    alignas(128) float4 of[k / 2];
  };
  template <int down, int between>
  struct Rows {
    CUTLASS_DEVICE Rows(int, int, int) {}
  };
  /// Scales and shifts of a thread's four columns, two and two.
  template <int down>
  struct Operands {
    float4 of[2];
    template <typename R>
    CUTLASS_DEVICE void fetch(const Table& table, const R&, int column) {
#pragma unroll
      for (int half = 0; half < 2; ++half) of[half] = table.of[column / 2 + half * 4];
    }
  };

  /// In fp32, rounded once.
  template <typename O>
  CUTLASS_DEVICE static void apply(const Affine<Function>& prologue, const O& operands, int, LeftFragment& left) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 x = portable::unpaired<Number>(left[q]);
      const float4 of = operands.of[q / 2];
      left[q] = portable::paired<Number>(prologue.function(fmaf(x.x, of.x, of.z), 0.0f),
                                         prologue.function(fmaf(x.y, of.y, of.w), 0.0f));
    }
  }
};

template <int images, int k, typename Number>
struct PrologueStep<Gate<images>, k, Number> {
  using Element = Half;
  static constexpr int rows = images, across = 1;
  struct Table {
    alignas(128) Half of[rows][k];
  };
  /// The image of each row, counted from the one in which the tile begins. No tile is of more images than the table.
  template <int down, int between>
  struct Rows {
    int image[down][2];
    CUTLASS_DEVICE Rows(int pixels, int tile, int row) {
      const int first = tile / pixels;
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int below = 0; below < 2; ++below) image[i][below] = (tile + row + i * between + below * 8) / pixels - first;
      }
    }
  };
  /// Gates of a thread's numbers.
  template <int down>
  struct Operands {
    LeftFragment of[down];
    template <typename R>
    CUTLASS_DEVICE void fetch(const Table& table, const R& rows, int column) {
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q)
          of[i][q] = *reinterpret_cast<const std::uint32_t*>(&table.of[rows.image[i][q % 2]][column + q / 2 * 8]);
      }
    }
  };

  /// A product is rounded once. That of two bf16 is exact in fp32.
  template <typename O>
  CUTLASS_DEVICE static void apply(const Gate<images>&, const O& operands, int i, LeftFragment& left) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const std::uint32_t gates = operands.of[i][q];
      if constexpr (std::is_same_v<Number, portable::f16>) {
        const __half2 y = __hmul2(*reinterpret_cast<const __half2*>(&left[q]), *reinterpret_cast<const __half2*>(&gates));
        left[q] = *reinterpret_cast<const std::uint32_t*>(&y);
      } else {
        const float2 x = portable::unpaired<Number>(left[q]);
        const float2 gate = portable::unpaired<Number>(gates);
        left[q] = portable::paired<Number>(x.x * gate.x, x.y * gate.y);
      }
    }
  }
};

/// Shared memory behind the stages of a product whose depth `deep` warpgroups share.
template <int n, int deep, int teams>
struct DepthExchanges {
  static constexpr int bytes = teams * static_cast<int>(sizeof(DepthExchange<n>));
  DepthExchange<n> exchanges[teams];
};
template <int n, int teams>
struct DepthExchanges<n, 1, teams> {
  static constexpr int bytes = 0;
};

/// The left factor of a tile of m x n goes through registers, half a step at a time: one half is transformed while the
/// instructions of the other one run.
///
/// What a warp waits for in between, shared memory above all, nobody else's instructions hide where one warpgroup computes
/// a tile, and most of the time goes there. So two may share it: `deep` of them have a part of every step's columns each.
template <int m, int n, int k, bool cooperative, typename Prologue, typename Number, int teams = cooperative ? 1 : 2,
          int depth_shares = 1>
struct PrologueProducts {
  using Shared = SharedProducts<m, n, k, cooperative, Number>;
  using Step = PrologueStep<Prologue, k, Number>;
  static constexpr int deep = depth_shares, of_rows = Shared::warpgroups, warpgroups = of_rows * deep;
  static constexpr int down = Shared::down, width = Shared::width, parts = Shared::parts;
  static constexpr int exchange_bytes = DepthExchanges<n, deep, teams>::bytes;
  static_assert(deep == 1 || (deep == 2 && m == 64 && !cooperative), "two warpgroups share the depth of 64 rows");
  static constexpr int stage_bytes = Shared::stage_bytes + static_cast<int>(sizeof(typename Step::Table));
  static constexpr bool has_table = true, completes = false;
  // Registers of half a step: of its left factor, and of what transforms it.
  static constexpr int depths = k / deep / 32, half = depths * down * 4;
  static constexpr int operands = depths * static_cast<int>(sizeof(typename Step::template Operands<down>)) / 4;
  static constexpr bool ahead = fetches_ahead(down * n / 2 + 2 * half, half + operands, warpgroups * teams);
  static constexpr int taken = 2 * half + (ahead ? half + operands : 0);
  using Sums = typename Shared::Sums;
  using Rows = typename Step::template Rows<down, 64 * of_rows>;

  template <int stages>
  struct Factors : Shared::template Factors<stages>, DepthExchanges<n, deep, teams> {
    typename Step::Table tables[stages];
  };

  /// Steps of a tile, one behind the other; the instructions of the last half are still under way at the end. `tile` counts
  /// tiles along m, `part` the warpgroup's part of its rows or of every step's columns.
  template <typename Params, typename Loaded, typename Pipeline, typename State>
  CUTLASS_DEVICE static void multiply(const Params& params, int tile, int steps, Loaded& factors, Pipeline& pipeline,
                                      State read, Sums& sums, int part) {
    const int part_of_rows = deep == 1 ? part : 0;
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int row = part_of_rows * 64 + thread / 32 * 16;
    const Rows rows(params.pixels, tile * m, row + lane / 4);
    // The same in all threads of a warp, which the compiler does not see.
    const int part_of_depth = deep == 1 ? 0 : __shfl_sync(0xffffffff, part, 0);
    Load<Loaded> load{params.prologue, factors, rows, row, lane};
    multiply_in_halves<Shared, Number, n, k, ahead, deep>(factors, pipeline, read, steps, sums, load, part_of_depth);
  }

  template <typename Pipeline, typename State>
  CUTLASS_DEVICE static void finish(Pipeline& pipeline, State release, int steps, Sums& sums) {
    Shared::finish(pipeline, release, steps, sums);
  }

  /// Of warpgroups that share the depth: the sums of all of it, of the columns that this one stores.
  template <typename Loaded>
  CUTLASS_DEVICE static auto added(Loaded& factors, const Sums& sums, int team, int part) {
    return factors.exchanges[team].added(sums, team, part);
  }

 private:
  /// Sixteen columns of a thread's rows.
  template <typename Loaded>
  struct Load {
    struct Fetched {
      LeftFragment x[down];
      typename Step::template Operands<down> operands;
    };
    const Prologue& prologue;
    const Loaded& factors;
    const Rows& rows;
    int row, lane;

    CUTLASS_DEVICE void fetch(int stage, int column, Fetched& to) const {
      const Half* const part = factors.x[stage][column / width][0];
      // Four 8 x 8 matrices: upper and lower, left first.
      const int matrix = lane / 8, chunk = column % width / 8 + matrix / 2;
#pragma unroll
      for (int i = 0; i < down; ++i) {
        const int at = swizzled<width>(i * of_rows * 64 + row + matrix % 2 * 8 + lane % 8, chunk);
        cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(part + at), to.x[i][0], to.x[i][1],
                                      to.x[i][2], to.x[i][3]);
      }
      to.operands.fetch(factors.tables[stage], rows, column + lane % 4 * 2);
    }
    CUTLASS_DEVICE void prepare(const Fetched& from, LeftFragment (&left)[down]) const {
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q) left[i][q] = from.x[i][q];
        Step::apply(prologue, from.operands, i, left[i]);
#pragma unroll
        // Computed before the instructions that read it are begun.
        for (int q = 0; q < 4; ++q) cute::warpgroup_fence_operand(left[i][q]);
      }
    }
  };
};

}  // namespace bolt::cutlass_kernels
