// launch_conv: implicit-GEMM convolution on tensor cores.
#pragma once

#include "bolt_cutlass/output_op.h"
#include "cutlass/conv/kernel/default_conv2d_fprop.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
// Behind the kernels, which it needs and does not include.
#include "cutlass/conv/device/implicit_gemm_convolution.h"

namespace bolt::cutlass_kernels {

using Channels = ::cutlass::layout::TensorNHWC;
using ConvSwizzle = ::cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>;

inline ::cutlass::conv::Conv2dProblemSize problem_size(const ConvArguments& a) {
  return {a.batch, a.height, a.width, a.channels, a.out_channels, a.kernel_h, a.kernel_w, a.out_h, a.out_w, a.pad_h,
          a.pad_w, a.stride_h, a.stride_w, a.dilation_h, a.dilation_w, ::cutlass::conv::Mode::kCrossCorrelation,
          a.slices, 1};
}
inline Channels x_layout(const ConvArguments& a) {
  return Channels(Channels::Stride(::cutlass::make_Coord(static_cast<int>(a.x_column), static_cast<int>(a.x_row),
                                                         static_cast<int>(a.x_image))));
}
inline Channels weights_layout(const ConvArguments& a) {
  return Channels::packed({a.out_channels, a.kernel_h, a.kernel_w, a.channels});
}
inline Channels y_layout(const ConvArguments& a) {
  return Channels::packed({a.batch, a.out_h, a.out_w, a.out_channels});
}
/// As `y_layout`, with rows of channels `row` elements apart (0: dense).
inline Channels y_layout(const ConvArguments& a, int row) {
  return Channels::packed({a.batch, a.out_h, a.out_w, row == 0 ? a.out_channels : row});
}

template <typename S, typename Stages>
void launch_whole_conv(const ConvArguments& a, const Stages& stages, void* stream) {
  namespace conv = ::cutlass::conv;
  using Half = typename S::Half;
  using Kernel = typename conv::kernel::DefaultConv2dFpropWithBroadcast<
      Half, Channels, Half, Channels, Half, Channels, float, ::cutlass::arch::OpClassTensorOp, typename S::Arch,
      typename S::Threadblock, typename S::Warp, typename S::Instruction, typename S::template Op<Stages>, ConvSwizzle,
      S::kStages, ::cutlass::arch::OpMultiplyAdd, conv::IteratorAlgorithm::kOptimized, conv::StrideSupport::kStrided,
      S::kLoads, S::kLoads>::Kernel;
  using Device = conv::device::ImplicitGemmConvolution<Kernel>;

  const typename Device::Arguments arguments(
      problem_size(a), {tensor<Half>(a.x), x_layout(a)}, {tensor<Half>(a.weights), weights_layout(a)},
      {tensor<Half>(a.residual), y_layout(a, a.residual_row)}, {tensor<Half>(a.y), y_layout(a, a.y_row)}, {stages},
      conv::SplitKMode::kSerial, const_cast<float*>(a.bias), nullptr, 0, 0);
  require(Device::can_implement(arguments), "convolution");
  Device device;
  require(device.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream)), "convolution");
  require(device(static_cast<cudaStream_t>(stream)), "convolution");
}

/// Slices one behind the other in a.y. The kernel is launched as it is: CUTLASS's device layer wants a workspace here,
/// and clears it.
template <typename S>
void launch_conv_slices(const ConvArguments& a, void* stream) {
  namespace conv = ::cutlass::conv;
  using Half = typename S::Half;
  using Kernel = typename conv::kernel::DefaultConv2dFprop<
      Half, Channels, Half, Channels, float, Channels, float, ::cutlass::arch::OpClassTensorOp, typename S::Arch,
      typename S::Threadblock, typename S::Warp, typename S::Instruction, typename S::PartialOp, ConvSwizzle,
      S::kStages, ::cutlass::arch::OpMultiplyAdd, conv::IteratorAlgorithm::kOptimized, conv::StrideSupport::kStrided,
      S::kLoads, S::kLoads>::Kernel;
  using Device = conv::device::ImplicitGemmConvolution<Kernel>;

  float* const sums = static_cast<float*>(a.y);
  const typename Device::Arguments arguments(problem_size(a), {tensor<Half>(a.x), x_layout(a)},
                                             {tensor<Half>(a.weights), weights_layout(a)}, {sums, y_layout(a)},
                                             {sums, y_layout(a)}, {}, conv::SplitKMode::kParallel);
  require(Device::can_implement(arguments), "convolution");
  launch_kernel<Kernel, ConvSwizzle>(typename Kernel::Params(arguments, nullptr), stream, "convolution");
}

template <int m, int n, int k, int warp_m, int warp_n, int stages_, int access, int instruction_k, int loads,
          typename Element, typename Stages>
void launch_conv(Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k, loads, Element>, const ConvArguments& a,
                 const Stages& stages, void* stream) {
  using S = Shapes<Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k, loads, Element>>;
  if constexpr (std::is_same_v<Stages, Partial>)
    launch_conv_slices<S>(a, stream);
  else
    launch_whole_conv<S>(a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
