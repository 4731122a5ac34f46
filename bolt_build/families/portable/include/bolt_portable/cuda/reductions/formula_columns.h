// Reductions of elementwise functions whose results are neighbours: threads have eight results side by side.
#pragma once

#include "bolt_portable/cuda/reductions/formula_sides.h"

namespace bolt::portable {

/// `across` threads have eight results each that lie side by side, and `parts` threads share these. A row of results is cut in
/// eights, the last of which may be only a part. `even`: these begin with words in all tensors. Blocks that share results leave
/// totals for the last of them.
template <int across, bool even, typename Mode, typename Function, typename Results, typename... Of>
struct FormulaColumns {
  using Sides = FormulaSides<Function, Of...>;
  using Fold = FloatFold<Mode, float>;
  using Total = typename Mode::Total;
  static constexpr int inputs = sizeof...(Of), parts = block_threads / across;
  static constexpr int loads = octets_at_once(inputs, even);
  static constexpr std::uint32_t slots = across * octet;
  static constexpr int groups = slots < block_threads ? block_threads / slots : 1;  ///< that join what blocks have left

  Function function;
  Sides sides;
  Walk<inputs + 1> rows;
  Walk<inputs> folded;
  Divisor pieces, sharing;
  std::uint32_t columns, items, count, share;  ///< eights of results; folded elements, and those of a block
  bool along;                                  ///< columns are channels
  SharedResults<Total> shared;
  Results put;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) Total found[parts][slots];
    const std::uint32_t tile = sharing.quotient(block), split = block - tile * sharing.by;
    const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across, item = tile * across + lane;
    Total total[octet];
#pragma unroll
    for (int i = 0; i < octet; ++i) total[i] = Mode::start();
    if (item < items) {
      const std::uint32_t row = pieces.quotient(item), column = (item - row * pieces.by) * octet;
      Index start[inputs + 1] = {};
      rows.go(row, start);
      const std::uint32_t first = split * share + part, end = min((split + 1) * share, count);
      const int many = min(octet, columns - column);
      take(start, column, many, first, end, total);
    }
#pragma unroll
    for (int i = 0; i < octet; ++i) found[part][lane * octet + i] = total[i];
    join_parts(found, parts);
    if (shared.blocks > 1) {
      Total* const left = shared.left + static_cast<Index>(tile) * shared.blocks * slots;
      for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) left[split * slots + i] = found[0][i];
      if (!shared.is_last(tile)) return;
      for (std::uint32_t i = threadIdx.x; i < groups * slots; i += block_threads)
        found[i / slots][i % slots] = joined_blocks<Fold, groups, slots>(left + i % slots, i / slots, shared.blocks);
      join_parts(found, groups);
    }
    for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) store_result(tile * across + i / octet, i, found[0][i]);
  }

 private:
  /// Joins `many` parts of the totals two by two, a power of two.
  __device__ static void join_parts(Total (&found)[parts][slots], int many) {
    for (std::uint32_t half = many / 2; half > 0; half /= 2) {
      __syncthreads();
      for (std::uint32_t i = threadIdx.x; i < half * slots; i += block_threads) {
        Total& own = found[i / slots][i % slots];
        own = Mode::join(own, found[i / slots + half][i % slots]);
      }
    }
    __syncthreads();
  }

  /// Takes folded element `first` and every `parts`-th behind it into totals of the columns from `column` on.
  __device__ void take(const Index (&start)[inputs + 1], std::uint32_t column, int many, std::uint32_t first, std::uint32_t end,
                       Total (&total)[octet]) const {
    for (; first < end; first += parts * loads) {
      typename Sides::Asked asked[loads];
      std::uint32_t at[loads][inputs];
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (first + k * parts >= end) continue;
        Index place[inputs];
#pragma unroll
        for (int i = 0; i < inputs; ++i) place[i] = start[i];
        folded.go(first + k * parts, place);
        places_of(place, at[k]);
        sides.template ask<even, 0>(at[k], column, many, asked[k]);
      }
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (first + k * parts >= end) continue;
        sides.template each<even, 0>(function, at[k], column, asked[k],
                                      [&](int i, float number) { total[i] = Mode::step(total[i], number); });
      }
    }
  }

  __device__ void store_result(std::uint32_t item, std::uint32_t slot, const Total& total) const {
    if (item >= items) return;
    const std::uint32_t row = pieces.quotient(item), column = (item - row * pieces.by) * octet + slot % octet;
    if (column >= columns) return;
    Index start[inputs + 1] = {};
    rows.go(row, start);
    put(row * columns + column, along ? column : start[inputs], total);
  }
};

/// `Mode` of `function` of tensors of types and ways `Of`, along the innermost kept axis of `p`. `blocks` blocks share each result.
/// Raises std::runtime_error where a tensor is too large, or the launch fails.
template <int across, typename Mode, typename... Of, typename Function, typename Results, typename... Pointers>
void formula_columns(const Run& r, const FormulaFold<sizeof...(Of)>& p, const Function& function, Index blocks,
                     const Results& put, Pointers... inputs) {
  bool begins = true;
  const auto sides = sides_from<Function, 0, Of...>(p, false, begins, inputs...);
  const auto rows = kept_walk(p, 1);
  const auto folded = folded_places(p, 0);
  const Index columns = p.kept[p.kept_rank - 1], pieces = (columns + octet - 1) / octet, items = rows.items * pieces;
  const Index count = folded.items, share = (count + blocks - 1) / blocks, tiles = (items + across - 1) / across;
  const auto shared = shared_results<typename Mode::Total>(r, tiles, static_cast<std::uint32_t>(blocks));
  const auto launch = [&](auto even) {
    using Columns = FormulaColumns<across, decltype(even)::value, Mode, Function, Results, Of...>;
    launch_blocks<block_threads, formula_resident>(
        r, tiles * blocks,
        Columns{function, sides, rows, folded, Divisor(pieces), Divisor(blocks), counted(columns, "reduction"),
                counted(items, "reduction"), counted(count, "reduction"), counted(share, "reduction"),
                p.channel_axis == p.kept_rank - 1, shared, put},
        "reduction");
  };
  begins ? launch(std::true_type()) : launch(std::false_type());
}

}  // namespace bolt::portable
