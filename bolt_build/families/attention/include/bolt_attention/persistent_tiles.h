// What a kernel whose blocks stay on a multiprocessor goes through: tiles of queries in turn, steps of keys and turns of its
// warpgroups.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "bolt_attention/softmax.h"
#include "bolt_attention/warpgroup.h"

namespace bolt::attention {

/// A kernel's arguments, with TMA's views, of a constant mask too; how many tiles a head has, and all heads of all
/// images; and how many tiles a block goes on by from round to round.
struct PersistentArguments {
  Arguments a;
  CUtensorMap q, k, v, y, mask;
  int tiles, all, shift;
};

/// Waits for the four warps of a warpgroup. Barriers are named by constants, because all that there are count otherwise.
template <int groups>
__device__ inline void together(int group) {
  if (group == 0) asm volatile("bar.sync 8, 128;" ::: "memory");
  if (groups > 1 && group == 1) asm volatile("bar.sync 9, 128;" ::: "memory");
  if (groups > 2 && group == 2) asm volatile("bar.sync 10, 128;" ::: "memory");
  if (groups > 3 && group == 3) asm volatile("bar.sync 11, 128;" ::: "memory");
}

/// Waits until it is the warpgroup's turn to begin products; and ends its turn.
template <int groups, bool turns>
__device__ inline void await_turn(int group) {
  if constexpr (!turns) return;
  if (group == 0) asm volatile("bar.sync 4, 256;" ::: "memory");
  if (groups > 1 && group == 1) asm volatile("bar.sync 5, 256;" ::: "memory");
  if (groups > 2 && group == 2) asm volatile("bar.sync 6, 256;" ::: "memory");
  if (groups > 3 && group == 3) asm volatile("bar.sync 7, 256;" ::: "memory");
}
template <int groups, bool turns>
__device__ inline void end_turn(int group) {
  if constexpr (!turns) return;
  if (group == groups - 1) asm volatile("bar.arrive 4, 256;" ::: "memory");
  if (groups > 1 && group == 0) asm volatile("bar.arrive 5, 256;" ::: "memory");
  if (groups > 2 && group == 1) asm volatile("bar.arrive 6, 256;" ::: "memory");
  if (groups > 3 && group == 2) asm volatile("bar.arrive 7, 256;" ::: "memory");
}

/// The end of the keys that a warpgroup's queries from `first_row` on read, of which there are some.
template <typename Seen>
__device__ inline int own_end(const Arguments& a, int first_row) {
  const int end = min(a.queries, first_row + 64);
  return windowed<Seen> ? end_of<Seen>(a, end - 1) : end;
}

/// What says which queries, keys and values are there, and which are read.
template <int groups, int stages, int q_stages>
struct PersistentBarriers {
  Barrier q_full[q_stages][groups], q_free[q_stages][groups], k_full[stages], k_free[stages], v_full[stages], v_free[stages];

  /// One thread's, before the block meets. `bringing`: warps that bring a step's keys, or its
  /// part of a mask.
  __device__ void init(int bringing) {
    for (int stage = 0; stage < q_stages; ++stage)
      for (int group = 0; group < groups; ++group) {
        q_full[stage][group].init(1);
        q_free[stage][group].init(4);
      }
    for (int stage = 0; stage < stages; ++stage) {
      k_full[stage].init(bringing);
      v_full[stage].init(1);
      k_free[stage].init(4 * groups);
      v_free[stage].init(4 * groups);
    }
    fence_barriers();
  }
};

/// A tile of a block's: which queries of which head, with which key they begin, and how many steps of keys.
template <int rows, int keys, typename Seen>
struct PersistentWork {
  int head, image, first_row, begin, steps;

  __device__ PersistentWork(const PersistentArguments& p, const Arguments& a, int index) {
    const Place place(a, index, p.tiles);
    head = place.head;
    image = place.image;
    first_row = place.tile * rows;
    begin = begin_of<Seen>(a, first_row);
    const int end = end_of<Seen>(a, min(a.queries, first_row + rows) - 1);
    steps = (end - begin + keys - 1) / keys;
  }
};

/// Calls `body` with the tiles of the block, one of each round of all blocks. Causal ones are the shorter the later they
/// are: blocks take them from both ends of a round in turn. Of others the last of a head may be shorter: from round to round
/// a block goes on by `p.shift` more, so that none has these alone and none all others. So all have about as much to do.
template <typename Work, typename Body>
__device__ inline void each_tile(const PersistentArguments& p, const Arguments& a, const Body& body) {
  const int all = static_cast<int>(gridDim.x);
  int place = static_cast<int>(blockIdx.x);
#pragma unroll 1
  for (int first = 0; first < p.all; first += all) {
    if (first + place < p.all) body(Work(p, a, first + place));
    place = a.causal ? all - 1 - place : place + p.shift;
    if (place >= all) place -= all;
  }
}

/// Which of `count` places a step or a tile has, and the parity of its phase there.
template <int count>
struct Ring {
  int stage = 0, parity = 0;

  __device__ void advance() {
    if (++stage == count) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace bolt::attention
