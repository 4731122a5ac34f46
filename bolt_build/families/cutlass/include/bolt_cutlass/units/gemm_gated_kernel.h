// launch_gemm of gated matrix products on tensor-core instructions of one warp.
#pragma once

#include "bolt_cutlass/gated_kernel.h"
#include "bolt_cutlass/units/gemm_kernel.h"

namespace bolt::cutlass_kernels {

/// The rows and the weights of both sides.
template <typename S>
struct GatedRows {
  using Half = typename S::Half;
  using RowMajor = ::cutlass::layout::RowMajor;
  using ColumnMajor = ::cutlass::layout::ColumnMajor;
  using Mma = typename ::cutlass::gemm::threadblock::DefaultMma<
      Half, RowMajor, S::kLoads, Half, ColumnMajor, S::kLoads, float, RowMajor, ::cutlass::arch::OpClassTensorOp,
      typename S::Arch, typename S::Threadblock, typename S::Warp, typename S::Instruction, S::kStages,
      ::cutlass::arch::OpMultiplyAdd>::ThreadblockMma;

  int m, n, k;
  typename Mma::IteratorA::Params x_params;
  typename Mma::IteratorB::Params weights_params;
  Half *x, *weights;

  template <typename Sums>
  CUTLASS_DEVICE void multiply(typename Mma::SharedStorage& storage, int row, int column, int thread, int warp, int lane,
                               Sums& sums) const {
    Mma(storage, thread, warp, lane)((k + S::Threadblock::kK - 1) / S::Threadblock::kK, sums,
                                     typename Mma::IteratorA(x_params, x, {m, k}, thread, {row, 0}),
                                     typename Mma::IteratorB(weights_params, weights, {k, n}, thread, {0, column}), sums);
  }
};

template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads,
          typename Element, typename First, typename Second, typename After, bool biased>
void launch_gemm(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>, const GemmArguments& a,
                 const Gated<First, Second, After, biased>& gate, void* stream) {
  using S = Shapes<Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>>;
  using Half = typename S::Half;
  const GatedRows<S> factors{a.m,
                             a.n,
                             a.k,
                             {::cutlass::layout::RowMajor(a.x_row == 0 ? a.k : a.x_row)},
                             {::cutlass::layout::ColumnMajor(a.k)},
                             tensor<Half>(a.x),
                             tensor<Half>(a.weights)};
  launch_gated<GatedRows<S>, S>(factors, a, a.m, a.n, gate, stream, "gated matrix product");
}

}  // namespace bolt::cutlass_kernels
