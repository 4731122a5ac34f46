// Totals that blocks leave in memory for the one that comes last.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt/plan.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// Results that `blocks` blocks share: each leaves its totals, and whoever comes last reads them, always in one order.
template <typename Total>
struct SharedResults {
  std::uint32_t blocks;
  Total* left;  ///< [results' tile][block][total]
  std::uint32_t* counters;

  /// True in the block that comes last, which sees what the others have left. All of its threads call it.
  __device__ bool is_last(std::uint32_t tile) const {
    __shared__ std::uint32_t before;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) before = atomicInc(counters + tile, blocks - 1);  // back to zero at the last one
    __syncthreads();
    __threadfence();
    return before == blocks - 1;
  }
};

/// Tiles of results that blocks can share: each has a counter.
constexpr Index most_shared_tiles = static_cast<Index>(counter_bytes / sizeof(std::uint32_t));

/// Raises std::runtime_error where nobody keeps counters for blocks that share results.
template <typename Total>
SharedResults<Total> shared_results(const Run& r, Index tiles, std::uint32_t blocks) {
  if (blocks == 1) return SharedResults<Total>{1, nullptr, nullptr};
  if (r.counters == nullptr || tiles > most_shared_tiles)
    throw std::runtime_error("could not launch a reduction kernel: nobody keeps counters for its blocks");
  return SharedResults<Total>{blocks, static_cast<Total*>(r.scratch()), r.counters};
}

}  // namespace bolt::portable
