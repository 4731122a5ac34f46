// Reductions whose results are neighbours, wherever rows of them begin: a thread has a word of neighbours.
#pragma once

#include "bolt_portable/cuda/reductions/fold.h"

namespace bolt::portable {

/// `across` threads have words of results that lie side by side, and `parts` threads share each. A row of results is cut in
/// words, the last of which may be only a part. Rows of the input begin anywhere in a word, so that a thread reads two words
/// and shifts them: neighbouring threads read them too, from the L1 cache. Where every row begins with a word, a thread reads one,
/// and has room for twice as many at once.
template <int across, typename Fold, typename Results>
struct FoldColumns {
  using Element = typename Fold::Element;
  using Total = typename Fold::Total;
  static constexpr int parts = block_threads / across;
  static constexpr std::uint32_t lanes = Granules<Element>::lanes, slots = across * lanes;
  /// Blocks of a multiprocessor that registers are for: totals and the words under way.
  static constexpr std::size_t held = lanes * sizeof(Total);
  static constexpr int resident = held <= 32 || (Fold::together && held <= 64) ? 4 : held <= 64 ? 3 : 2;
  static constexpr int at_once = 2;  ///< elements of a column that are taken together, where the mode can
  static constexpr int groups = slots < block_threads ? block_threads / slots : 1;  ///< that join what blocks have left

  Granules<Element> in;
  Walk<2> rows;
  Walk<1> reduced;
  Divisor pieces, sharing;
  std::uint32_t columns, items, count, share, step;  ///< words of results; reduced elements, and those of a block
  bool flat, along;                                  ///< one reduced axis, `step` apart; columns are channels
  bool even;                                         ///< every row begins and ends with a word
  SharedResults<Total> shared;
  Results put;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ __align__(16) Total found[parts][slots];
    const std::uint32_t tile = sharing.quotient(block), split = block - tile * sharing.by;
    const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across, item = tile * across + lane;
    Total total[lanes];
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) total[i] = Fold::start();
    if (item < items) {
      const std::uint32_t row = pieces.quotient(item), column = (item - row * pieces.by) * lanes;
      Index start[2] = {};
      rows.go(row, start);
      const std::uint32_t begin = in.skew + static_cast<std::uint32_t>(start[0]) + column, first = split * share + part;
      const std::uint32_t end = min((split + 1) * share, count);
      if (even)
        take<true, 8>(begin, lanes, first, end, total);
      else
        take<false, 4>(begin, min(lanes, columns - column), first, end, total);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) found[part][lane * lanes + i] = total[i];
    join_parts(found, parts);
    if (shared.blocks > 1) {
      Total* const left = shared.left + static_cast<Index>(tile) * shared.blocks * slots;
      for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) left[split * slots + i] = found[0][i];
      if (!shared.is_last(tile)) return;
      for (std::uint32_t i = threadIdx.x; i < groups * slots; i += block_threads)
        found[i / slots][i % slots] = joined_blocks<Fold, groups, slots>(left + i % slots, i / slots, shared.blocks);
      join_parts(found, groups);
    }
    for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) store_result(tile * across + i / lanes, i, found[0][i]);
  }

 private:
  /// Joins `many` parts of the totals two by two, a power of two.
  __device__ static void join_parts(Total (&found)[parts][slots], int many) {
    for (std::uint32_t half = many / 2; half > 0; half /= 2) {
      __syncthreads();
      for (std::uint32_t i = threadIdx.x; i < half * slots; i += block_threads) {
        Total& own = found[i / slots][i % slots];
        own = Fold::join(own, found[i / slots + half][i % slots]);
      }
    }
    __syncthreads();
  }

  /// Takes the reduced elements `first` and every `parts`-th behind it into totals of `many` columns from element `begin` on.
  template <bool words, int batch>
  __device__ void take(std::uint32_t begin, std::uint32_t many, std::uint32_t first, std::uint32_t end,
                       Total (&total)[lanes]) const {
    for (; first < end; first += parts * batch) {
      uint4 low[batch], high[words ? 1 : batch];
      std::uint32_t at[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        if (first + k * parts >= end) continue;
        at[k] = begin + place(first + k * parts);
        low[k] = in[at[k] / lanes];
        if constexpr (!words) {
          high[k] = uint4{};
          if (at[k] % lanes + many > lanes) high[k] = in[at[k] / lanes + 1];
        }
      }
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        if constexpr (Fold::together) continue;
        if (first + k * parts >= end) continue;
        if constexpr (!words) low[k] = straddling<Element>(low[k], high[k], at[k] % lanes);
        const auto values = elements_of<Element>(low[k]);
#pragma unroll
        for (std::uint32_t i = 0; i < lanes; ++i) total[i] = Fold::step(total[i], values.at[i], first + k * parts);
      }
      if constexpr (Fold::together) {
#pragma unroll
        for (int k = 0; k < batch; k += at_once) {
          float x[lanes][at_once];
#pragma unroll
          for (int j = 0; j < at_once; ++j) {
            const bool there = first + (k + j) * parts < end;
            if constexpr (!words)
              if (there) low[k + j] = straddling<Element>(low[k + j], high[k + j], at[k + j] % lanes);
            const auto values = elements_of<Element>(low[k + j]);
#pragma unroll
            for (std::uint32_t i = 0; i < lanes; ++i) x[i][j] = there ? load(&values.at[i]) : Fold::nothing();
          }
#pragma unroll
          for (std::uint32_t i = 0; i < lanes; ++i) total[i] = Fold::steps(total[i], x[i]);
        }
      }
    }
  }

  __device__ std::uint32_t place(std::uint32_t element) const {
    if (flat) return element * step;
    Index at[1] = {};
    reduced.go(element, at);
    return static_cast<std::uint32_t>(at[0]);
  }

  __device__ void store_result(std::uint32_t item, std::uint32_t slot, const Total& total) const {
    if (item >= items) return;
    const std::uint32_t row = pieces.quotient(item), column = (item - row * pieces.by) * lanes + slot % lanes;
    if (column >= columns) return;
    Index start[2] = {};
    rows.go(row, start);
    put(row * columns + column, along ? column : start[1], total);
  }
};

/// Reduces what lies across runs of neighbours, the innermost kept axis of `p`. `blocks` blocks share each results' tile.
/// Raises std::runtime_error where the tensor is too large, or the launch fails.
template <int across, typename Fold, typename Results>
void fold_columns(const Run& r, const Reduce& p, Index blocks, const void* input, const Results& put) {
  using Columns = FoldColumns<across, Fold, Results>;
  const Index elements = fold_elements(p), columns = p.kept[p.kept_rank - 1];
  if (elements == 0) return;
  const Walk<2> rows = fold_rows(p, 1);
  const Walk<1> reduced = folded_walk(p, 0);
  const Index pieces = (columns + Columns::lanes - 1) / Columns::lanes, items = rows.items * pieces;
  const Index tiles = (items + across - 1) / across, share = (reduced.items + blocks - 1) / blocks;
  const bool flat = p.reduced_rank == 1;
  const Granules<typename Fold::Element> in(input, elements, "reduction");
  const auto words = [](const Index* extents, const Index* strides, int rank) {
    bool all = true;
    for (int axis = 0; axis < rank; ++axis) all = all && (extents[axis] == 1 || strides[axis] % Columns::lanes == 0);
    return all;
  };
  const bool even = in.skew == 0 && columns % Columns::lanes == 0 && words(p.kept, p.kept_stride, p.kept_rank - 1) &&
                    words(p.reduced, p.reduced_stride, p.reduced_rank);
  launch_blocks<block_threads, Columns::resident>(r, tiles * blocks,
                Columns{in, rows, reduced, Divisor(pieces),
                        Divisor(blocks), static_cast<std::uint32_t>(columns), counted(items, "reduction"),
                        static_cast<std::uint32_t>(reduced.items), static_cast<std::uint32_t>(share),
                        static_cast<std::uint32_t>(flat ? p.reduced_stride[0] : 0), flat, p.channel_axis == p.kept_rank - 1, even,
                        shared_results<typename Fold::Total>(r, tiles, static_cast<std::uint32_t>(blocks)), put},
                "reduction");
}

}  // namespace bolt::portable
