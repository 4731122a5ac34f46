// Two products of which one is a gate of the other, on tensor-core instructions of one warp: CUTLASS's mainloop and its
// epilogue with a broadcast, and in between the gate, in registers.
#pragma once

#include "bolt_cutlass/output_op.h"
#include "cutlass/epilogue/threadblock/default_epilogue_simt.h"
#include "cutlass/epilogue/threadblock/default_epilogue_tensor_op.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
#include "cutlass/gemm/warp/default_mma_tensor_op.h"
// Behind the epilogues, which it needs and does not include.
#include "cutlass/epilogue/threadblock/default_epilogue_with_broadcast.h"

namespace bolt::cutlass_kernels {

using GatedSwizzle = ::cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;

/// A block computes a tile of the product, eight columns of a and eight of b in turns, and stores one half as wide. `Factors`
/// says how the mainloop reads the factors.
template <typename Factors, typename S, typename Gate>
struct GatedKernel {
  using Half = typename S::Half;
  using Mma = typename Factors::Mma;
  using WarpCount = typename Mma::WarpCount;
  using After = decltype(Gate::after);
  using Last = typename S::template Op<After>;
  static constexpr int m = S::Threadblock::kM, n = S::Threadblock::kN, warp_m = S::Warp::kM, warp_n = S::Warp::kN;
  using HalvedWarp = ::cutlass::gemm::GemmShape<warp_m, warp_n / 2, S::Warp::kK>;
  using HalvedMma = typename ::cutlass::gemm::warp::DefaultMmaTensorOp<
      HalvedWarp, typename S::Instruction, Half, typename Mma::Operator::LayoutA, Half, typename Mma::Operator::LayoutB,
      float, ::cutlass::layout::RowMajor, ::cutlass::arch::OpMultiplyAdd, 1>::Type;
  using Epilogue = typename ::cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastTensorOp<
      ::cutlass::gemm::GemmShape<m, n / 2, S::Threadblock::kK>, HalvedMma, 1, Half, Half, float, Last,
      Last::kElementsPerAccess>::Epilogue;
  static_assert(warp_n % 32 == 0, "a warp has both sides of its results");

  struct Params {
    Factors factors;
    ::cutlass::gemm::GemmCoord grid_tiled_shape;
    int swizzle;
    int rows, columns;
    const float* bias;
    Half* residual;
    Half* y;
    typename Epilogue::OutputTileIterator::Params added, stored;
    Gate gate;
  };
  union SharedStorage {
    typename Mma::SharedStorage main_loop;
    typename Epilogue::SharedStorage epilogue;
  };

  CUTLASS_DEVICE void operator()(const Params& params, SharedStorage& storage) {
    const ::cutlass::gemm::GemmCoord tile = GatedSwizzle().get_tile_offset(params.swizzle);
    if (params.grid_tiled_shape.m() <= tile.m() || params.grid_tiled_shape.n() <= tile.n()) return;
    const int thread = threadIdx.x, lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same for all lanes, and known to be

    typename Mma::FragmentC sums;
    sums.clear();
    params.factors.multiply(storage.main_loop, tile.m() * m, tile.n() * n, thread, warp, lane, sums);
    const int column = tile.n() * n + warp / WarpCount::kM * warp_n + lane % 4 * 2;
    const typename HalvedMma::FragmentC results = gated(params, sums, column);

    const ::cutlass::MatrixCoord corner(tile.m() * m, tile.n() * (n / 2)), extent(params.rows, params.columns / 2);
    using Out = typename Epilogue::OutputTileIterator;
    typename Epilogue::TensorTileIterator nothing(params.added, nullptr, extent, thread, corner);
    Epilogue(storage.epilogue, thread, warp, lane)(
        Last({params.gate.after}), nullptr, Out(params.stored, params.y, extent, thread, corner), results,
        Out(params.added, params.residual, extent, thread, corner), nothing, extent, corner);
  }

 private:
  /// The sums of a warp, instruction by instruction: 16 rows by 8 columns, of which a lane has two neighbours in each of two
  /// rows, one below the other, then those beside them. `column` is the lane's first.
  CUTLASS_DEVICE static typename HalvedMma::FragmentC gated(const Params& params, const typename Mma::FragmentC& sums,
                                                            int column) {
    constexpr int down = warp_m / 16;
    static_assert(sizeof(sums) == sizeof(float) * down * (warp_n / 8) * 4);
    typename HalvedMma::FragmentC results;
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < warp_n / 16; ++pair) {
      float2 bias[2];
      CUTLASS_PRAGMA_UNROLL
      for (int side = 0; side < 2; ++side) {
        const int c = column + pair * 16 + side * 8;
        const bool there = Gate::reads_bias && params.bias != nullptr && c < params.columns;
        bias[side] = there ? __ldg(reinterpret_cast<const float2*>(params.bias + c)) : make_float2(0.0f, 0.0f);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < down; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int q = 0; q < 4; ++q) {
          const float a = sums[(pair * 2 * down + i) * 4 + q], b = sums[((pair * 2 + 1) * down + i) * 4 + q];
          const float more = q % 2 ? bias[0].y : bias[0].x, other = q % 2 ? bias[1].y : bias[1].x;
          results[(pair * down + i) * 4 + q] =
              Gate::reads_bias ? params.gate.gated(a + more, b + other) : params.gate.gated(a, b);
        }
      }
    }
    return results;
  }
};

/// Queues the kernel of a gated product of `rows` and `columns`, both sides' together. Throws std::runtime_error naming `what`.
template <typename Factors, typename S, typename Arguments, typename Gate>
void launch_gated(const Factors& factors, const Arguments& a, int rows, int columns, const Gate& gate, void* stream,
                  const char* what) {
  using Kernel = GatedKernel<Factors, S, Gate>;
  const ::cutlass::gemm::GemmCoord blocks((rows + Kernel::m - 1) / Kernel::m, (columns + Kernel::n - 1) / Kernel::n, 1);
  const ::cutlass::layout::RowMajor added(a.residual_row == 0 ? columns / 2 : a.residual_row),
      stored(a.y_row == 0 ? columns / 2 : a.y_row);
  const typename Kernel::Params params{
      factors, blocks, GatedSwizzle().get_log_tile(blocks), rows, columns, a.bias, tensor<typename S::Half>(a.residual),
      tensor<typename S::Half>(a.y), {added}, {stored}, gate};
  launch_kernel<Kernel, GatedSwizzle>(params, stream, what);
}

}  // namespace bolt::cutlass_kernels
