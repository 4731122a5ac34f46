// launch_gemm on WGMMA, the depth shared by the blocks of a cluster.
#pragma once

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/sliced_warpgroup_kernel.h"

namespace bolt::cutlass_kernels {

template <int n, int k, int slices, typename Element, typename Stages>
void launch_gemm(SlicedTile<n, k, slices, Element>, const GemmArguments& a, const Stages& stages, void* stream) {
  using Kernel = typename SlicedKernelOf<MatrixLoads<64, n, k, 1, 1>, n, k, slices, Element, Stages>::Type;
  const SlicedResult<Stages> result{a.bias, a.residual, a.y, a.y_row == 0 ? a.n : a.y_row,
                                    a.residual_row == 0 ? a.n : a.residual_row, stages};
  launch<Kernel>({a, result, a.m, a.n, (a.k + k - 1) / k}, a.overlap, stream, "matrix product");
}

}  // namespace bolt::cutlass_kernels
