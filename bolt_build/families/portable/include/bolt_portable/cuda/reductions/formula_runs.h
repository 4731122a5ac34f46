// Reductions of elementwise functions over neighbours: threads take eight of a run of each tensor at a time.
#pragma once

#include "bolt_portable/cuda/reductions/cluster_totals.h"
#include "bolt_portable/cuda/reductions/formula_sides.h"

namespace bolt::portable {

/// `threads` threads have a result, of which `across` take a run side by side, `loads` times eight elements each at once. A longer
/// run is several pieces. `even`: eights begin with words in all tensors. Blocks that share a result are a cluster, or leave totals
/// for the last of them.
template <int across, int threads, int cluster, bool even, typename Mode, typename Function, typename Results, typename... Of>
struct FormulaRuns {
  using Sides = FormulaSides<Function, Of...>;
  using Fold = FloatFold<Mode, float>;
  using Total = typename Mode::Total;
  static constexpr int inputs = sizeof...(Of), groups = threads / across, together = block_threads / threads;
  static constexpr int loads = octets_at_once(inputs, even);
  static constexpr Index piece = across * loads * octet;
  static_assert(cluster == 1 || threads == block_threads);

  Function function;
  Sides sides;
  Walk<inputs + 1> kept;
  Walk<inputs> runs;
  Divisor pieces, sharing;
  std::uint32_t length, results, items, share;  ///< items are pieces of a result; `share` of them a block's
  SharedResults<Total> shared;
  Results put;

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t tile = sharing.quotient(block), own = tile * together + threadIdx.x / threads;
    const std::uint32_t part = block - tile * sharing.by;
    Index start[inputs + 1] = {};
    Total total = Mode::start();
    if (own < results) {
      kept.go(own, start);
      const std::uint32_t end = min((part + 1) * share, items);
      for (std::uint32_t item = part * share + threadIdx.x % threads / across; item < end; item += groups)
        take(item, start, total);
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
      total = Mode::start();
      for (std::uint32_t i = threadIdx.x; i < shared.blocks; i += block_threads) total = Mode::join(total, fresh(left + i));
      total = joined_block<Fold>(total);
    }
    if (threadIdx.x % threads == 0 && own < results) put(own, start[inputs], total);
  }

 private:
  __device__ void take(std::uint32_t item, const Index (&start)[inputs + 1], Total& total) const {
    const std::uint32_t run = pieces.quotient(item), part = item - run * pieces.by;
    Index at[inputs];
#pragma unroll
    for (int i = 0; i < inputs; ++i) at[i] = start[i];
    runs.go(run, at);
    std::uint32_t begin[inputs];
    places_of(at, begin);
    const std::uint32_t first = (part * (across * loads) + threadIdx.x % across) * octet;
    typename Sides::Asked asked[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::uint32_t place = first + k * across * octet;
      if (place < length) sides.template ask<even, 0>(begin, place, min(length - place, octet), asked[k]);
    }
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::uint32_t place = first + k * across * octet;
      if (place >= length) break;
      const int many = min(length - place, octet);
      sides.template each<even, 0>(function, begin, place, asked[k], [&](int i, float number) {
        if (i < many) total = Mode::step(total, number);
      });
    }
  }
};

/// The blocks of a reduction of `function` of tensors, `blocks` of each result that all threads of one have.
template <typename Runs, typename Function, typename Sides, typename Results>
Runs formula_runs_of(const FormulaFold<Runs::inputs>& p, const Function& function, const Sides& sides, Index blocks,
                     const SharedResults<typename Runs::Total>& shared, const Results& put) {
  constexpr Index piece = Runs::piece;
  const auto runs = folded_places(p, 1);
  const Index length = p.folded[p.folded_rank - 1], pieces = (length + piece - 1) / piece;
  const Index items = runs.items * pieces, share = (items + blocks - 1) / blocks;
  return Runs{function, sides, kept_walk(p, 0), runs, Divisor(pieces), Divisor(blocks), counted(length, "reduction"),
              counted(p.results(), "reduction"), counted(items, "reduction"), counted(share, "reduction"), shared, put};
}

/// `Mode` of `function` of tensors of types and ways `Of`, whose innermost folded axis is a run. `blocks` blocks share a result:
/// one, but where all threads of a block have it. Raises std::runtime_error where a tensor is too large, or the launch fails.
template <int across, int threads, typename Mode, typename... Of, typename Function, typename Results, typename... Pointers>
void formula_runs(const Run& r, const FormulaFold<sizeof...(Of)>& p, const Function& function, Index blocks, const Results& put,
                  Pointers... inputs) {
  bool begins = true;
  const auto sides = sides_from<Function, 0, Of...>(p, true, begins, inputs...);
  const auto launch = [&](auto even) {
    using Runs = FormulaRuns<across, threads, 1, decltype(even)::value, Mode, Function, Results, Of...>;
    const Index tiles = (p.results() + Runs::together - 1) / Runs::together;
    const auto shared = shared_results<typename Mode::Total>(r, tiles, static_cast<std::uint32_t>(blocks));
    launch_blocks<block_threads, formula_resident>(
        r, tiles * blocks, formula_runs_of<Runs>(p, function, sides, blocks, shared, put), "reduction");
  };
  begins ? launch(std::true_type()) : launch(std::false_type());
}

/// The same by clusters of `cluster` blocks a result, which read each other's totals.
template <int across, int cluster, typename Mode, typename... Of, typename Function, typename Results, typename... Pointers>
void formula_run_clusters(const Run& r, const FormulaFold<sizeof...(Of)>& p, const Function& function, Index, const Results& put,
                          Pointers... inputs) {
  bool begins = true;
  const auto sides = sides_from<Function, 0, Of...>(p, true, begins, inputs...);
  const auto launch = [&](auto even) {
    using Runs = FormulaRuns<across, block_threads, cluster, decltype(even)::value, Mode, Function, Results, Of...>;
    Launch how{.blocks = counted(p.results() * cluster, "reduction"), .threads = block_threads};
    how.overlap = r.overlap;
    how.cluster = cluster;
    how.stream = r.stream;
    const SharedResults<typename Mode::Total> none{1, nullptr, nullptr};
    queue("reduction", how, blocks_kernel<block_threads, formula_resident, Runs>,
          formula_runs_of<Runs>(p, function, sides, cluster, none, put));
  };
  begins ? launch(std::true_type()) : launch(std::false_type());
}

}  // namespace bolt::portable
