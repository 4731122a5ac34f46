// launch_gemm: matrix product on tensor cores.
#pragma once

#include "bolt_cutlass/output_op.h"
#include "cutlass/gemm/device/gemm_universal_with_broadcast.h"
#include "cutlass/gemm/kernel/default_gemm_universal.h"

namespace bolt::cutlass_kernels {

template <typename S, typename Stages>
void launch_whole_gemm(const GemmArguments& a, const Stages& stages, void* stream) {
  namespace gemm = ::cutlass::gemm;
  using RowMajor = ::cutlass::layout::RowMajor;
  using Half = typename S::Half;
  using Op = typename S::template Op<Stages>;
  using Device = gemm::device::GemmUniversalWithBroadcast<
      Half, RowMajor, Half, ::cutlass::layout::ColumnMajor, Half, RowMajor, float, ::cutlass::arch::OpClassTensorOp,
      typename S::Arch, typename S::Threadblock, typename S::Warp, typename S::Instruction, Op,
      gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, S::kStages, S::kLoads, S::kLoads,
      ::cutlass::arch::OpMultiplyAdd>;

  const auto mk = static_cast<std::int64_t>(a.m) * a.k, nk = static_cast<std::int64_t>(a.n) * a.k;
  const auto mn = static_cast<std::int64_t>(a.m) * a.n;
  const typename Device::Arguments arguments(gemm::GemmUniversalMode::kGemm, {a.m, a.n, a.k}, 1, {stages}, a.x,
                                             a.weights, a.residual, a.y, const_cast<float*>(a.bias), nullptr, mk, nk,
                                             mn, mn, 0, 0, a.x_row == 0 ? a.k : a.x_row, a.k,
                                             a.residual_row == 0 ? a.n : a.residual_row,
                                             a.y_row == 0 ? a.n : a.y_row, 0, 0);
  require(Device::can_implement(arguments), "matrix product");
  Device device;
  require(device.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream)), "matrix product");
  require(device(static_cast<cudaStream_t>(stream)), "matrix product");
}

/// Slices one behind the other in a.y. The kernel is launched as it is: CUTLASS's device layer wants a workspace here,
/// and clears it.
template <typename S>
void launch_gemm_slices(const GemmArguments& a, void* stream) {
  namespace gemm = ::cutlass::gemm;
  using RowMajor = ::cutlass::layout::RowMajor;
  using Half = typename S::Half;
  using Swizzle = gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;
  using Kernel = typename gemm::kernel::DefaultGemmUniversal<
      Half, RowMajor, ::cutlass::ComplexTransform::kNone, S::kLoads, Half, ::cutlass::layout::ColumnMajor,
      ::cutlass::ComplexTransform::kNone, S::kLoads, float, RowMajor, float, ::cutlass::arch::OpClassTensorOp,
      typename S::Arch, typename S::Threadblock, typename S::Warp, typename S::Instruction, typename S::PartialOp,
      Swizzle, S::kStages, ::cutlass::arch::OpMultiplyAdd>::GemmKernel;

  const auto mk = static_cast<std::int64_t>(a.m) * a.k, nk = static_cast<std::int64_t>(a.n) * a.k;
  const auto mn = static_cast<std::int64_t>(a.m) * a.n;
  const typename Kernel::Arguments arguments(gemm::GemmUniversalMode::kGemmSplitKParallel, {a.m, a.n, a.k}, a.slices,
                                             {}, a.x, a.weights, a.y, a.y, mk, nk, mn, mn, a.x_row == 0 ? a.k : a.x_row, a.k,
                                             a.n, a.n);
  require(Kernel::can_implement({a.m, a.n, a.k}), "matrix product");
  const typename Kernel::Params params(arguments, 1, 1);
  if (params.grid_tiled_shape.k() != a.slices)
    throw std::runtime_error("could not launch a matrix product: slices of its depth would not be whole loads");
  launch_kernel<Kernel, Swizzle>(params, stream, "matrix product");
}

template <int m, int n, int k, int warp_m, int warp_n, int stages_, int access, int instruction_k, int loads,
          typename Element, typename Stages>
void launch_gemm(Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k, loads, Element>, const GemmArguments& a,
                 const Stages& stages, void* stream) {
  using S = Shapes<Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k, loads, Element>>;
  if constexpr (std::is_same_v<Stages, Partial>)
    launch_gemm_slices<S>(a, stream);
  else
    launch_whole_gemm<S>(a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
