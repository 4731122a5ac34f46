// Reductions of short runs of neighbours that follow each other without a gap: many of them are one run of memory, which comes
// to shared memory in whole words, wherever each of them begins.
#pragma once

#include "bolt_portable/cuda/reductions/fold.h"

namespace bolt::portable {

/// A block has `lines` runs of `count` elements, `threads` threads one. Lines are a multiple of the elements of a word, so slabs of
/// all blocks begin at the same element of one.
template <int threads, int count, int lines, typename Fold, typename Results>
struct FoldSlabs {
  using Element = typename Fold::Element;
  using Total = typename Fold::Total;
  static constexpr int lanes = Granules<Element>::lanes, at_once = block_threads / threads;
  static constexpr int words = lines * count / lanes + 1;  ///< of a slab, which may begin inside of one
  static constexpr int loads = (words + block_threads - 1) / block_threads;
  /// Elements that a thread reads together: two of two bytes are one bank of shared memory.
  static constexpr int pair = sizeof(Element) == 2 && count % 2 == 0 ? 2 : 1;
  static_assert(lines % lanes == 0 && lines % at_once == 0);

  Granules<Element> in;
  Walk<2> kept;
  std::uint32_t results;
  Results put;

  __device__ void operator()(std::uint32_t block) const {
    __shared__ uint4 slab[loads * block_threads];
    const std::uint32_t first = block * (lines * count / lanes), end = (in.skew + in.elements + lanes - 1) / lanes;
    uint4 read[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::uint32_t word = threadIdx.x + k * block_threads;
      if (word < words && first + word < end) read[k] = in[first + word];
    }
#pragma unroll
    for (int k = 0; k < loads; ++k) slab[threadIdx.x + k * block_threads] = read[k];
    __syncthreads();
    const Element* const elements = reinterpret_cast<const Element*>(slab) + in.skew;
#pragma unroll 1
    for (std::uint32_t line = threadIdx.x / threads; line < lines; line += at_once) {
      const std::uint32_t own = block * lines + line;
      const Element* const from = elements + line * count;
      Total total = Fold::start();
      if (own < results) {
        if (pair == 2 && in.skew % 2 == 0)
          take<pair>(from, total);
        else
          take<1>(from, total);
      }
      total = joined_lanes<Fold, threads>(total);
      if (own >= results || threadIdx.x % threads != 0) continue;
      Index start[2] = {};
      kept.go(own, start);
      put(own, start[1], total);
    }
  }

 private:
  /// Takes this thread's elements of a line, `together` neighbours at a time.
  template <int together>
  __device__ static void take(const Element* from, Total& total) {
    using Group = Lanes<Element, together>;
    constexpr int groups = count / together, turns = (groups + threads - 1) / threads;
#pragma unroll 16
    for (int turn = 0; turn < turns; ++turn) {
      const std::uint32_t group = turn * threads + threadIdx.x % threads;
      if (groups % threads != 0 && group >= groups) break;
      const Group read = reinterpret_cast<const Group*>(from)[group];
#pragma unroll
      for (int i = 0; i < together; ++i) total = Fold::step(total, read.at[i], group * together + i);
    }
  }
};

/// Reduces runs of `count` neighbours that follow each other, which is all that `p` reduces. Raises std::runtime_error where the
/// tensor is too large, or the launch fails.
template <int threads, int count, int lines, typename Fold, typename Results>
void fold_slabs(const Run& r, const Reduce& p, Index, const void* input, const Results& put) {
  using Slabs = FoldSlabs<threads, count, lines, Fold, Results>;
  const Index elements = fold_elements(p);
  if (elements == 0) return;
  const Index results = elements / count;
  launch_blocks(r, (results + lines - 1) / lines,
                Slabs{Granules<typename Fold::Element>(input, elements, "reduction"), fold_rows(p, 0),
                      counted(results, "reduction"), put},
                "reduction");
}

}  // namespace bolt::portable
