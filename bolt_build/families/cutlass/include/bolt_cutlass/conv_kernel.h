// launch_conv: implicit-GEMM convolution on tensor cores.
#pragma once

#include "bolt_cutlass/output_op.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
// Behind the kernel, which it needs and does not include.
#include "cutlass/conv/device/implicit_gemm_convolution.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, int warp_m, int warp_n, int stages_, int access, int instruction_k, typename Stages>
void launch_conv(Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k>, const ConvArguments& a,
                 const Stages& stages, void* stream) {
  namespace conv = ::cutlass::conv;
  using Layout = ::cutlass::layout::TensorNHWC;
  using S = Shapes<Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k>>;
  using Op = typename S::template Op<Stages>;
  using Kernel = typename conv::kernel::DefaultConv2dFpropWithBroadcast<
      Half, Layout, Half, Layout, Half, Layout, float, ::cutlass::arch::OpClassTensorOp, typename S::Arch,
      typename S::Threadblock, typename S::Warp, typename S::Instruction, Op,
      ::cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>, S::kStages, ::cutlass::arch::OpMultiplyAdd,
      conv::IteratorAlgorithm::kOptimized, conv::StrideSupport::kStrided, 8, 8>::Kernel;
  using Device = conv::device::ImplicitGemmConvolution<Kernel>;

  const conv::Conv2dProblemSize problem(a.batch, a.height, a.width, a.channels, a.out_channels, a.kernel_h, a.kernel_w,
                                        a.out_h, a.out_w, a.pad_h, a.pad_w, a.stride_h, a.stride_w, a.dilation_h,
                                        a.dilation_w, conv::Mode::kCrossCorrelation, 1, 1);
  const auto half = [](const void* at) { return static_cast<Half*>(const_cast<void*>(at)); };
  using Stride = Layout::Stride;
  const Layout x_layout(Stride(::cutlass::make_Coord(static_cast<int>(a.x_column), static_cast<int>(a.x_row),
                                                     static_cast<int>(a.x_image))));
  const Layout weights_layout = Layout::packed({a.out_channels, a.kernel_h, a.kernel_w, a.channels});
  const Layout y_layout = Layout::packed({a.batch, a.out_h, a.out_w, a.out_channels});
  const typename Device::Arguments arguments(
      problem, {half(a.x), x_layout}, {half(a.weights), weights_layout}, {half(a.residual), y_layout},
      {half(a.y), y_layout}, {stages}, conv::SplitKMode::kSerial, const_cast<float*>(a.bias), nullptr, 0, 0);
  require(Device::can_implement(arguments), "convolution");
  Device device;
  require(device.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream)), "convolution");
  require(device(static_cast<cudaStream_t>(stream)), "convolution");
}

}  // namespace bolt::cutlass_kernels
