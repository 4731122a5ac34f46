// launch_gemm on WGMMA for products whose rows become pixels of a larger image, as those of a transposed convolution.
#pragma once

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/shuffled_rows.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int teams, typename Element, typename Stages>
void launch_shuffled(WarpgroupTile<m, n, k, cooperative, 1, 1, teams, Element>, const GemmArguments& a, const Stages& stages,
                     void* stream) {
  using Store = ShuffledStore<m, n, k, cooperative, Stages, teams, Element>;
  using Kernel = WarpgroupKernel<MatrixLoads<m, n, k, 1, 1>, Store, m, n, k, cooperative, 1, 1,
                                 stages_beside<Store, m, n, k>, SharedProducts<m, n, k, cooperative, Element>, teams>;
  const ShuffledRows rows(a.shuffle, a.m / (a.shuffle.height * a.shuffle.width), a.n, a.y, a.y_row);
  launch<Kernel>({a, {a.bias, nullptr, a.y, stages, a.y_row, 0, rows}, a.m, a.n, (a.k + k - 1) / k, 1, a.swizzle, a.along},
                 a.overlap, stream, "matrix product");
}

template <typename Tile, typename Stages>
void launch_gemm(ShuffledTile<Tile>, const GemmArguments& a, const Stages& stages, void* stream) {
  static_assert(!Stages::reads_residual, "a residual is of pixels, not of positions");
  launch_shuffled(Tile{}, a, stages, stream);
}

}  // namespace bolt::cutlass_kernels
