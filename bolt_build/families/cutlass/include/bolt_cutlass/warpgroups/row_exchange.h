// Statistics of rows whose columns several blocks compute, and how those blocks tell them to each other: through the shared
// memory of a cluster, or through global memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/warpgroups/cluster_exchange.h"
#include "bolt_cutlass/warpgroups/warpgroup_store.h"

namespace bolt::cutlass_kernels {

/// Mean and sum of squared deviations of some columns of a row; or 0 and the sum of squares.
template <bool centred>
struct RowStatistics {
  /// Of what `threads` neighbouring threads hold, `count` values each, which `at` gives.
  template <int count, int threads, typename At>
  CUTLASS_DEVICE static float2 of(const At& at) {
    float mean = 0.0f, squares = 0.0f;
    if constexpr (centred) {
#pragma unroll
      for (int i = 0; i < count; ++i) mean += at(i);
      mean = together<threads>(mean) / (count * threads);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) squares += (at(i) - mean) * (at(i) - mean);
    return make_float2(mean, together<threads>(squares));
  }
  /// Of `parts` of `columns` each, one behind the other `apart` places: the mean, and the factor that normalises.
  template <int parts>
  CUTLASS_DEVICE static float2 all(const float2* part, int apart, int columns, float epsilon) {
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < parts; ++i) mean += part[i * apart].x;
    mean /= parts;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const float2 one = part[i * apart];
      squares += one.y + columns * (one.x - mean) * (one.x - mean);
    }
    return make_float2(mean, rsqrtf(squares / (columns * parts) + epsilon));
  }

 private:
  template <int threads>
  CUTLASS_DEVICE static float together(float value) {
#pragma unroll
    for (int step = 1; step < threads; step *= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    return value;
  }
};

/// Where a warpgroup's rows stand: `row` and `column` count tiles, `own` warpgroups of the block that store, and one thread of
/// it `leads`.
struct ExchangePlace {
  int row, column, own;
  bool leads;
};

/// Between the `across` blocks of a cluster, each of whose `groups` warpgroups holds `held` rows of `n` columns.
template <int n, int across, int held, int groups, bool centred>
class ClusterExchange {
 public:
  static constexpr int waiting = 1;  // blocks of different clusters do not
  static constexpr int tiles = across;
  static constexpr int bytes = groups * 2 * across * held * 8;  // of shared memory, barriers apart
  struct Arguments {};
  struct Storage {
    alignas(16) float2 statistics[groups][2][across][held];
    alignas(16) std::uint64_t barriers[groups][2];
  };

  /// One thread, before any warpgroup exchanges.
  CUTLASS_DEVICE static void begin(Storage& storage) {
    if constexpr (across > 1) {
      for (int group = 0; group < groups; ++group) ExchangeTurns::begin(storage.barriers[group]);
      ::cutlass::arch::fence_barrier_init();
    }
  }

  /// The threads of a warpgroup: `found`, of their columns of this tile, become mean and factor of whole rows.
  template <int down, typename Sync>
  CUTLASS_DEVICE void operator()(const Arguments&, const Fragment& fragment, const ExchangePlace& place, float epsilon,
                                 const Sync&, Storage& storage, float2 (&found)[down][2]) {
    std::uint64_t* const barriers = storage.barriers[place.own];
    float2(*const told)[held] = storage.statistics[place.own][turns_.turn()];
    const std::uint32_t rank = across == 1 ? 0 : cute::block_rank_in_cluster();
    if (across > 1 && place.leads) turns_.expect(barriers, across * held * sizeof(float2));
    if constexpr (across > 1) {
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          for (std::uint32_t to = fragment.lane % 4; to < across; to += 4)
            tell_block(found[i][half], &told[rank][i * 64 + fragment.row() + half * 8], barriers + turns_.turn(), to);
        }
      }
      turns_.wait(barriers);
    }
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2* const parts = across == 1 ? &found[i][half] : &told[0][i * 64 + fragment.row() + half * 8];
        found[i][half] = RowStatistics<centred>::template all<across>(parts, held, n, epsilon);
      }
    }
  }

 private:
  ExchangeTurns turns_;
};

/// Between the blocks that compute the `across` tiles, of m x n, of one band of rows. `warpgroups` share a tile, and each
/// exchanges its rows with those of the same rows elsewhere.
///
/// A block waits for the others of its group, `across` neighbours that take whole bands: tiles are dealt out row by row to a
/// grid of whole groups (`launch`), and each takes its bands in the same order. It waits for nobody else. So a group ends as
/// soon as all of it has begun, whatever else runs. All of it begins, because
/// - in a cooperative launch every block of the grid runs, or CUDA refuses it;
/// - in any other blocks begin in the order of their numbers. GPUs do so, CUDA does not promise it. Then one group at most
///   has begun in part. All in front of it end, and leave it their multiprocessors;
/// - others may take these first. They end, unless they are such a group in part themselves. Each of those keeps less than
///   `across` multiprocessors, and each context has one at most: it takes one for every `across` - 1 multiprocessors, all at
///   this point at once, to stop them all. That is 19 contexts on 132 multiprocessors where rows have 8 tiles, and 9 where
///   clusters of 2 x 1 make groups of 16;
/// - the kernel in front ends whatever this one does, and the next one begins when every block of this one has let it.
/// Nobody waits for a kernel in front here: the products are of what it left, so it has ended.
template <int m, int n, int across, int warpgroups, bool centred>
class MemoryExchange {
 public:
  static constexpr int waiting = across;  // neighbouring blocks
  static constexpr int tiles = across;
  static constexpr int bytes = 0;
  /// `parts` [rows in whole tiles, across], and a counter of each warpgroup of each band, zero before and behind.
  struct Arguments {
    float2* parts;
    std::uint32_t* counters;
  };
  struct Storage {};

  CUTLASS_DEVICE static void begin(Storage&) {}

  template <int down, typename Sync>
  CUTLASS_DEVICE void operator()(const Arguments& a, const Fragment& fragment, const ExchangePlace& place, float epsilon,
                                 const Sync& sync, Storage&, float2 (&found)[down][2]) const {
    const auto line = [&](int i, int half) {
      const int row = place.row * m + (i * warpgroups + fragment.warpgroup) * 64 + fragment.row() + half * 8;
      return a.parts + static_cast<std::int64_t>(row) * across;
    };
    if (fragment.lane % 4 == 0) {
#pragma unroll
      for (int i = 0; i < down; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) __stcg(line(i, half) + place.column, found[i][half]);
      }
    }
    sync();
    if (place.leads) {
      std::uint32_t* const counter = a.counters + place.row * warpgroups + fragment.warpgroup;
      count(counter);
      while (peek(counter) < across) {
      }
      // Once more behind the wait: whoever is the last of all brings the counter back to zero. Nobody reads by this.
      asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "n"(2 * across - 1) : "memory");
    }
    sync();
#pragma unroll
    for (int i = 0; i < down; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 told[across];
#pragma unroll
        for (int part = 0; part < across; ++part) told[part] = __ldcg(line(i, half) + part);
        found[i][half] = RowStatistics<centred>::template all<across>(told, 1, n, epsilon);
      }
    }
  }

 private:
  /// What the warpgroup wrote before its barrier is seen by whoever sees the count. It goes round at 2 * across.
  CUTLASS_DEVICE static void count(std::uint32_t* counter) {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "n"(2 * across - 1) : "memory");
  }
  CUTLASS_DEVICE static std::uint32_t peek(const std::uint32_t* counter) {
    std::uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
  }
};

}  // namespace bolt::cutlass_kernels
