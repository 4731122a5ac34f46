// launch_conv of pairs on tensor-core instructions of one warp.
#pragma once

#include "bolt_cutlass/units/conv_kernel.h"
#include "bolt_cutlass/pair_kernel.h"
#include "kernel/default_b2b_conv2d_fprop.h"
#include "kernel/default_b2b_conv2d_fprop_sm75.h"
#include "kernel/default_b2b_conv2d_fprop_sm80.h"
#include "kernel/default_b2b_conv2d_fprop_smem_accumulator_sm75.h"
#include "kernel/default_b2b_conv2d_fprop_smem_accumulator_sm80.h"

namespace bolt::cutlass_kernels {

/// A convolution's windows and weights, and weights of a convolution of single positions behind it.
template <typename S, typename Between>
struct PairedWindows {
  using Half = typename S::Half;
  using Mma = typename ::cutlass::conv::kernel::DefaultB2bConv2dFprop<
      Half, Channels, Half, Channels, Half, Channels, float, ::cutlass::arch::OpClassTensorOp, typename S::Arch,
      typename S::Threadblock, typename S::SecondThreadblock, typename S::Warp, typename S::SecondWarp,
      typename S::Instruction, BetweenOp<Between, Half>, typename S::UnusedOp, typename S::Swizzle, S::kStages,
      ::cutlass::arch::OpMultiplyAdd, ::cutlass::conv::IteratorAlgorithm::kOptimized, S::kShared>::B2bMma;

  ::cutlass::conv::Conv2dProblemSize problem, second_problem;
  typename Mma::IteratorA0::Params x_params;
  typename Mma::IteratorB0::Params weights_params;
  typename Mma::IteratorB1::Params second_params;
  Half *x, *weights, *second_weights;
  int steps;

  template <typename Sums, typename Bias, typename None>
  CUTLASS_DEVICE void multiply(typename Mma::B2bMmaSharedStorage& storage, const ::cutlass::MatrixCoord& corner,
                               int thread, int warp, int lane, Sums& sums, const Bias& scale, const Bias& bias,
                               const None& none, const BetweenOp<Between, Half>& between) const {
    Mma(storage, thread, warp, lane)(
        steps, sums, typename Mma::IteratorA0(x_params, problem, x, thread, corner),
        typename Mma::IteratorB0(weights_params, problem, weights, thread, {0, 0}), scale, bias,
        typename Mma::IteratorB1(second_params, second_problem, second_weights, thread, {0, 0}), none, between);
  }
};

template <int m, int n0, int n1, int k, int warp_m, int warp_n0, int warp_n1, int stages, bool shared, int access,
          int instruction_k, typename Element, typename Between, typename After>
void launch_conv(Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>,
                 const ConvArguments& first, const SecondArguments& second, const Between& between, const After& after,
                 void* stream) {
  using S = PairShapes<Pair<m, n0, n1, k, warp_m, warp_n0, warp_n1, stages, shared, access, instruction_k, Element>>;
  using Factors = PairedWindows<S, Between>;
  using Half = typename S::Half;
  using Mma = typename Factors::Mma;
  const ::cutlass::conv::Conv2dProblemSize problem = problem_size(first);
  const int depth = (first.out_channels + 7) / 8 * 8;
  const ::cutlass::conv::Conv2dProblemSize behind(first.batch, first.out_h, first.out_w, depth, second.n, 1, 1,
                                                  first.out_h, first.out_w, 0, 0, 1, 1, 1, 1,
                                                  ::cutlass::conv::Mode::kCrossCorrelation, 1, 1);
  require(Mma::IteratorA0::can_implement(problem), "pair of convolutions");
  require(Mma::IteratorB0::can_implement(problem), "pair of convolutions");
  require(Mma::IteratorB1::can_implement(behind), "pair of convolutions");
  const Factors factors{problem,
                        behind,
                        Mma::IteratorA0::getParams(problem, x_layout(first)),
                        {problem, weights_layout(first)},
                        {behind, Channels::packed({second.n, 1, 1, depth})},
                        tensor<Half>(first.x),
                        tensor<Half>(first.weights),
                        tensor<Half>(second.weights),
                        ::cutlass::conv::implicit_gemm_k_iterations(::cutlass::conv::Operator::kFprop, k, problem)};
  launch_pair<Factors, S>(factors, first, first.batch * first.out_h * first.out_w, first.out_channels, second, between,
                          after, stream, "pair of convolutions");
}

}  // namespace bolt::cutlass_kernels
