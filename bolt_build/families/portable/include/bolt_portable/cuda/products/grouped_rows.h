// Rows in the order of what they choose, and tiles of rows that choose the same: one block, in front of products of experts.
#pragma once

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

/// Counts rows by what they choose, cuts them into tiles of `rows`, and puts rows in order. Rows that follow each other and
/// choose the same are counted at once. Which of them comes first may differ from run to run; no result depends on it.
template <typename I>
struct GroupRows {
  static constexpr int threads = 1024, ahead = 8;

  const I* index;
  int m, choices, rows;
  GroupedRows made;
  std::uint32_t* fault;
  std::uint32_t mark;

  /// Calls body(choice, first row, rows) for each run of this thread's rows.
  template <typename Body>
  __device__ void each_run(const Body& body) const {
    const int own = (m + threads - 1) / threads, begin = static_cast<int>(threadIdx.x) * own;
    const int end = begin + own < m ? begin + own : m;
    int last = -1, first = begin;
#pragma unroll 1
    for (int from = begin; from < end; from += ahead) {
      int chosen[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (from + i < end) chosen[i] = static_cast<int>(inside(static_cast<Index>(index[from + i]), choices, fault, mark));
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (from + i < end && chosen[i] != last) {
          if (last >= 0) body(last, first, from + i - first);
          last = chosen[i];
          first = from + i;
        }
    }
    if (last >= 0) body(last, first, end - first);
  }

  __device__ void operator()(std::uint32_t) const {
    extern __shared__ int counts[];  // rows of each choice; then where the next one goes
    int* const tiles = counts + choices;
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < choices; i += threads) counts[i] = 0;
    __syncthreads();
    each_run([&](int chosen, int, int count) { atomicAdd(counts + chosen, count); });
    __syncthreads();
    if (threadIdx.x < 32) {
      int row = 0, tile = 0;
#pragma unroll 1
      for (int from = 0; from < choices; from += 32) {
        const int count = from + lane < choices ? counts[from + lane] : 0, many = (count + rows - 1) / rows;
        int rows_to = count, tiles_to = many;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
          const int more_rows = __shfl_up_sync(0xffffffffu, rows_to, distance);
          const int more_tiles = __shfl_up_sync(0xffffffffu, tiles_to, distance);
          if (lane >= distance) rows_to += more_rows, tiles_to += more_tiles;
        }
        if (from + lane < choices) tiles[from + lane] = tile + tiles_to - many;
        __syncwarp();
        if (from + lane < choices) counts[from + lane] = row + rows_to - count;
        row += __shfl_sync(0xffffffffu, rows_to, 31);
        tile += __shfl_sync(0xffffffffu, tiles_to, 31);
      }
      if (lane == 0) *made.tiles = tile;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < choices; i += threads) {
      const int end = i + 1 < choices ? counts[i + 1] : m;
      int tile = tiles[i];
      for (int first = counts[i]; first < end; first += rows)
        made.tile[tile++] = {i, first, end - first < rows ? end - first : rows, 0};
    }
    __syncthreads();
    each_run([&](int chosen, int first, int count) {
      const int at = atomicAdd(counts + chosen, count);
      for (int i = 0; i < count; ++i) made.order[at + i] = first + i;
    });
  }
};

template <typename Rows>
__global__ void __launch_bounds__(Rows::threads) group_rows_kernel(const Rows rows) {
  await_earlier();
  rows(blockIdx.x);
}

/// Queues the kernel that leaves `made`.
template <typename I>
void group_rows(const Run& r, const I* index, Index m, Index choices, int rows, const GroupedRows& made) {
  using Rows = GroupRows<I>;
  const Launch how{.blocks = 1, .threads = Rows::threads, .shared = static_cast<int>(8 * choices), .overlap = r.overlap,
                   .stream = r.stream};
  queue("a kernel that groups rows", how, group_rows_kernel<Rows>,
        Rows{index, static_cast<int>(m), static_cast<int>(choices), rows, made, r.fault, r.mark()});
}

}  // namespace bolt::portable
