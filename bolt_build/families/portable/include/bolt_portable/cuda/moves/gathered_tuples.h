// A GPU's gather of slices of any length that rows of indices name: results go in whole accesses, several of a thread.
#pragma once

#include "bolt_portable/cuda/flat.h"
#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"

namespace bolt::portable {

/// As `gather_nd`. A thread has `turns` words of `lanes` neighbours of the results, a block apart, each of which belongs to `rows`
/// slices at most: one where slices are whole words, which it then loads as they are. It asks for all indices of its words, `depth`
/// a row, before it asks for the first element. `shared`: all batches have the same rows of indices.
template <typename T, typename I, int lanes, int turns, int rows, int depth, bool shared>
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
        const std::uint32_t own = min(row + i, all_rows - 1);
        const Index first = Index{shared ? own - tuples.quotient(own) * tuples.by : own} * depth;
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
template <typename T, typename I, int lanes, int turns, int rows, int depth, bool shared = false>
void gathered_tuples(const Run& r, const GatherND& p, const void* data, const void* indices, void* output) {
  using Tuples = GatheredTuples<T, I, lanes, turns, rows, depth, shared>;
  const Index slices = product(p.extents), elements = p.batches * p.tuples * p.inner;
  counted(p.batches * slices * p.inner, "gather");
  const T* const from = static_cast<const T*>(data);
  launch_blocks(r, (elements + Tuples::apart * turns - 1) / (Tuples::apart * turns),
                Tuples{from, static_cast<const I*>(indices), static_cast<T*>(output), Divisor(p.inner), Divisor(p.tuples),
                       p.extents, counted(elements, "gather"), static_cast<std::uint32_t>(p.batches * p.tuples),
                       static_cast<std::uint32_t>(slices), in_lanes(from, lanes), r.fault, r.mark()},
                "gather");
}

/// The same where the data of a batch have room in a block's shared memory, which single elements are read from: of the L1 cache
/// a warp asks for one line after the other. A block has `share` rows of indices of one batch.
template <typename T, typename I, int lanes, int rows, int depth, bool shared>
struct StagedTuples {
  using Word = Lanes<T, lanes>;
  static constexpr std::uint32_t threads = 512, turns = 2;

  Granules<T> words;
  const I* at;
  T* to;
  Divisor inner, cuts;
  Extents extents;
  std::uint32_t tuples, share, table;  ///< rows of a batch and of a block, and elements of a batch's data
  bool aligned;
  std::uint32_t* fault;
  std::uint32_t mark;

  /// Bytes of shared memory of so many elements, which may begin and end inside of accesses.
  __host__ __device__ static std::uint32_t bytes(std::uint32_t elements) {
    return (elements * static_cast<std::uint32_t>(sizeof(T)) + 15) / 16 * 16 + 32;
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char gather_memory[];
    const std::uint32_t batch = cuts.quotient(block), first_row = batch * tuples + (block - batch * cuts.by) * share;
    const std::uint32_t last_row = min(first_row + share, (batch + 1) * tuples);
    const std::uint32_t begin = first_row * inner.by, end = last_row * inner.by;
    const std::uint32_t of_table = words.skew + batch * table, word = of_table / words.lanes;
    const std::uint32_t last = (of_table + table - 1) / words.lanes;
#pragma unroll 4
    for (std::uint32_t i = word + threadIdx.x; i <= last; i += threads)
      reinterpret_cast<uint4*>(gather_memory)[i - word] = words[i];
    const T* const held = reinterpret_cast<const T*>(gather_memory) + of_table % words.lanes;
    __syncthreads();
#pragma unroll 1
    for (std::uint32_t base = begin / lanes * lanes + threadIdx.x * lanes; base < end; base += turns * threads * lanes) {
      I named[turns][rows][depth];
#pragma unroll
      for (int k = 0; k < static_cast<int>(turns); ++k) {
        const std::uint32_t row = inner.quotient(min(max(base + k * threads * lanes, begin), end - 1));
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          const std::uint32_t own = min(row + i, last_row - 1);
          const Index first = Index{shared ? own - batch * tuples : own} * depth;
#pragma unroll
          for (int axis = 0; axis < depth; ++axis) named[k][i][axis] = at[first + axis];
        }
      }
#pragma unroll
      for (int k = 0; k < static_cast<int>(turns); ++k) {
        const std::uint32_t here = base + k * threads * lanes;
        if (here >= end) break;
        const std::uint32_t row = inner.quotient(max(here, begin));
        std::uint32_t source[rows];  // where each slice begins, as elements count from the first one's beginning
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          std::uint32_t slice = 0;
#pragma unroll
          for (int axis = 0; axis < depth; ++axis)
            slice = slice * static_cast<std::uint32_t>(extents.at[axis]) +
                    static_cast<std::uint32_t>(inside(static_cast<Index>(named[k][i][axis]), extents.at[axis], fault, mark));
          source[i] = (slice - i) * inner.by;
        }
        const std::uint32_t own = here - row * inner.by;  // below 0 where the word begins in front of the block's rows
        Word found;
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          std::uint32_t begins = source[0];
#pragma unroll
          for (int next = 1; next < rows; ++next)
            begins = static_cast<std::int32_t>(own + i) >= static_cast<std::int32_t>(next * inner.by) ? source[next] : begins;
          if (here + i >= begin && here + i < end) found.at[i] = held[begins + own + i];
        }
        if (aligned && here >= begin && here + lanes <= end) {
          *reinterpret_cast<Word*>(to + here) = found;
        } else {
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (here + i >= begin && here + i < end) to[here + i] = found.at[i];
        }
      }
    }
  }
};

/// As `gathered_tuples`, by `cuts` blocks a batch.
template <typename T, typename I, int lanes, int rows, int depth, bool shared = false>
void staged_tuples(const Run& r, const GatherND& p, Index cuts, const void* data, const void* indices, void* output) {
  using Staged = StagedTuples<T, I, lanes, rows, depth, shared>;
  const Index table = product(p.extents) * p.inner, share = (p.tuples + cuts - 1) / cuts;
  const Divisor parts((p.tuples + share - 1) / share);
  counted(p.batches * p.tuples * p.inner, "gather");
  const Granules<T> words(data, p.batches * table, "gather");
  Launch how{.blocks = counted(p.batches * parts.by, "gather"), .threads = Staged::threads};
  how.shared = static_cast<int>(Staged::bytes(static_cast<std::uint32_t>(table)));
  how.overlap = r.overlap;
  how.stream = r.stream;
  queue("gather", how, blocks_kernel<Staged::threads, 2, Staged>,
        Staged{words, static_cast<const I*>(indices), static_cast<T*>(output), Divisor(p.inner), parts, p.extents,
               static_cast<std::uint32_t>(p.tuples), static_cast<std::uint32_t>(share), static_cast<std::uint32_t>(table),
               in_lanes(static_cast<T*>(output), lanes), r.fault, r.mark()});
}

}  // namespace bolt::portable
