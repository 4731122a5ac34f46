// Attention on WGMMA (Hopper) whose blocks stay: each goes through tiles of queries. One warpgroup asks TMA for keys and
// values and gives its registers to those that compute (Shah and others: FlashAttention-3, 2024). What a step leaves of
// a row is rescaled only where its largest score has grown by much.
#pragma once

#include "bolt_attention/persistent_copies.h"
#include "bolt_attention/persistent_layout.h"
#include "bolt_attention/persistent_rows.h"
#include "bolt_attention/queue.h"

namespace bolt::attention {

template <typename Tile, typename Seen>
struct Persistent : PersistentLayout<Tile, Seen> {
  using Layout = PersistentLayout<Tile, Seen>;
  using Barriers = typename Layout::Barriers;

  static __device__ void compute(const PersistentArguments& p, const Arguments& a) {
    constexpr int groups = Layout::groups;
    extern __shared__ __align__(1024) unsigned char memory[];
    Barriers& barriers = *reinterpret_cast<Barriers*>(memory + Layout::held_bytes);
    // The same in all threads of a warp, which the compiler does not see.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x == 0) {
      prefetch(p.q);
      prefetch(p.k);
      prefetch(p.v);
      prefetch(p.y);
      if constexpr (Layout::by_rows) prefetch(p.mask);
      barriers.init(Layout::by_keys ? 2 : 1);
    }
    portable::await_earlier();
    __syncthreads();
    if (warp >= 4 * groups) {
      using Copies = PersistentCopies<Layout>;
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Layout::copying));
      if (threadIdx.x == 128 * groups) Copies::copy(p, a, memory, barriers);
      if constexpr (Layout::by_keys)
        if (warp == 4 * groups + 1) Copies::mask_keys(p, a, memory, barriers);
    } else {
      if constexpr (Layout::computing > Layout::launched)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Layout::computing));
      PersistentRows<Layout>(p, a, memory, barriers, warp).all_tiles();
    }
  }
};

}  // namespace bolt::attention
