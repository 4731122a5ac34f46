// Totals that blocks of a cluster read of each other.
#pragma once

#include <cstring>

#include "bolt_portable/cuda/cluster.h"

namespace bolt::portable {

/// A total in shared memory of a block of the cluster, at the place of this block's `own`: whole words.
template <typename Total>
__device__ inline Total total_of_block(const Total* own, int block) {
  constexpr int words = sizeof(Total) / 4;
  static_assert(sizeof(Total) % 4 == 0);
  std::uint32_t read[words];
  const std::uint32_t at = place_in_block(own, block);
#pragma unroll
  for (int i = 0; i < words; ++i) {
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(read[i]) : "r"(at + 4 * i) : "memory");
#else
    read[i] = 0;
#endif
  }
  Total total;
  memcpy(&total, read, sizeof total);
  return total;
}

/// What the blocks of a cluster have found together, in the first thread of its first block, where each block's first thread has
/// `total`: always in one order. All threads of the cluster call it.
template <typename Fold, int cluster>
__device__ inline typename Fold::Total joined_cluster(typename Fold::Total total, std::uint32_t block) {
  using Total = typename Fold::Total;
  __shared__ __align__(16) Total own;
  if (threadIdx.x == 0) own = total;
  cluster_meet();
  if (threadIdx.x == 0 && block == 0) {
    Total others[cluster];
#pragma unroll
    for (int i = 0; i < cluster; ++i) others[i] = total_of_block(&own, i);
#pragma unroll
    for (int i = 1; i < cluster; ++i) others[0] = Fold::join(others[0], others[i]);
    total = others[0];
  }
  cluster_arrive();
  cluster_wait();  // others may still read
  return total;
}

}  // namespace bolt::portable
