// Running sums and products across few neighbours, whose lines together are one run of memory: parts of it come to shared memory in
// whole accesses, wherever lines begin.
#pragma once

#include "bolt_portable/cuda/async_copy.h"
#include "bolt_portable/cuda/cluster.h"
#include "bolt_portable/cuda/lines/scan_columns.h"
#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/shared_totals.h"

namespace bolt::portable {

/// A block has a slab of [extent, inner], `rows` rows of it at once: a part comes to shared memory while the one before is added
/// up there, where several are (`stages`). A thread has some rows of one column; it adds up its elements, takes what all in front
/// have, and goes over its elements once more. The compiler knows how many lines there are side by side: so rows are constants of
/// addresses. Where slabs are few, the blocks of a `cluster` have a part each, and tell each other what it comes to. Where they are
/// long as well (`cluster` 0), each part has a block of its own: a first launch leaves what parts come to in memory, and in the
/// second one a block begins with what those in front of it have left.
template <int stages, std::uint32_t inner, bool exclusive, bool reverse, typename T, typename Function, int cluster = 1>
struct ScanSlabs {
  using Value = typename Computed<T>::type;
  using Told = Exchanged<Value>;
  static constexpr bool in_memory = cluster == 0;
  static_assert(cluster == 1 || stages == 1);
  static constexpr std::uint32_t lanes = Granules<T>::lanes, threads = 512, parts = threads / inner;
  static constexpr int ahead = 8, apart = reverse ? -static_cast<int>(inner) : static_cast<int>(inner);

  Granules<T> words;
  T* to;
  bool alike;  ///< words of the output begin where those of the input do
  std::uint32_t extent, rows;
  int first;
  Divisor cuts;                 ///< parts of a slab that have a block each
  bool leaves;                  ///< what they come to, and stores nothing else
  Value* left;                  ///< [slab][part][inner]

  /// Bytes of shared memory of a part, which may begin and end inside of accesses.
  __host__ __device__ static std::uint32_t part_bytes(std::uint32_t rows) {
    return (rows * inner * static_cast<std::uint32_t>(sizeof(T)) + 15) / 16 * 16 + 32;
  }

  __device__ void operator()(std::uint32_t block) const {
    extern __shared__ __align__(16) unsigned char scan_memory[];
    __shared__ Value found[threads];
    const std::uint32_t bytes = part_bytes(rows);
    const auto memory = [&](std::uint32_t part) { return reinterpret_cast<T*>(scan_memory + part % stages * bytes); };
    const std::uint32_t slabs_in_front = in_memory ? cuts.quotient(block) : block / (in_memory ? 1 : cluster);
    const std::uint32_t rank = block - slabs_in_front * (in_memory ? cuts.by : cluster);
    const std::uint32_t slab = words.skew + slabs_in_front * extent * inner;
    const std::uint32_t begin_part = cluster != 1 ? rank : 0, many = cluster != 1 ? rank + 1 : (extent + rows - 1) / rows;
    Value* const own_left = in_memory ? left + Index{slabs_in_front} * cuts.by * inner : nullptr;
    const std::uint32_t part_of = threadIdx.x / inner, column = threadIdx.x % inner;
    const bool works = part_of < parts;
    Value in_front = static_cast<Value>(first);
    bring(slab, begin_part, memory(begin_part));
    if constexpr (in_memory)
      if (!leaves) in_front = of_parts_in_front(rank, part_of, column, own_left);
    for (std::uint32_t part = begin_part; part < many; ++part) {
      if (stages > 1 && part + 1 < many) bring(slab, part + 1, memory(part + 1));
      commit();
      if constexpr (stages > 1)
        settle<1>();
      else
        settle<0>();
      __syncthreads();
      const std::uint32_t there = rows_of(part), begin = slab + begin_of(part) * inner;
      const std::uint32_t each = (there + parts - 1) / parts, own = min(part_of * each, there), end = min(own + each, there);
      T* const at = memory(part) + begin % lanes + column + (reverse ? there - 1 - own : own) * inner;
      const int many_rows = works ? static_cast<int>(end) - static_cast<int>(own) : 0;
      Value total = static_cast<Value>(first);
      each_row(many_rows, at, [&](T*, const Value& x) { total = Function{}(total, x); });
      if (works) found[part_of * inner + column] = total;
      __syncthreads();
      if constexpr (cluster > 1) in_front = of_blocks_in_front(rank, column, found);
      if constexpr (in_memory) {
        if (leaves) {
          if (threadIdx.x < inner) own_left[Index{rank} * inner + threadIdx.x] = of_all_parts(found, threadIdx.x);
          return;
        }
      }
      if (works) {
        Value before = in_front;
        for (std::uint32_t other = 0; other < parts; ++other) {
          if (other == part_of) total = before;
          before = Function{}(before, found[other * inner + column]);
        }
        in_front = before;
        each_row(many_rows, at, [&](T* to_here, const Value& x) {
          const Value before_it = total;
          total = Function{}(before_it, x);
          *to_here = element<T>(exclusive ? before_it : total);
        });
      }
      __syncthreads();
      store(begin, there * inner, memory(part));
      __syncthreads();
    }
    if constexpr (cluster > 1) cluster_wait();  // others may still read this block's totals
  }

 private:
  __device__ Value of_all_parts(const Value* found, std::uint32_t column) const {
    Value total = static_cast<Value>(first);
    for (std::uint32_t part = 0; part < parts; ++part) total = Function{}(total, found[part * inner + column]);
    return total;
  }
  /// What `many` parts of a slab have left of a column: threads of a column have some of them each, one behind the other.
  __device__ Value of_parts_in_front(std::uint32_t many, std::uint32_t part_of, std::uint32_t column, const Value* totals) const {
    __shared__ Value shares[threads];
    constexpr int at_once = 8;
    const std::uint32_t each = (many + parts - 1) / parts, begin = min(part_of * each, many), end = min(begin + each, many);
    Value all = static_cast<Value>(first);
#pragma unroll 1
    for (std::uint32_t base = begin; base < end; base += at_once) {
      Value read_there[at_once];
#pragma unroll
      for (std::uint32_t k = 0; k < at_once; ++k)
        read_there[k] = base + k < end ? totals[Index{base + k} * inner + column] : static_cast<Value>(first);
#pragma unroll
      for (int k = 0; k < at_once; ++k) all = Function{}(all, read_there[k]);
    }
    if (part_of < parts) shares[part_of * inner + column] = all;
    __syncthreads();
    return of_all_parts(shares, column);
  }
  /// What the parts of the blocks in front come to together, of a column.
  __device__ Value of_blocks_in_front(std::uint32_t rank, std::uint32_t column, const Value* found) const {
    __shared__ __align__(8) Told totals[inner];
    if (threadIdx.x < inner) totals[threadIdx.x] = static_cast<Told>(of_all_parts(found, threadIdx.x));
    __syncthreads();
    cluster_meet();
    Value all = static_cast<Value>(first);
    for (std::uint32_t other = 0; other < rank; ++other) {
      Told told;
      if constexpr (sizeof(Told) == 4) {
        const float bits = of_block(reinterpret_cast<const float*>(totals + column), static_cast<int>(other));
        memcpy(&told, &bits, sizeof told);
      } else {
        const float2 bits = of_block(reinterpret_cast<const float2*>(totals + column), static_cast<int>(other));
        memcpy(&told, &bits, sizeof told);
      }
      all = Function{}(all, static_cast<Value>(told));
    }
    cluster_arrive();
    return all;
  }
  __device__ std::uint32_t rows_of(std::uint32_t part) const { return min(rows, extent - part * rows); }
  /// The row of the slab with which a part begins in memory.
  __device__ std::uint32_t begin_of(std::uint32_t part) const {
    return reverse ? extent - part * rows - rows_of(part) : part * rows;
  }
  /// Calls with(element, its value) for so many rows of a column, of which several are read before any is stored.
  template <typename With>
  __device__ static void each_row(int many, T* at, const With& with) {
#pragma unroll 1
    for (; many >= ahead; many -= ahead, at += ahead * apart) {
      Value x[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) x[k] = read(at + k * apart);
#pragma unroll
      for (int k = 0; k < ahead; ++k) with(at + k * apart, x[k]);
    }
#pragma unroll 1
    for (; many > 0; --many, at += apart) with(at, read(at));
  }
  /// Begins to bring the words of a part.
  __device__ void bring(std::uint32_t slab, std::uint32_t part, T* held) const {
    const std::uint32_t begin = slab + begin_of(part) * inner, end = begin + rows_of(part) * inner;
    const std::uint32_t word = begin / lanes, last = (end - 1) / lanes;
#pragma unroll 4
    for (std::uint32_t at = word + threadIdx.x; at <= last; at += threads) {
      uint4* const place = reinterpret_cast<uint4*>(held) + (at - word);
      if (at - words.first < words.whole)
        copy<8>(reinterpret_cast<std::uint16_t*>(place),
                reinterpret_cast<const std::uint16_t*>(words.base + static_cast<Index>(at) * lanes), true);
      else
        *place = words[at];
    }
    if (part == 0 && cluster == 1) commit();
  }
  /// Stores `many` elements from number `begin` of the tensor on.
  __device__ void store(std::uint32_t begin, std::uint32_t many, const T* held) const {
    const std::uint32_t word = begin / lanes, last = (begin + many - 1) / lanes;
#pragma unroll 4
    for (std::uint32_t at = word + threadIdx.x; at <= last; at += threads) {
      const uint4 found_there = reinterpret_cast<const uint4*>(held)[at - word];
      const std::uint32_t from = at * lanes - begin;
      T* const place = to + static_cast<Index>(at) * lanes - words.skew;
      if (alike && from < many && many - from >= lanes) {
        *reinterpret_cast<uint4*>(place) = found_there;
      } else {
        const Lanes<T, lanes> made = elements_of<T>(found_there);
#pragma unroll
        for (std::uint32_t i = 0; i < lanes; ++i)
          if (from + i < many) place[i] = made.at[i];
      }
    }
  }
};

/// Lines of [outer, extent, inner], as `cumulative` of lines.h, `inner` at most as many as a block has threads. Raises
/// std::runtime_error where there are too many, or the launch fails.
template <int stages, std::uint32_t inner, bool exclusive, bool reverse, typename T, typename Function, int cluster = 1>
void scan_slabs(const Run& r, const Lines& p, Index rows, const void* input, void* output, int first) {
  using Slabs = ScanSlabs<stages, inner, exclusive, reverse, T, Function, cluster>;
  if (p.outer * p.extent == 0) return;
  const Granules<T> words(input, p.outer * p.extent * inner, "running sum");
  const bool alike = reinterpret_cast<std::uintptr_t>(output) % 16 == words.skew * sizeof(T);
  const Divisor cuts(Slabs::in_memory ? (p.extent + rows - 1) / rows : 1);
  Launch how{.blocks = counted(p.outer * (Slabs::in_memory ? cuts.by : cluster), "running sum"), .threads = Slabs::threads};
  how.cluster = Slabs::in_memory ? 1 : cluster;
  how.shared = stages * static_cast<int>(Slabs::part_bytes(static_cast<std::uint32_t>(rows)));
  how.overlap = how.beside = r.overlap;
  how.stream = r.stream;
  auto* const left = Slabs::in_memory ? static_cast<typename Slabs::Value*>(r.scratch()) : nullptr;
  for (const bool leaves : {true, false})
    if (Slabs::in_memory || !leaves)
      queue("a running sum", how, blocks_kernel<Slabs::threads, 2, Slabs>,
            Slabs{words, static_cast<T*>(output), alike, counted(p.extent, "running sum"), static_cast<std::uint32_t>(rows), first,
                  cuts, leaves, left});
}

}  // namespace bolt::portable
