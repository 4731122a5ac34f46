// Running sums and products across neighbours: threads of a block share a line, and have some of its elements in registers.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/lines.h"

namespace bolt::portable {

/// Of a block `across` threads have `lanes` neighbouring lines each, and others parts of the same ones, one behind the other.
/// A thread adds up its elements, takes what all parts in front have, and goes over its elements once more in registers.
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

  __device__ void operator()(std::uint32_t block) const {
    __shared__ Value found[parts][slots], sums[groups][slots], carried[slots];
    const std::uint32_t lane = threadIdx.x % across, part = threadIdx.x / across, item = block * across + lane;
    const std::uint32_t outer = pieces.quotient(item), column = (item - outer * pieces.by) * lanes;
    const Index start = static_cast<Index>(outer) * extent * inner + column;
    for (std::uint32_t i = threadIdx.x; i < slots; i += block_threads) carried[i] = static_cast<Value>(first);
    for (std::uint32_t base = 0; base < extent; base += parts * held) {
      const std::uint32_t own = base + part * held;
      const std::uint32_t many = item < items && own < extent ? min(extent - own, static_cast<std::uint32_t>(held)) : 0u;
      Lanes<T, lanes> rows[held];
#pragma unroll
      for (std::uint32_t k = 0; k < held; ++k)
        if (k < many) rows[k] = *reinterpret_cast<const Lanes<T, lanes>*>(from + start + row(own + k));
      Value total[lanes];
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        total[i] = static_cast<Value>(first);
#pragma unroll
        for (std::uint32_t k = 0; k < held; ++k)
          if (k < many) total[i] = Function{}(total[i], read(&rows[k].at[i]));
        found[part][lane * lanes + i] = total[i];
      }
      put_in_front(found, sums, carried);
#pragma unroll
      for (int i = 0; i < lanes; ++i) total[i] = found[part][lane * lanes + i];
#pragma unroll
      for (std::uint32_t k = 0; k < held; ++k) {
        if (k >= many) break;
        Lanes<T, lanes> made;
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const Value before = total[i];
          total[i] = Function{}(before, read(&rows[k].at[i]));
          made.at[i] = element<T>(exclusive ? before : total[i]);
        }
        *reinterpret_cast<Lanes<T, lanes>*>(to + start + row(own + k)) = made;
      }
      __syncthreads();
    }
  }

 private:
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
  launch_blocks(r, (static_cast<Index>(items) + across - 1) / across,
                Columns{from, to, Divisor(p.inner / lanes), items, counted(p.extent, "running sum"),
                        counted(p.inner, "running sum"), exclusive, reverse, first},
                "running sum");
}

}  // namespace bolt::portable
