// A GPU's gather of slices of any length that rows of indices name: results go in whole accesses, several of a thread.
#pragma once

#include "bolt_portable/cuda/flat.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"

namespace bolt::portable {

/// As `gather_nd`. A thread has `turns` words of `lanes` neighbours of the results, a block apart, each of which belongs to `rows`
/// slices at most: one where slices are whole words, which it then loads as they are. It asks for all indices of its words, `depth`
/// a row, before it asks for the first element.
template <typename T, typename I, int lanes, int turns, int rows, int depth>
struct GatheredTuples {
  using Word = Lanes<T, lanes>;
  static constexpr std::uint32_t apart = block_threads * lanes;

  const T* from;
  const I* at;
  T* to;
  Divisor inner, tuples;
  Extents extents;
  std::uint32_t elements, all_rows, slices;
  bool whole;  ///< slices begin where words may
  std::uint32_t* fault;
  std::uint32_t mark;

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t begin = block * (apart * turns) + threadIdx.x * lanes;
    I named[turns][rows][depth];
    Word found[turns];
#pragma unroll
    for (int k = 0; k < turns; ++k) {
      const std::uint32_t row = inner.quotient(min(begin + k * apart, (elements - 1) / lanes * lanes));
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const Index first = Index{min(row + i, all_rows - 1)} * depth;
#pragma unroll
        for (int axis = 0; axis < depth; ++axis) named[k][i][axis] = at[first + axis];
      }
    }
#pragma unroll
    for (int k = 0; k < turns; ++k) {
      const std::uint32_t base = min(begin + k * apart, (elements - 1) / lanes * lanes), row = inner.quotient(base);
      // Where each slice begins, less what is in front of it in the word's first one: elements count from there.
      std::uint32_t source[rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const std::uint32_t batch = tuples.quotient(min(row + i, all_rows - 1));
        std::uint32_t slice = 0;
#pragma unroll
        for (int axis = 0; axis < depth; ++axis)
          slice = slice * static_cast<std::uint32_t>(extents.at[axis]) +
                  static_cast<std::uint32_t>(inside(static_cast<Index>(named[k][i][axis]), extents.at[axis], fault, mark));
        source[i] = (batch * slices + slice - i) * inner.by;
      }
      const std::uint32_t own = base - row * inner.by;
      if constexpr (rows == 1) {
        if (whole) {
          found[k] = *reinterpret_cast<const Word*>(from + (source[0] + own));
          continue;
        }
      }
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        std::uint32_t begins = source[0];
#pragma unroll
        for (int next = 1; next < rows; ++next) begins = own + i >= next * inner.by ? source[next] : begins;
        if (base + i < elements) found[k].at[i] = from[begins + own + i];
      }
    }
#pragma unroll
    for (int k = 0; k < turns; ++k)
      if (begin + k * apart < elements) store_flat<lanes>(to, begin + k * apart, elements, found[k]);
  }
};

/// Raises std::runtime_error where there are too many elements, or the launch fails.
template <typename T, typename I, int lanes, int turns, int rows, int depth>
void gathered_tuples(const Run& r, const GatherND& p, const void* data, const void* indices, void* output) {
  using Tuples = GatheredTuples<T, I, lanes, turns, rows, depth>;
  const Index slices = product(p.extents), elements = p.batches * p.tuples * p.inner;
  counted(p.batches * slices * p.inner, "gather");
  const T* const from = static_cast<const T*>(data);
  launch_blocks(r, (elements + Tuples::apart * turns - 1) / (Tuples::apart * turns),
                Tuples{from, static_cast<const I*>(indices), static_cast<T*>(output), Divisor(p.inner), Divisor(p.tuples),
                       p.extents, counted(elements, "gather"), static_cast<std::uint32_t>(p.batches * p.tuples),
                       static_cast<std::uint32_t>(slices), in_lanes(from, lanes), r.fault, r.mark()},
                "gather");
}

}  // namespace bolt::portable
