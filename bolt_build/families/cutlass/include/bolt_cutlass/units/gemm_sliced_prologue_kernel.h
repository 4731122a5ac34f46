// launch_gemm with a prologue on WGMMA, the depth shared by the blocks of a cluster: each transforms its own part of the left
// factor.
#pragma once

#include "bolt_cutlass/units/gemm_prologue_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/sliced_warpgroup_kernel.h"

namespace bolt::cutlass_kernels {

template <int n, int k, int slices, typename Number, typename Prologue, typename Stages>
void launch_gemm(SlicedPrologue<n, k, slices, Number>, const GemmArguments& a, const PrologueArguments& before,
                 const Prologue& prologue, const Stages& stages, void* stream) {
  using Products = PrologueProducts<64, n, k, false, Prologue, Number, 1>;
  using Loads = PrologueLoads<64, n, k, Prologue, Number>;
  using Kernel = typename SlicedKernelOf<Loads, n, k, slices, Number, Stages, Products>::Type;
  const SlicedResult<Stages> result{a.bias, a.residual, a.y, a.y_row == 0 ? a.n : a.y_row,
                                    a.residual_row == 0 ? a.n : a.residual_row, stages};
  launch<Kernel>({{a, before, prologue}, result, a.m, a.n, (a.k + k - 1) / k}, a.overlap, stream,
                 "matrix product with a prologue");
}

}  // namespace bolt::cutlass_kernels
