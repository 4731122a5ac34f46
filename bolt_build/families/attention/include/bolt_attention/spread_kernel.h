// Attention whose keys are spread over the blocks of a cluster: few queries of many keys, as where a decoder writes one token.
#pragma once

#include "bolt_attention/warp_kernel.h"

namespace bolt::attention {

template <typename Tile, int blocks, typename Mask>
__global__ void __launch_bounds__(Warps<Tile, blocks>::threads, Warps<Tile, blocks>::beside(masked<Mask>))
    spread_kernel(const __grid_constant__ Arguments a) {
  if constexpr (std::is_same_v<Mask, Counted>) {
    Warps<Tile, blocks>::compute(counted(a), static_cast<Unmasked*>(nullptr));
  } else {
    Warps<Tile, blocks>::compute(a, static_cast<Mask*>(nullptr));
  }
}

template <typename Tile, int blocks, typename Mask>
void launch(SpreadTile<Tile, blocks>, Mask, const Arguments& a, void* stream) {
  using Kernel = Warps<Tile, blocks>;
  const Index tiles = (a.queries + Kernel::rows - 1) / Kernel::rows, clusters = tiles * a.batch * a.heads;
  if (clusters == 0) return;
  queue(spread_kernel<Tile, blocks, Mask>, clusters * blocks, Kernel::threads, Kernel::template shared_bytes<Mask>,
        divided(a, tiles), a.overlap, stream, blocks);
}

}  // namespace bolt::attention
