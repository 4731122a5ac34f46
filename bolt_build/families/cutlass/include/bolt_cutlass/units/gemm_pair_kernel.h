// launch_gemm of pairs on tensor-core instructions of one warp.
#pragma once

#include "bolt_cutlass/pair_kernel.h"
#include "kernel/default_b2b_gemm.h"
#include "kernel/default_b2b_gemm_smem_accumulator.h"

namespace bolt::cutlass_kernels {

/// The rows and both weights of a pair of matrix products.
template <typename S, typename Between>
struct PairedRows {
  using Half = typename S::Half;
  using RowMajor = ::cutlass::layout::RowMajor;
  using ColumnMajor = ::cutlass::layout::ColumnMajor;
  using Mma = typename ::cutlass::gemm::kernel::DefaultB2bGemm<
      Half, RowMajor, 8, Half, ColumnMajor, 8, Half, RowMajor, float, ::cutlass::arch::OpClassTensorOp,
      typename S::Arch, typename S::Threadblock, typename S::SecondThreadblock, typename S::Warp,
      typename S::SecondWarp, typename S::Instruction, BetweenOp<Between, Half>, typename S::UnusedOp, typename S::Swizzle,
      S::kStages, ::cutlass::arch::OpMultiplyAdd, S::kShared>::B2bMma;

  int m, n, k, depth, second_n;
  typename Mma::IteratorA0::Params x_params;
  typename Mma::IteratorB0::Params weights_params;
  typename Mma::IteratorB1::Params second_params;
  Half *x, *weights, *second_weights;

  template <typename Sums, typename Bias, typename None>
  CUTLASS_DEVICE void multiply(typename Mma::B2bMmaSharedStorage& storage, const ::cutlass::MatrixCoord& corner,
                               int thread, int warp, int lane, Sums& sums, const Bias& scale, const Bias& bias,
                               const None& none, const BetweenOp<Between, Half>& between) const {
    Mma(storage, thread, warp, lane, n)(
        (k + S::Threadblock::kK - 1) / S::Threadblock::kK, sums,
        typename Mma::IteratorA0(x_params, x, {m, k}, thread, corner),
        typename Mma::IteratorB0(weights_params, weights, {k, n}, thread, {0, 0}), scale, bias,
        typename Mma::IteratorB1(second_params, second_weights, {depth, second_n}, thread, {0, 0}), none, between);
  }
};

template <int m, int n0, int n1, int k, int warp_m, int warp_n0, int warp_n1, int stages, bool shared, int access,
          int instruction_k, typename Element, typename Between, typename After>
void launch_gemm(Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>,
                 const GemmArguments& first, const SecondArguments& second, const Between& between, const After& after,
                 void* stream) {
  using S = PairShapes<Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>>;
  using Factors = PairedRows<S, Between>;
  using Half = typename S::Half;
  using ColumnMajor = ::cutlass::layout::ColumnMajor;
  // Of several steps through the second weights, these mainloops take a part one first; the rows' are in order.
  if (first.n != n0 && n0 != k)
    throw std::runtime_error("could not launch a pair of matrix products: a first one of " + std::to_string(first.n) +
                             " columns needs a tile as wide, not of " + std::to_string(n0) + " in steps of " +
                             std::to_string(k));
  const int depth = (first.n + 7) / 8 * 8;
  const Factors factors{first.m,
                        first.n,
                        first.k,
                        depth,
                        second.n,
                        {::cutlass::layout::RowMajor(first.x_row == 0 ? first.k : first.x_row)},
                        {ColumnMajor(first.k)},
                        {ColumnMajor(depth)},
                        tensor<Half>(first.x),
                        tensor<Half>(first.weights),
                        tensor<Half>(second.weights)};
  launch_pair<Factors, S>(factors, first, first.m, first.n, second, between, after, stream, "pair of matrix products");
}

}  // namespace bolt::cutlass_kernels
