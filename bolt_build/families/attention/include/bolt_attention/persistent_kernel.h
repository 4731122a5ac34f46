// The kernel of persistent_block.h, and its launch.
#pragma once

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "bolt_attention/persistent_block.h"

namespace bolt::attention {

template <typename Tile, typename Mask>
__global__ void __launch_bounds__(Persistent<Tile, Mask>::threads, Persistent<Tile, Mask>::beside)
    persistent_kernel(const __grid_constant__ PersistentArguments p) {
  if constexpr (std::is_same_v<Mask, Counted>) {
    Persistent<Tile, Unmasked>::compute(p, counted(p.a));
  } else {
    Persistent<Tile, Mask>::compute(p, p.a);
  }
}

template <int depth, int columns, int groups, int keys, int stages, bool ahead, bool turns, int blocks, int access,
          typename Element, typename Mask>
void launch(PersistentTile<depth, columns, groups, keys, stages, ahead, turns, blocks, access, Element>, Mask, const Arguments& a,
            void* stream) {
  using Tile = PersistentTile<depth, columns, groups, keys, stages, ahead, turns, blocks, access, Element>;
  using Kernel = Persistent<Tile, std::conditional_t<std::is_same_v<Mask, Counted>, Unmasked, Mask>>;
  const Index tiles = (a.queries + Kernel::rows - 1) / Kernel::rows, count = tiles * a.batch * a.heads;
  if (count == 0) return;
  if (count > 0x7fffffff) throw std::runtime_error("tensors are too large for an attention kernel");
  const int kv_heads = a.heads / a.group, resident = static_cast<int>(std::min<Index>(count, Index{blocks} * multiprocessors()));
  // Its own tile of a head is another one each round until it had all of them.
  int shift = 0;
  while (std::gcd<Index, Index>(resident + shift, tiles) > 1) ++shift;
  const PersistentArguments p{
      divided(a, tiles, depth + columns), boxes(a.q, a.q_rows, depth, a.queries, a.heads, a.batch, Kernel::width, 64),
      boxes(a.k, a.k_rows, depth, a.keys, kv_heads, a.batch, Kernel::width, keys),
      boxes(a.v, a.v_rows, columns, a.keys, kv_heads, a.batch, Kernel::width_v, keys),
      boxes(a.y, a.y_rows, columns, a.queries, a.heads, a.batch, Kernel::width_v, 16),
      Kernel::by_rows ? pieces(a, keys) : CUtensorMap{}, static_cast<int>(tiles), static_cast<int>(count), shift % resident};
  queue(persistent_kernel<Tile, Mask>, resident, Kernel::threads, Kernel::shared_bytes, p, a.overlap, stream);
}

}  // namespace bolt::attention
