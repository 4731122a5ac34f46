// Reductions whose elements are runs of neighbours, wherever each begins: threads read whole words of a run.
#pragma once

#include "bolt_portable/cuda/reductions/cluster_totals.h"
#include "bolt_portable/cuda/reductions/fold.h"

namespace bolt::portable {

/// `threads` threads have a result, of which `across` read a run side by side, `loads` words each at once. A longer run is
/// several pieces. What a run's first and last word hold beside it is left out. Blocks of one result are a cluster, or leave totals
/// in memory for the last of them.
template <int across, int threads, typename Fold, typename Results, int cluster = 1>
struct FoldRuns {
  using Element = typename Fold::Element;
  using Total = typename Fold::Total;
  static constexpr int loads = 4, together = block_threads / threads, groups = threads / across;
  static constexpr int piece_words = across * loads;
  static_assert(cluster == 1 || threads == block_threads);
  static constexpr std::uint32_t lanes = Granules<Element>::lanes;

  Granules<Element> in;
  Walk<2> kept;
  Walk<1> runs;
  Divisor pieces, sharing;
  std::uint32_t length, results, items, share;  ///< items are pieces of a result; `share` of them a block's
  SharedResults<Total> shared;
  Results put;

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t tile = sharing.quotient(block), own = tile * together + threadIdx.x / threads;
    const std::uint32_t part = block - tile * sharing.by;
    Index start[2] = {};
    Total total = Fold::start();
    if (own < results) {
      kept.go(own, start);
      const std::uint32_t end = min((part + 1) * share, items);
      for (std::uint32_t item = part * share + threadIdx.x % threads / across; item < end; item += groups)
        piece(item, start[0], total);
    }
    if constexpr (threads > 32) {
      total = joined_block<Fold>(total);
    } else {
      total = joined_lanes<Fold, threads>(total);
    }
    if constexpr (cluster > 1) {
      total = joined_cluster<Fold, cluster>(total, part);
      if (part > 0) return;
    } else if (shared.blocks > 1) {
      Total* const left = shared.left + static_cast<Index>(tile) * shared.blocks;
      if (threadIdx.x == 0) left[part] = total;
      if (!shared.is_last(tile)) return;
      total = Fold::start();
      for (std::uint32_t i = threadIdx.x; i < shared.blocks; i += block_threads) total = Fold::join(total, fresh(left + i));
      total = joined_block<Fold>(total);
    }
    if (threadIdx.x % threads == 0 && own < results) put(own, start[1], total);
  }

 private:
  __device__ void piece(std::uint32_t item, Index start, Total& total) const {
    const std::uint32_t run = pieces.quotient(item), piece = item - run * pieces.by;
    Index at[1] = {start};
    runs.go(run, at);
    const std::uint32_t begin = in.skew + static_cast<std::uint32_t>(at[0]), end = begin + length;
    const std::uint32_t word = begin / lanes + piece * (across * loads) + threadIdx.x % across;
    uint4 held[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if ((word + k * across) * lanes < end) held[k] = in[word + k * across];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::uint32_t first = (word + k * across) * lanes;
      if (first >= end) break;
      const auto values = elements_of<Element>(held[k]);
      if constexpr (Fold::together) {
        float x[lanes];
#pragma unroll
        for (std::uint32_t i = 0; i < lanes; ++i)
          x[i] = first + i - begin < length ? load(&values.at[i]) : Fold::nothing();
        total = Fold::steps(total, x);
      } else if (first >= begin && first + lanes <= end) {
#pragma unroll
        for (std::uint32_t i = 0; i < lanes; ++i) total = Fold::step(total, values.at[i], first + i - begin);
      } else {
#pragma unroll
        for (std::uint32_t i = 0; i < lanes; ++i)
          if (first + i - begin < length) total = Fold::step(total, values.at[i], first + i - begin);
      }
    }
  }
};

/// The blocks of a reduction of `p`, `blocks` of each result that all threads of one have.
template <typename Runs, typename Fold, typename Results>
Runs runs_of(const Run& r, const Reduce& p, Index blocks, Index tiles, const void* input, const Results& put,
             const SharedResults<typename Fold::Total>& shared) {
  constexpr Index lanes = Runs::lanes, piece = Runs::piece_words * lanes;
  const Index length = p.reduced[p.reduced_rank - 1];
  const Granules<typename Fold::Element> in(input, fold_elements(p), "reduction");
  const Walk<2> kept = fold_rows(p, 0);
  const Walk<1> runs = folded_walk(p, 1);
  bool aligned = in.skew == 0;
  for (int axis = 0; axis < p.kept_rank; ++axis) aligned = aligned && p.kept_stride[axis] % lanes == 0;
  for (int axis = 0; axis + 1 < p.reduced_rank; ++axis) aligned = aligned && p.reduced_stride[axis] % lanes == 0;
  // Wherever a run begins, its words are no more than these.
  const Index pieces = (length + (aligned ? 0 : lanes - 1) + piece - 1) / piece;
  const Index items = runs.items * pieces, share = (items + blocks - 1) / blocks;
  return Runs{in, kept, runs, Divisor(pieces), Divisor(blocks), static_cast<std::uint32_t>(length),
              counted(kept.items, "reduction"), static_cast<std::uint32_t>(items), static_cast<std::uint32_t>(share), shared, put};
}

/// Reduces runs of neighbours, the innermost reduced axis of `p`. `blocks` blocks share a result: one, but where all threads
/// of a block have it. Raises std::runtime_error where the tensor is too large, or the launch fails.
template <int across, int threads, typename Fold, typename Results>
void fold_runs(const Run& r, const Reduce& p, Index blocks, const void* input, const Results& put) {
  using Runs = FoldRuns<across, threads, Fold, Results>;
  if (fold_elements(p) == 0) return;
  const Index tiles = (fold_rows(p, 0).items + Runs::together - 1) / Runs::together;
  const auto shared = shared_results<typename Fold::Total>(r, tiles, static_cast<std::uint32_t>(blocks));
  launch_blocks(r, tiles * blocks, runs_of<Runs, Fold>(r, p, blocks, tiles, input, put, shared), "reduction");
}

/// The same by clusters of `cluster` blocks a result, which read each other's totals: nobody keeps counters.
template <int across, int cluster, typename Fold, typename Results>
void fold_run_clusters(const Run& r, const Reduce& p, Index, const void* input, const Results& put) {
  using Runs = FoldRuns<across, block_threads, Fold, Results, cluster>;
  if (fold_elements(p) == 0) return;
  const Index tiles = fold_rows(p, 0).items;
  Launch how{.blocks = counted(tiles * cluster, "reduction"), .threads = block_threads};
  how.overlap = r.overlap;
  how.cluster = cluster;
  how.stream = r.stream;
  const SharedResults<typename Fold::Total> none{1, nullptr, nullptr};
  queue("reduction", how, blocks_kernel<block_threads, 1, Runs>, runs_of<Runs, Fold>(r, p, cluster, tiles, input, put, none));
}

}  // namespace bolt::portable
