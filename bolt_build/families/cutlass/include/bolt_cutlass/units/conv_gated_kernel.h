// launch_conv of gated convolutions on tensor-core instructions of one warp.
#pragma once

#include "bolt_cutlass/units/conv_kernel.h"
#include "bolt_cutlass/gated_kernel.h"

namespace bolt::cutlass_kernels {

/// A convolution's windows and the weights of both sides.
template <typename S>
struct GatedWindows {
  using Half = typename S::Half;
  using Mma = typename ::cutlass::conv::kernel::DefaultConv2dFprop<
      Half, Channels, Half, Channels, float, Channels, float, ::cutlass::arch::OpClassTensorOp, typename S::Arch,
      typename S::Threadblock, typename S::Warp, typename S::Instruction, typename S::PartialOp, ConvSwizzle, S::kStages,
      ::cutlass::arch::OpMultiplyAdd, ::cutlass::conv::IteratorAlgorithm::kOptimized,
      ::cutlass::conv::StrideSupport::kStrided, S::kLoads, S::kLoads>::Kernel::Mma;

  ::cutlass::conv::Conv2dProblemSize problem;
  typename Mma::IteratorA::Params x_params;
  typename Mma::IteratorB::Params weights_params;
  Half *x, *weights;
  int steps;

  template <typename Sums>
  CUTLASS_DEVICE void multiply(typename Mma::SharedStorage& storage, int row, int column, int thread, int warp, int lane,
                               Sums& sums) const {
    Mma(storage, thread, warp, lane)(steps, sums, typename Mma::IteratorA(x_params, problem, x, thread, {row, 0}),
                                     typename Mma::IteratorB(weights_params, problem, weights, thread, {0, column}), sums);
  }
};

template <int m, int n, int k, int warp_m, int warp_n, int stages, int access, int instruction_k, int loads,
          typename Element, typename First, typename Second, typename After, bool biased>
void launch_conv(Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>, const ConvArguments& a,
                 const Gated<First, Second, After, biased>& gate, void* stream) {
  using S = Shapes<Tile<m, n, k, warp_m, warp_n, stages, access, instruction_k, loads, Element>>;
  using Half = typename S::Half;
  using Factors = GatedWindows<S>;
  using Mma = typename Factors::Mma;
  const ::cutlass::conv::Conv2dProblemSize problem = problem_size(a);
  require(Mma::IteratorA::can_implement(problem), "gated convolution");
  require(Mma::IteratorB::can_implement(problem), "gated convolution");
  const Factors factors{problem,
                        Mma::IteratorA::getParams(problem, x_layout(a)),
                        {problem, weights_layout(a)},
                        tensor<Half>(a.x),
                        tensor<Half>(a.weights),
                        ::cutlass::conv::implicit_gemm_k_iterations(::cutlass::conv::Operator::kFprop, k, problem)};
  launch_gated<Factors, S>(factors, a, a.batch * a.out_h * a.out_w, a.out_channels, gate, stream, "gated convolution");
}

}  // namespace bolt::cutlass_kernels
