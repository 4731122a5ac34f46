// Rows in the order of what they choose, and tiles of rows that choose the same: a kernel in front of products of experts.
#pragma once

#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/indices.h"

namespace bolt::portable {

/// Of a tile of rows: what they choose, where the first stands among rows in order, and how many they are.
struct alignas(16) RowTile {
  int chosen, first, count, more;
};

/// What one kernel leaves for another in scratch memory: how many tiles there are, the tiles, and rows in order.
struct GroupedRows {
  int* tiles;
  RowTile* tile;
  int* order;

  /// Tiles of so many rows, at most: each choice ends with one that may not be full.
  static Index most(Index m, Index choices, int rows) { return m / rows + (choices < m ? choices : m); }
  static std::size_t bytes(Index m, Index choices, int rows) {
    return static_cast<std::size_t>(16 + 16 * most(m, choices, rows) + 4 * m);
  }
  static GroupedRows in(void* scratch, Index m, Index choices, int rows) {
    int* const first = static_cast<int*>(scratch);
    RowTile* const tile = reinterpret_cast<RowTile*>(first + 4);
    return {first, tile, reinterpret_cast<int*>(tile + most(m, choices, rows))};
  }
};

/// Counts rows by what they choose, cuts them into tiles of `rows`, and puts rows in order. `blocks` are one cluster: each has
/// part of the rows, and reads what the others counted. Which of two rows comes first may differ from run to run; no result
/// depends on it.
template <typename I, int blocks>
struct GroupRows {
  static constexpr int threads = 1024;

  const I* index;
  int m, choices, rows;
  GroupedRows made;
  std::uint32_t* fault;
  std::uint32_t mark;

  static std::size_t shared(Index choices) { return static_cast<std::size_t>(16 * choices); }

  /// Calls body(row, what it chooses) for this block's rows, a warp at once: where there is none, it chooses -1.
  template <typename Body>
  __device__ void each_row(const Body& body) const {
    const int own = (m + blocks - 1) / blocks, begin = static_cast<int>(blockIdx.x) * own;
    const int end = begin + own < m ? begin + own : m;
#pragma unroll 1
    for (int first = begin + static_cast<int>(threadIdx.x) / 32 * 32; first < end; first += threads) {
      const int row = first + static_cast<int>(threadIdx.x) % 32;
      body(row, row < end ? static_cast<int>(inside(static_cast<Index>(index[row]), choices, fault, mark)) : -1);
    }
  }

  /// Adds 1 to the counter of what each lane's row chooses; returns what it was. Rows in order mostly choose alike.
  static __device__ int count(int* counters, int chosen) {
    const int first = __shfl_sync(0xffffffffu, chosen, 0);
    if (!__all_sync(0xffffffffu, chosen == first || chosen < 0)) return chosen < 0 ? 0 : atomicAdd(counters + chosen, 1);
    const int many = __popc(__ballot_sync(0xffffffffu, chosen >= 0)), lane = threadIdx.x % 32;
    const int before = lane == 0 && first >= 0 ? atomicAdd(counters + first, many) : 0;
    return __shfl_sync(0xffffffffu, before, 0) + lane;
  }

  /// Of the numbers of rows in `starts`: where each choice's rows and tiles begin, and how many tiles there are. One warp.
  __device__ void add_up(int* starts, int* tiles) const {
    const int lane = threadIdx.x % 32;
    int row = 0, tile = 0;
#pragma unroll 1
    for (int from = 0; from < choices; from += 32) {
      const int own = from + lane < choices ? starts[from + lane] : 0, many = (own + rows - 1) / rows;
      int rows_to = own, tiles_to = many;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int more_rows = __shfl_up_sync(0xffffffffu, rows_to, distance);
        const int more_tiles = __shfl_up_sync(0xffffffffu, tiles_to, distance);
        if (lane >= distance) rows_to += more_rows, tiles_to += more_tiles;
      }
      if (from + lane < choices) {
        starts[from + lane] = row + rows_to - own;
        tiles[from + lane] = tile + tiles_to - many;
      }
      row += __shfl_sync(0xffffffffu, rows_to, 31);
      tile += __shfl_sync(0xffffffffu, tiles_to, 31);
    }
    if (lane == 0 && blockIdx.x == 0) *made.tiles = tile;
  }

  __device__ void operator()() const {
    extern __shared__ int grouped_rows_memory[];
    int* const counts = grouped_rows_memory;  // of this block, which others read
    int* const places = counts + choices;
    int* const starts = places + choices;
    int* const tiles = starts + choices;
    for (int i = threadIdx.x; i < choices; i += threads) counts[i] = 0;
    __syncthreads();
    each_row([&](int, int chosen) { count(counts, chosen); });
    __syncthreads();
    if constexpr (blocks > 1) cluster_meet();
    for (int i = threadIdx.x; i < choices; i += threads) {
      int before = 0, all = 0;
#pragma unroll
      for (int block = 0; block < blocks; ++block) {
        const int there = blocks > 1 ? __float_as_int(of_block(reinterpret_cast<const float*>(counts) + i, block)) : counts[i];
        before += block < static_cast<int>(blockIdx.x) ? there : 0;
        all += there;
      }
      places[i] = before;
      starts[i] = all;
    }
    if constexpr (blocks > 1) cluster_arrive();
    __syncthreads();
    if (threadIdx.x < 32) add_up(starts, tiles);
    __syncthreads();
    for (int i = threadIdx.x; i < choices; i += threads) {
      const int end = i + 1 < choices ? starts[i + 1] : m;
      places[i] += starts[i];
      int tile = tiles[i];
      if (i % blocks == static_cast<int>(blockIdx.x))
        for (int first = starts[i]; first < end; first += rows)
          made.tile[tile++] = {i, first, end - first < rows ? end - first : rows, 0};
    }
    __syncthreads();
    each_row([&](int row, int chosen) {
      const int place = count(places, chosen);
      if (chosen >= 0) made.order[place] = row;
    });
    if constexpr (blocks > 1) cluster_wait();  // others have read what this block counted
  }
};

template <typename Rows>
__global__ void __launch_bounds__(Rows::threads) group_rows_kernel(const Rows rows) {
  await_earlier();
  rows();
}

/// Queues the kernel that leaves `made`.
template <typename I, int blocks>
void group_rows_by(const Run& r, const I* index, Index m, Index choices, int rows, const GroupedRows& made) {
  using Rows = GroupRows<I, blocks>;
  const Launch how{.blocks = blocks, .threads = Rows::threads, .shared = static_cast<int>(Rows::shared(choices)),
                   .overlap = r.overlap, .cluster = blocks, .stream = r.stream};
  queue("a kernel that groups rows", how, group_rows_kernel<Rows>,
        Rows{index, static_cast<int>(m), static_cast<int>(choices), rows, made, r.fault, r.mark()});
}

/// The same by one block where rows are few.
template <typename I>
void group_rows(const Run& r, const I* index, Index m, Index choices, int rows, const GroupedRows& made) {
  if (m > 2048)
    group_rows_by<I, 8>(r, index, m, choices, rows, made);
  else
    group_rows_by<I, 1>(r, index, m, choices, rows, made);
}

}  // namespace bolt::portable
