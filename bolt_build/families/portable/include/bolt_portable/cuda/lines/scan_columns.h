// Running sums and products across neighbours: threads of a block share a line, and have some of its elements in registers.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/lines.h"

namespace bolt::portable {

/// Of a block `across` threads have `lanes` neighbouring lines each, and others parts of the same ones, one behind the other.
/// A thread adds up its elements, takes what all parts in front have, and goes over its elements once more in registers.
/// Of narrow words few bytes are under way: those of the next round come meanwhile.
template <int lanes, int across, typename T, typename Function>
struct ScanColumns {
  using Value = typename Computed<T>::type;
  static constexpr int parts = block_threads / across, held = lanes * sizeof(T) >= 16 ? 8 : 16;
  static constexpr int slots = across * lanes, groups = slots < block_threads ? block_threads / slots : 1;
  static constexpr int run = parts / groups;  ///< parts that a thread goes over
  static_assert(run * groups == parts);

  const T* from;
  T* to;
  Divisor pieces;
  std::uint32_t items, extent, inner;  ///< items are `lanes` lines side by side
  bool exclusive, reverse;
  int first;

  static constexpr bool narrow_words = lanes * sizeof(T) < 8;
  /// Whether each thread goes over all parts itself, which takes one barrier a round.
  static constexpr bool few_parts = parts <= 16;
  using Word = Lanes<T, lanes>;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ Value found[few_parts ? 2 : 1][parts][slots], sums[few_parts ? 1 : groups][few_parts ? 1 : slots], carried[slots];
    const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across, item = block * across + lane;
    const std::uint32_t outer = pieces.quotient(item), column = (item - outer * pieces.by) * lanes;
    const T* const given = from + static_cast<Index>(outer) * extent * inner + column;
    T* const made_at = to + static_cast<Index>(outer) * extent * inner + column;
    const std::uint32_t end = item < items ? extent : 0u;
    Value in_front[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) in_front[i] = static_cast<Value>(first);
    if constexpr (!few_parts)
      for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) carried[i] = static_cast<Value>(first);
    Word rows[held], next[narrow_words ? held : 1];
    ask(given, part * held, end, rows);
    int turn = 0;
    for (std::uint32_t base = 0; base < extent; base += parts * held, turn ^= 1) {
      const std::uint32_t own = base + part * held, many = own < end ? min(end - own, static_cast<std::uint32_t>(held)) : 0u;
      if constexpr (narrow_words) ask(given, own + parts * held, end, next);
      Value total[lanes];
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        total[i] = static_cast<Value>(first);
#pragma unroll
        for (std::uint32_t k = 0; k < held; ++k)
          if (k < many) total[i] = Function{}(total[i], read(&rows[k].at[i]));
        found[few_parts ? turn : 0][part][lane * lanes + i] = total[i];
      }
      if constexpr (few_parts) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          Value before = in_front[i];
#pragma unroll
          for (std::uint32_t other = 0; other < parts; ++other) {
            if (other == part) total[i] = before;
            before = Function{}(before, found[turn][other][lane * lanes + i]);
          }
          in_front[i] = before;
        }
      } else {
        put_in_front(found[0], sums, carried);
#pragma unroll
        for (int i = 0; i < lanes; ++i) total[i] = found[0][part][lane * lanes + i];
      }
#pragma unroll
      for (std::uint32_t k = 0; k < held; ++k) {
        if (k >= many) break;
        Word made;
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const Value before = total[i];
          total[i] = Function{}(before, read(&rows[k].at[i]));
          made.at[i] = element<T>(exclusive ? before : total[i]);
        }
        *reinterpret_cast<Word*>(made_at + row(own + k)) = made;
      }
      if constexpr (!few_parts) __syncthreads();
      if constexpr (narrow_words) {
#pragma unroll
        for (int k = 0; k < held; ++k) rows[k] = next[k];
      } else {
        ask(given, own + parts * held, end, rows);
      }
    }
  }

 private:
  /// Asks for words of rows from `own` on, those in front of the end.
  __device__ void ask(const T* given, std::uint32_t own, std::uint32_t end, Word (&rows)[held]) const {
#pragma unroll
    for (std::uint32_t k = 0; k < held; ++k)
      if (own + k < end) rows[k] = *reinterpret_cast<const Word*>(given + row(own + k));
  }
  __device__ Index row(std::uint32_t i) const { return static_cast<Index>(reverse ? extent - 1 - i : i) * inner; }

  /// Makes of every part's total that of all in front of it, and of what is carried on that of all parts.
  __device__ static void put_in_front(Value (&found)[parts][slots], Value (&sums)[groups][slots], Value (&carried)[slots]) {
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < groups * slots; i += block_threads) {
      const std::uint32_t slot = i % slots, group = i / slots;
      Value sum = found[group * run][slot];
#pragma unroll
      for (int k = 1; k < run; ++k) sum = Function{}(sum, found[group * run + k][slot]);
      sums[group][slot] = sum;
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < groups * slots; i += block_threads) {
      const std::uint32_t slot = i % slots, group = i / slots;
      Value before = carried[slot];
      for (std::uint32_t other = 0; other < group; ++other) before = Function{}(before, sums[other][slot]);
#pragma unroll
      for (int k = 0; k < run; ++k) {
        Value& here = found[group * run + k][slot];
        const Value own = here;
        here = before;
        before = Function{}(before, own);
      }
      if (group == groups - 1) sums[group][slot] = before;
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) carried[i] = sums[groups - 1][i];
  }
};

/// Lines of [outer, extent, inner], as `cumulative` of lines.h; one a thread where tensors do not begin where `lanes` elements
/// may. Raises std::runtime_error where there are too many lines, or the launch fails.
template <int lanes, int across, typename T, typename Function>
void scan_columns(const Run& r, const Lines& p, bool exclusive, bool reverse, const void* input, void* output, int first) {
  using Columns = ScanColumns<lanes, across, T, Function>;
  const T* from = static_cast<const T*>(input);
  T* to = static_cast<T*>(output);
  if (!in_lanes(from, lanes) || !in_lanes(to, lanes)) {
    if constexpr (lanes > 1)
      return scan_columns<1, across < 32 ? 32 : across, T, Function>(r, p, exclusive, reverse, input, output, first);
  }
  const std::uint32_t items = counted(p.outer * p.inner / lanes, "running sum");
  const Columns columns{from, to, Divisor(p.inner / lanes), items, counted(p.extent, "running sum"),
                        counted(p.inner, "running sum"), exclusive, reverse, first};
  const Index blocks = (static_cast<Index>(items) + across - 1) / across;
  launch_blocks<block_threads, Columns::narrow_words ? 3 : 1>(r, blocks, columns, "running sum");
}

}  // namespace bolt::portable
