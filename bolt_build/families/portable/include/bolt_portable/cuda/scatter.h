// A GPU's scatter along one axis, whose lines lie in shared memory.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/gather.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Bytes of shared memory that a block has for its lines; updates of all of them that it has there at once, which are on their way
/// while those in front are put in place; and how many of its line's a thread reads from there at once.
constexpr int scatter_bytes = 24 << 10, scatter_held = 1024, scatter_ahead = 8;

/// Data as [outer, length, inner], and updates as [outer, extent, inner]. A block has the lines of `columns` neighbours along the
/// last axis, of `outers` along the first.
struct ScatterLines {
  Index outer, length, extent, inner;
  int outers, columns;
};

/// Rows of a block's lines, in memory and in shared memory, in words of `lanes` elements, of which a row has `words`, and those up to
/// `columns` are there.
template <int lanes, bool into, typename T>
__device__ inline void move_lines(const ScatterLines& p, const Divisor& words, int rows, int columns, T* held, const T* from, T* to) {
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

/// Updates of a block's lines, as shared memory has them: for each of some places along the axis one of every line.
template <typename T>
struct HeldUpdates {
  std::uint16_t place[scatter_held];
  T value[scatter_held];
};

/// The block with lines from `column` on, of outer elements from `outer` on.
template <typename Function, typename T, typename I>
struct ScatteredLines {
  static constexpr int each = scatter_held / block_threads;
  ScatterLines p;
  Divisor columns, lines;
  const I* at;
  const T* from;
  std::uint32_t* fault;
  std::uint32_t mark;

  /// What a thread has asked for.
  struct Asked {
    I named[each];
    T update[each];
  };
  /// Which lines of a block are there, and where the updates of the first one begin.
  struct Block {
    Index first;
    int outers, columns;
  };

  __device__ int together() const { return scatter_held / static_cast<int>(lines.by); }

  /// Calls with(k, item, offset) for the updates that a thread brings, of those from place `start` along the axis on.
  template <typename With>
  __device__ void each_of(const Block& own, int start, const With& with) const {
    const int many = min(together(), static_cast<int>(p.extent) - start);
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const std::uint32_t item = threadIdx.x + k * block_threads, u = lines.quotient(item), line = item - u * lines.by;
      const std::uint32_t outer = columns.quotient(line), column = line - outer * columns.by;
      if (static_cast<int>(u) >= many || static_cast<int>(outer) >= own.outers || static_cast<int>(column) >= own.columns) continue;
      with(k, item, own.first + (outer * p.extent + start + u) * p.inner + column);
    }
  }
  __device__ void ask(const Block& own, int start, Asked& asked) const {
    each_of(own, start, [&](int k, std::uint32_t, Index offset) {
      asked.named[k] = at[offset];
      asked.update[k] = from[offset];
    });
  }
  __device__ void hold(const Block& own, int start, const Asked& asked, HeldUpdates<T>& updates) const {
    each_of(own, start, [&](int k, std::uint32_t item, Index) {
      updates.place[item] = static_cast<std::uint16_t>(inside(static_cast<Index>(asked.named[k]), p.length, fault, mark));
      updates.value[item] = asked.update[k];
    });
  }

  /// Updates of a thread's line, in their order.
  __device__ void apply(const Block& own, int start, const HeldUpdates<T>& updates, T* held) const {
    const std::uint32_t outer = columns.quotient(threadIdx.x), column = threadIdx.x - outer * columns.by;
    if (threadIdx.x >= lines.by || static_cast<int>(outer) >= own.outers || static_cast<int>(column) >= own.columns) return;
    T* const line = held + outer * p.length * p.columns + column;
    const int many = min(together(), static_cast<int>(p.extent) - start);
#pragma unroll 1
    for (int first = 0; first < many; first += scatter_ahead) {
      std::uint32_t place[scatter_ahead];
      T value[scatter_ahead];
#pragma unroll
      for (int i = 0; i < scatter_ahead; ++i) {
        if (first + i >= many) break;
        place[i] = updates.place[(first + i) * lines.by + threadIdx.x];
        value[i] = updates.value[(first + i) * lines.by + threadIdx.x];
      }
#pragma unroll
      for (int i = 0; i < scatter_ahead; ++i) {
        if (first + i >= many) break;
        T* const element_at = line + place[i] * p.columns;
        *element_at = element<T>(Function{}(read(element_at), read(&value[i])));
      }
    }
  }
};

/// As `scatter_elements`, of indices that are for all lines: a thread has a line, whose updates follow each other, so the result is
/// the same whichever thread is first. All threads bring updates, the next ones while these are put in place.
template <typename Function, int lanes, typename T, typename I>
void scatter_lines(const Run& r, const ScatterLines& p, const void* data, const void* indices, const void* updates, void* output) {
  const T* const given = static_cast<const T*>(data);
  T* const to = static_cast<T*>(output);
  counted(p.outer * p.length * p.inner, "scatter");
  const Divisor words((p.columns + lanes - 1) / lanes), single(p.columns);
  const Divisor parts((p.inner + p.columns - 1) / p.columns);
  const bool aligned = in_lanes(given, lanes) && in_lanes(to, lanes);
  const ScatteredLines<Function, T, I> all{p,       Divisor(p.columns),           Divisor(p.outers * p.columns),
                                           static_cast<const I*>(indices), static_cast<const T*>(updates),
                                           r.fault, r.mark()};
  launch_blocks<block_threads, 4>(
      r, (p.outer + p.outers - 1) / p.outers * parts.by,
      [=] __device__(std::uint32_t block) {
        __shared__ __align__(16) T held[scatter_bytes / sizeof(T)];
        __shared__ HeldUpdates<T> there;
        const std::uint32_t group = parts.quotient(block);
        const Index outer = Index{group} * p.outers, column = Index{block - group * parts.by} * p.columns;
        const typename ScatteredLines<Function, T, I>::Block own{outer * p.extent * p.inner + column,
                                                                 static_cast<int>(min(Index{p.outers}, p.outer - outer)),
                                                                 static_cast<int>(min(Index{p.columns}, p.inner - column))};
        const int rows = own.outers * static_cast<int>(p.length);
        const Index begin = outer * p.length * p.inner + column;
        typename ScatteredLines<Function, T, I>::Asked asked;
        all.ask(own, 0, asked);
        if (aligned)
          move_lines<lanes, true>(p, words, rows, own.columns, held, given + begin, to);
        else
          move_lines<1, true>(p, single, rows, own.columns, held, given + begin, to);
        const int together = all.together(), extent = static_cast<int>(p.extent);
#pragma unroll 1
        for (int start = 0; start < extent; start += together) {
          all.hold(own, start, asked, there);
          __syncthreads();
          if (start + together < extent) all.ask(own, start + together, asked);
          all.apply(own, start, there, held);
          __syncthreads();
        }
        if (aligned)
          move_lines<lanes, false>(p, words, rows, own.columns, held, given, to + begin);
        else
          move_lines<1, false>(p, single, rows, own.columns, held, given, to + begin);
      },
      "scatter");
}

}  // namespace bolt::portable
