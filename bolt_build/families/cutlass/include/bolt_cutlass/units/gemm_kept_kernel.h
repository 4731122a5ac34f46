// launch_gemm on WGMMA for products that store their results and what a function makes of them.
#pragma once

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/kept_rows.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int teams, typename Element, typename First, typename Second>
void launch_kept(WarpgroupTile<m, n, k, cooperative, 1, 1, teams, Element>, const GemmArguments& a,
                 const KeptEpilogue<First, Second>& stages, void* stream) {
  using Store = KeptStore<m, n, k, cooperative, First, Second, teams, Element>;
  using Kernel = WarpgroupKernel<MatrixLoads<m, n, k, 1, 1>, Store, m, n, k, cooperative, 1, 1,
                                 stages_beside<Store, m, n, k>, SharedProducts<m, n, k, cooperative, Element>, teams>;
  const int rows = a.m;
  const KeptRows<Second, Element> both{{}, KeptResults<Second, Element>::of(a, a.n, stages.second), rows};
  launch<Kernel>({a, {a.bias, a.residual, a.y, stages.first, a.y_row, a.residual_row, both}, rows, a.n,
                  (a.k + k - 1) / k, 1, a.swizzle, a.along},
                 a.overlap, stream, "matrix product");
}

template <typename Tile, typename First, typename Second>
void launch_gemm(KeptTile<Tile>, const GemmArguments& a, const KeptEpilogue<First, Second>& stages, void* stream) {
  launch_kept(Tile{}, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
