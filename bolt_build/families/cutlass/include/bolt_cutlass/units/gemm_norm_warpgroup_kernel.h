// launch_gemm on WGMMA with rows that are normalised before they are stored.
#pragma once

#include "bolt/plan.h"
#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/plans/normed.h"
#include "bolt_cutlass/warpgroups/warpgroup_norm_store.h"

namespace bolt::cutlass_kernels {

/// Blocks of a cluster of `cluster_m` x `cluster_n` load together what they have in common. Blocks that tell each other
/// statistics through memory are those of the same rows: of a grid's `waiting` neighbours, as many rows of tiles as a cluster
/// has.
template <int m, int n, int k, bool cooperative, int across, int cluster_m, int cluster_n, bool whole, bool centred, bool keeps,
          typename Element, typename Exchange, typename Stages>
void launch_normed(const GemmArguments& a, const NormArguments& norm, const typename Exchange::Arguments& exchange,
                   const Stages& stages, void* stream) {
  constexpr int teams = cooperative ? 1 : 2, stage = (m + n) * k * 2, together = sharing(m, cooperative);
  using Boxes = std::conditional_t<whole, WholeBoxes<m, n, together, teams>,
                                   StoreBoxes<n, together, Stages::reads_residual, stage, Exchange::bytes, teams>>;
  using Store = NormStore<m, n, cooperative, centred, keeps, Stages, stage, teams, Element, Exchange, Boxes>;
  using Kernel =
      WarpgroupKernel<MatrixLoads<m, n, k, cluster_m, cluster_n>, Store, m, n, k, cooperative, cluster_m, cluster_n,
                      stages_beside<Store, m, n, k>, SharedProducts<m, n, k, cooperative, Element>, teams>;
  if (a.n != n * across)
    throw std::runtime_error("could not launch a normalised product: its rows are not those of its tiles side by side");
  constexpr int waiting = Exchange::waiting > 1 ? Exchange::waiting * cluster_m : 1;
  launch<Kernel, waiting>({a,
                           {{a.bias, a.residual, a.y, stages, a.y_row, a.residual_row}, norm.scale, norm.shift,
                            norm.kept, norm.epsilon, exchange},
                           a.m,
                           a.n,
                           (a.k + k - 1) / k,
                           1,
                           1,
                           2},
                          a.overlap, stream, "normalised product");
}

template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element,
          typename Stages>
void launch_gemm(WarpgroupNorm<m, n, k, cooperative, across, centred, keeps, Element>, const GemmArguments& a,
                 const NormArguments& norm, const Stages& stages, void* stream) {
  constexpr int together = sharing(m, cooperative), groups = cooperative ? together : 2;
  using Exchange = ClusterExchange<n, across, m / together, groups, centred>;
  launch_normed<m, n, k, cooperative, across, 1, across, false, centred, keeps, Element, Exchange>(a, norm, {}, stages,
                                                                                               stream);
}

template <int m, int n, int k, bool cooperative, int across, bool centred, bool keeps, typename Element, int cluster_m,
          int cluster_n, bool whole, typename Stages>
void launch_gemm(WarpgroupMemoryNorm<m, n, k, cooperative, across, centred, keeps, Element, cluster_m, cluster_n, whole>,
                 const GemmArguments& a, const NormArguments& norm, const Stages& stages, void* stream) {
  constexpr int together = sharing(m, cooperative);
  using Exchange = MemoryExchange<m, n, across, together, centred>;
  if (norm.counters == nullptr)
    throw std::runtime_error("could not launch a normalised product: nobody keeps counters for its blocks");
  constexpr int bands_at_once = m * cluster_m;
  if (static_cast<std::size_t>((a.m + bands_at_once - 1) / bands_at_once * cluster_m * together) >
      counter_bytes / sizeof(std::uint32_t))
    throw std::runtime_error("could not launch a normalised product: it has more bands of rows than there are counters");
  launch_normed<m, n, k, cooperative, across, cluster_m, cluster_n, whole, centred, keeps, Element, Exchange>(
      a, norm, {static_cast<float2*>(norm.parts), norm.counters}, stages, stream);
}

}  // namespace bolt::cutlass_kernels
