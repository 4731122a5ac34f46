// launch_gemm on WGMMA with rows that are normalised before they are stored.
#pragma once

#include "bolt_cutlass/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/normed.h"
#include "bolt_cutlass/warpgroup_norm_store.h"

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element,
          typename Stages>
void launch_gemm(WarpgroupNorm<m, n, k, cooperative, across, centred, keeps, Element>, const GemmArguments& a,
                 const NormArguments& norm, const Stages& stages, void* stream) {
  constexpr int teams = cooperative ? 1 : 2;
  using Store = NormStore<m, n, cooperative, across, centred, keeps, Stages, (m + n) * k * 2, teams, Element>;
  using Kernel = WarpgroupKernel<MatrixLoads<m, n, k, 1, across>, Store, m, n, k, cooperative, 1, across,
                                 stages_beside<Store, m, n, k>, SharedProducts<m, n, k, cooperative, Element>, teams>;
  if (a.n != n * across)
    throw std::runtime_error("could not launch a normalised product: its rows are not those of a cluster's tiles");
  launch<Kernel>({a,
                  {{a.bias, a.residual, a.y, stages, a.y_row, a.residual_row}, norm.scale, norm.shift, norm.kept,
                   norm.epsilon},
                  a.m,
                  a.n,
                  (a.k + k - 1) / k,
                  1,
                  1,
                  2},
                 a.overlap, stream, "normalised product");
}

}  // namespace bolt::cutlass_kernels
