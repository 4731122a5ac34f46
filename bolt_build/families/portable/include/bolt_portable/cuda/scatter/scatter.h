// A GPU's scatter along one axis, whose lines lie in shared memory.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Bytes of shared memory that a block has for its lines, and updates of a line that a thread has asked for at once.
constexpr int scatter_bytes = 24 << 10;
template <typename I>
constexpr int scatter_ahead = sizeof(I) > 4 ? 10 : 16;

/// Data as [outer, length, inner], and updates as [outer, extent, inner]. A block has the lines of `columns` neighbours along the
/// last axis, of `outers` along the first.
struct ScatterLines {
  Index outer, length, extent, inner;
  int outers, columns;
};

/// Rows of a block's lines, in memory and in shared memory, in words of `lanes` elements, of which a row has `words`, and
/// those up to
/// `columns` are there.
template <int lanes, bool into, typename T>
__device__ inline void move_lines(const ScatterLines& p, const Divisor& words, int rows, int columns, T* held, const T* from,
                                  T* to) {
  using Word = Lanes<T, lanes>;
  constexpr int ahead = 4;
  const std::uint32_t items = rows * words.by, inner = static_cast<std::uint32_t>(p.inner);
#pragma unroll 1
  for (std::uint32_t first = threadIdx.x; first < items; first += ahead * block_threads) {
    Word found[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const std::uint32_t item = first + k * block_threads, row = words.quotient(item), column = (item - row * words.by) * lanes;
      if (item >= items || column >= columns) continue;
      found[k] = *reinterpret_cast<const Word*>(into ? from + row * inner + column : held + row * p.columns + column);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const std::uint32_t item = first + k * block_threads, row = words.quotient(item), column = (item - row * words.by) * lanes;
      if (item >= items || column >= columns) continue;
      *reinterpret_cast<Word*>(into ? held + row * p.columns + column : to + row * inner + column) = found[k];
    }
  }
}

/// As `scatter_elements`, of indices that are for all lines: a thread has a line, whose updates follow each other, so the result is
/// the same whichever thread is first. It asks for several before it puts the first in place.
template <typename Function, int lanes, typename T, typename I>
void scatter_lines(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates, void* output) {
  const T* const given = static_cast<const T*>(data);
  const I* const at = static_cast<const I*>(indices);
  const T* const from = static_cast<const T*>(updates);
  T* const to = static_cast<T*>(output);
  counted(p.outer * p.length * p.inner, "scatter");
  const Divisor words((p.columns + lanes - 1) / lanes), single(p.columns), columns(p.columns);
  const Divisor parts((p.inner + p.columns - 1) / p.columns);
  const bool aligned = in_lanes(given, lanes) && in_lanes(to, lanes);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_blocks<block_threads, 4>(
      r, (p.outer + p.outers - 1) / p.outers * parts.by,
      [=] __device__(std::uint32_t block) {
        constexpr int ahead = scatter_ahead<I>;
        __shared__ __align__(16) T held[scatter_bytes / sizeof(T)];
        const std::uint32_t group = parts.quotient(block);
        const Index outer = Index{group} * p.outers, column = Index{block - group * parts.by} * p.columns;
        const int outers = static_cast<int>(min(Index{p.outers}, p.outer - outer));
        const int there = static_cast<int>(min(Index{p.columns}, p.inner - column));
        const int rows = outers * static_cast<int>(p.length);
        const Index begin = outer * p.length * p.inner + column;
        if (aligned)
          move_lines<lanes, true>(p, words, rows, there, held, given + begin, to);
        else
          move_lines<1, true>(p, single, rows, there, held, given + begin, to);
        __syncthreads();
        const std::uint32_t own = columns.quotient(threadIdx.x), beside = threadIdx.x - own * p.columns;
        if (own < outers && beside < there) {
          T* const line = held + own * p.length * p.columns + beside;
          const Index first = (outer + own) * p.extent * p.inner + column + beside;
          const I* named_at = at + first;
          const T* update_at = from + first;
#pragma unroll 1
          for (int left = static_cast<int>(p.extent); left > 0; left -= ahead) {
            I named[ahead];
            T update[ahead];
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
              if (i >= left) break;
              named[i] = *named_at;
              update[i] = *update_at;
              named_at += p.inner;
              update_at += p.inner;
            }
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
              if (i >= left) break;
              const auto place = static_cast<std::uint32_t>(inside(static_cast<Index>(named[i]), p.length, fault, mark));
              T* const element_at = line + place * p.columns;
              *element_at = element<T>(Function{}(read(element_at), read(&update[i])));
            }
          }
        }
        __syncthreads();
        if (aligned)
          move_lines<lanes, false>(p, words, rows, there, held, given, to + begin);
        else
          move_lines<1, false>(p, single, rows, there, held, given, to + begin);
      },
      "scatter");
}

}  // namespace bolt::portable
