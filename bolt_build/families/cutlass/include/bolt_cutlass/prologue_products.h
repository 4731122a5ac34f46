// Products whose left factor is transformed on its way from shared memory to the registers that the instructions read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "bolt_cutlass/halved_steps.h"
#include "bolt_cutlass/launch.h"
#include "bolt_cutlass/swizzle.h"
#include "bolt_cutlass/warpgroup_products.h"
#include "bolt_portable/cuda/halves.h"
#include "cute/arch/copy_sm75.hpp"

namespace bolt::cutlass_kernels {

/// How `Prologue` transforms a left factor of `Number`s, of which a step of the pipeline holds `k` columns. `Table` is what of its
/// operands lies beside the factors of a step, `Rows` what a thread knows of its rows in a tile of `down` times 64 of them,
/// `between` apart.
template <typename Prologue, int k, typename Number>
struct PrologueStep;

template <typename Function, int k, typename Number>
struct PrologueStep<Affine<Function>, k, Number> {
  using Element = float;
  static constexpr int rows = 2;
  struct Table {
    alignas(128) float of[rows][k];
  };
  template <int down, int between>
  struct Rows {
    CUTLASS_DEVICE Rows(int, int, int) {}
  };
  /// Scale and shift of a thread's four columns.
  struct Operands {
    float2 scale[2], shift[2];
  };

  CUTLASS_DEVICE static Operands operands(const Table& table, int column) {
    Operands found;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      found.scale[half] = *reinterpret_cast<const float2*>(&table.of[0][column + half * 8]);
      found.shift[half] = *reinterpret_cast<const float2*>(&table.of[1][column + half * 8]);
    }
    return found;
  }

  /// In fp32, rounded once.
  template <typename R>
  CUTLASS_DEVICE static void apply(const Affine<Function>& prologue, const Table&, const Operands& operands, const R&, int,
                                   int, LeftFragment& left) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 x = portable::unpaired<Number>(left[q]);
      const float2 scale = operands.scale[q / 2], shift = operands.shift[q / 2];
      left[q] = portable::paired<Number>(prologue.function(fmaf(x.x, scale.x, shift.x), 0.0f),
                                         prologue.function(fmaf(x.y, scale.y, shift.y), 0.0f));
    }
  }
};

template <int images, int k, typename Number>
struct PrologueStep<Gate<images>, k, Number> {
  using Element = Half;
  static constexpr int rows = images;
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

/// The left factor of a tile of m x n goes through registers, half a step at a time: one half is transformed while the
/// instructions of the other one run.
template <int m, int n, int k, bool cooperative, typename Prologue, typename Number>
struct PrologueProducts {
  using Shared = SharedProducts<m, n, k, cooperative, Number>;
  using Step = PrologueStep<Prologue, k, Number>;
  static constexpr int warpgroups = Shared::warpgroups, down = Shared::down, width = Shared::width, parts = Shared::parts;
  static constexpr int stage_bytes = Shared::stage_bytes + static_cast<int>(sizeof(typename Step::Table));
  static constexpr bool has_table = true, completes = false;
  using Sums = typename Shared::Sums;
  using Rows = typename Step::template Rows<down, 64 * warpgroups>;

  template <int stages>
  struct Factors : Shared::template Factors<stages> {
    typename Step::Table tables[stages];
  };

  /// Steps of a tile, one behind the other; the instructions of the last half are still under way at the end. `tile` counts
  /// tiles along m.
  template <typename Params, typename Loaded, typename Pipeline, typename State>
  CUTLASS_DEVICE static void multiply(const Params& params, int tile, int steps, Loaded& factors, Pipeline& pipeline,
                                      State read, Sums& sums, int part_of_rows) {
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int row = part_of_rows * 64 + thread / 32 * 16;
    const Rows rows(params.pixels, tile * m, row + lane / 4);
    multiply_in_halves<Shared, Number, n, k>(
        factors, pipeline, read, steps, sums, [&](int stage, int column, LeftFragment (&left)[down]) {
          load(params.prologue, factors.x[stage], factors.tables[stage], rows, row, lane, column, left);
        });
  }

  template <typename Pipeline, typename State>
  CUTLASS_DEVICE static void finish(Pipeline& pipeline, State release, int steps, Sums& sums) {
    Shared::finish(pipeline, release, steps, sums);
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
      const int at = swizzled<width>(i * warpgroups * 64 + row + matrix % 2 * 8 + lane % 8, chunk);
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
