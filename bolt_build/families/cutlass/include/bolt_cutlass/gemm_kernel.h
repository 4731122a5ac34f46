// launch_gemm: matrix product on tensor cores.
#pragma once

#include "bolt_cutlass/output_op.h"
#include "cutlass/gemm/device/gemm_universal_with_broadcast.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, int warp_m, int warp_n, int stages_, int access, int instruction_k, typename Stages>
void launch_gemm(Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k>, const GemmArguments& a,
                 const Stages& stages, void* stream) {
  namespace gemm = ::cutlass::gemm;
  using RowMajor = ::cutlass::layout::RowMajor;
  using S = Shapes<Tile<m, n, k, warp_m, warp_n, stages_, access, instruction_k>>;
  using Op = typename S::template Op<Stages>;
  using Device = gemm::device::GemmUniversalWithBroadcast<
      Half, RowMajor, Half, ::cutlass::layout::ColumnMajor, Half, RowMajor, float, ::cutlass::arch::OpClassTensorOp,
      typename S::Arch, typename S::Threadblock, typename S::Warp, typename S::Instruction, Op,
      gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, S::kStages, 8, 8, ::cutlass::arch::OpMultiplyAdd>;

  const auto mk = static_cast<std::int64_t>(a.m) * a.k, nk = static_cast<std::int64_t>(a.n) * a.k;
  const auto mn = static_cast<std::int64_t>(a.m) * a.n;
  const typename Device::Arguments arguments(gemm::GemmUniversalMode::kGemm, {a.m, a.n, a.k}, 1, {stages}, a.x,
                                             a.weights, a.residual, a.y, const_cast<float*>(a.bias), nullptr, mk, nk,
                                             mn, mn, 0, 0, a.k, a.k, a.n, a.n, 0, 0);
  require(Device::can_implement(arguments), "matrix product");
  Device device;
  require(device.initialize(arguments, nullptr, static_cast<cudaStream_t>(stream)), "matrix product");
  require(device(static_cast<cudaStream_t>(stream)), "matrix product");
}

}  // namespace bolt::cutlass_kernels
