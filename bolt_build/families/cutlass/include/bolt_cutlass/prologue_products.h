// Products whose left factor is transformed on its way from shared memory to the registers that the instructions read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/halved_steps.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/shared_depth.h"
#include "bolt_cutlass/swizzle.h"
#include "bolt_cutlass/warpgroup_products.h"
#include "bolt_portable/cuda/halves.h"
#include "cute/arch/copy_sm75.hpp"

namespace bolt::cutlass_kernels {

/// How `Prologue` transforms a left factor of `Number`s, of which a step of the pipeline holds `k` columns. `Table` is what of its
/// operands lies beside the factors of a step, `across` numbers for a column in each of its `rows`, `Rows` what a thread knows of its rows in a tile of `down` times 64 of them,
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
  struct Operands {
    float4 of[2];
  };

  CUTLASS_DEVICE static Operands operands(const Table& table, int column) {
    Operands found;
#pragma unroll
    for (int half = 0; half < 2; ++half) found.of[half] = table.of[column / 2 + half * 4];
    return found;
  }

  /// In fp32, rounded once.
  template <typename R>
  CUTLASS_DEVICE static void apply(const Affine<Function>& prologue, const Table&, const Operands& operands, const R&, int,
                                   int, LeftFragment& left) {
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
  struct Operands {};
  CUTLASS_DEVICE static Operands operands(const Table&, int) { return {}; }

  /// A product is rounded once. That of two bf16 is exact in fp32.
  template <typename R>
  CUTLASS_DEVICE static void apply(const Gate<images>&, const Table& table, const Operands&, const R& rows, int i,
                                   int column, LeftFragment& left) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const Half* const gates = &table.of[rows.image[i][q % 2]][column + q / 2 * 8];
      if constexpr (std::is_same_v<Number, portable::f16>) {
        const __half2 y = __hmul2(*reinterpret_cast<const __half2*>(&left[q]), *reinterpret_cast<const __half2*>(gates));
        left[q] = *reinterpret_cast<const std::uint32_t*>(&y);
      } else {
        const float2 x = portable::unpaired<Number>(left[q]);
        const float2 gate = portable::unpaired<Number>(*reinterpret_cast<const std::uint32_t*>(gates));
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
    multiply_in_halves<Shared, Number, n, k, deep>(
        factors, pipeline, read, steps, sums,
        [&](int stage, int column, LeftFragment (&left)[down]) {
          load(params.prologue, factors.x[stage], factors.tables[stage], rows, row, lane, column, left);
        },
        part_of_depth);
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
  /// Sixteen columns, from `column` on, of a thread's rows.
  CUTLASS_DEVICE static void load(const Prologue& prologue, const Half (&x)[parts][m][width],
                                  const typename Step::Table& table, const Rows& rows, int row, int lane, int column,
                                  LeftFragment (&left)[down]) {
    const auto operands = Step::operands(table, column + lane % 4 * 2);
    const Half* const part = x[column / width][0];
    // Four 8 x 8 matrices: upper and lower, left first.
    const int matrix = lane / 8, chunk = column % width / 8 + matrix / 2;
#pragma unroll
    for (int i = 0; i < down; ++i) {
      const int at = swizzled<width>(i * of_rows * 64 + row + matrix % 2 * 8 + lane % 8, chunk);
      cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(part + at), left[i][0], left[i][1],
                                    left[i][2], left[i][3]);
      Step::apply(prologue, table, operands, rows, i, column + lane % 4 * 2, left[i]);
#pragma unroll
      // Computed before the instructions that read it are begun.
      for (int q = 0; q < 4; ++q) cute::warpgroup_fence_operand(left[i][q]);
    }
  }
};

}  // namespace bolt::cutlass_kernels
