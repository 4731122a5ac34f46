// launch_gemm on warpgroup instructions.
#pragma once

#include "bolt_cutlass/warpgroup.h"
#include "cutlass/gemm/collective/collective_mma_decl.hpp"
// Behind the declaration, which it needs and does not include.
#include "cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp"

namespace bolt::cutlass_kernels {

template <typename W, int cluster_n>
using RowsMainloop = ::cutlass::gemm::collective::CollectiveMma<
    ::cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<W::depth, typename W::Cluster, typename W::Schedule>,
    typename W::BlockTile, Half, cute::Stride<std::int64_t, cute::_1, std::int64_t>, Half,
    cute::Stride<std::int64_t, cute::_1, std::int64_t>, typename W::Mma,
    std::conditional_t<cluster_n == 1, cute::SM90_TMA_LOAD, cute::SM90_TMA_LOAD_MULTICAST>, typename W::AtomX, void,
    cute::identity, typename W::LoadWeights, typename W::AtomWeights, void, cute::identity>;

template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, typename Stages>
void launch_gemm(WarpgroupTile<m, n, k, cooperative, cluster_m, cluster_n>, const GemmArguments& a,
                 const Stages& stages, void* stream) {
  using W = Warpgroups<m, n, k, cooperative, cluster_m, cluster_n, Stages>;
  using Kernel =
      ::cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, RowsMainloop<W, cluster_n>,
                                             typename W::Store, ::cutlass::gemm::PersistentScheduler>;
  if (a.k % a.slices != 0 || a.k / a.slices % 8 != 0)
    throw std::runtime_error("could not launch a matrix product: slices of its depth would not be whole loads");
  // A slice is one of a batch of products, whose rows and columns begin `part` elements further in memory.
  const int part = a.k / a.slices;
  const std::int64_t row = a.k, next = a.slices == 1 ? 0 : part;
  typename Kernel::Arguments arguments{
      ::cutlass::gemm::GemmUniversalMode::kGemm,
      {a.m, a.n, part, a.slices},
      {static_cast<const Half*>(a.x), {row, cute::_1{}, next}, static_cast<const Half*>(a.weights),
       {row, cute::_1{}, next}},
      W::Finish::arguments(a, stages), hardware(), order<Kernel>(a)};
  launch<Kernel>(arguments, a.overlap, stream, "matrix product");
}

}  // namespace bolt::cutlass_kernels
