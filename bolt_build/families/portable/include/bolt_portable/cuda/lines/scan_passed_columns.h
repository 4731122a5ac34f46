// Running sums and products across neighbours, of which each slab is cut in parts of a block each: blocks tell those behind them
// what their part comes to, so that elements are read once and stored once.
#pragma once

#include "bolt_portable/cuda/lines/passed_parts.h"
#include "bolt_portable/cuda/lines/scan_columns.h"

namespace bolt::portable {

/// Of a block `across` threads have `lanes` neighbouring lines each, and others the rows behind these: eight rows of each thread,
/// or more of narrow words, all of which are under way at once. Parts in front are added up always in one order.
template <int lanes, int across, typename T, typename Function>
struct ScanPassedColumns {
  using Value = typename Computed<T>::type;
  using Word = Lanes<T, lanes>;
  static constexpr int threads = block_threads, deep = threads / across, slots = across * lanes;
  static constexpr int word = lanes * static_cast<int>(sizeof(T)), held = word >= 8 ? 8 : word >= 4 ? 16 : 32;
  static constexpr int sharing = slots < threads ? threads / slots : 1;  ///< threads that add up what parts in front have left
  static constexpr int at_once = 8, resident = 3;
  static constexpr std::uint32_t share = deep * held;

  const T* from;
  T* to;
  Divisor pieces;
  std::uint32_t items, extent, inner;  ///< items are `lanes` lines side by side
  bool exclusive, reverse;
  int first;
  PassedParts passed;
  Value* totals;  ///< [slab][part][line]

  __device__ void operator()() const {
    __shared__ Value found[deep][slots], in_front[sharing][slots];
    const auto [slab, part] = passed.begin();
    const Place at = place_of({slab, part});
    Word rows[held];
    ask(at, rows);
    const std::uint32_t lane = threadIdx.x % across, row = threadIdx.x / across, own = at.own, end = at.end;
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      Value total = static_cast<Value>(first);
#pragma unroll
      for (std::uint32_t k = 0; k < held; ++k)
        if (own + k < end) total = Function{}(total, read(&rows[k].at[i]));
      found[row][lane * lanes + i] = total;
    }
    __syncthreads();
    put_in_front(found, {slab, part});
    read_in_front(in_front, {slab, part});
    Value before[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      before[i] = in_front[0][lane * lanes + i];
#pragma unroll
      for (int k = 1; k < sharing; ++k) before[i] = Function{}(before[i], in_front[k][lane * lanes + i]);
      before[i] = Function{}(before[i], found[row][lane * lanes + i]);
    }
#pragma unroll
    for (std::uint32_t k = 0; k < held; ++k) {
      if (own + k >= end) break;
      Word made;
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const Value earlier = before[i];
        before[i] = Function{}(earlier, read(&rows[k].at[i]));
        made.at[i] = element<T>(exclusive ? earlier : before[i]);
      }
      *reinterpret_cast<Word*>(to + row_at(at, own + k)) = made;
    }
  }

 private:
  /// Where a thread's lines of a part begin, its first row, and how many rows there are.
  struct Place {
    PassedParts::Part of;
    Index begin;
    std::uint32_t own, end;
  };
  __device__ Place place_of(const PassedParts::Part& of) const {
    const std::uint32_t item = of.line * across + threadIdx.x % across;
    const std::uint32_t outer = pieces.quotient(item), column = (item - outer * pieces.by) * lanes;
    return {of, static_cast<Index>(outer) * extent * inner + column, of.part * share + threadIdx.x / across * held,
            item < items ? extent : 0u};
  }
  __device__ Index row_at(const Place& at, std::uint32_t i) const {
    return at.begin + static_cast<Index>(reverse ? extent - 1 - i : i) * inner;
  }
  __device__ void ask(const Place& at, Word (&rows)[held]) const {
#pragma unroll
    for (std::uint32_t k = 0; k < held; ++k)
      if (at.own + k < at.end) rows[k] = *reinterpret_cast<const Word*>(from + row_at(at, at.own + k));
  }

  /// Makes of what each row of threads comes to what those in front of it do, and leaves what all of them come to.
  __device__ void put_in_front(Value (&found)[deep][slots], const PassedParts::Part& at) const {
    const bool leaves = at.part + 1 < passed.parts.by;
    Value* const left = totals + (at.line * passed.parts.by + at.part) * slots;
    for (std::uint32_t slot = threadIdx.x; slot < slots; slot += threads) {
      Value before = static_cast<Value>(first);
#pragma unroll
      for (int k = 0; k < deep; ++k) {
        const Value here = found[k][slot];
        found[k][slot] = before;
        before = Function{}(before, here);
      }
      if (leaves) __stcg(left + slot, before);
    }
    __threadfence();
    __syncthreads();
    if (leaves && threadIdx.x == 0) passed.leave(at);
  }
  /// What parts in front have left, in as many pieces as threads share it.
  __device__ void read_in_front(Value (&in_front)[sharing][slots], const PassedParts::Part& at) const {
    for (std::uint32_t other = threadIdx.x; other < at.part; other += threads) passed.wait(at.line, other);
    __syncthreads();
    const Value* const left = totals + at.line * passed.parts.by * slots;
    for (std::uint32_t i = threadIdx.x; i < sharing * slots; i += threads) {
      const std::uint32_t slot = i % slots, piece = i / slots;
      Value sum = static_cast<Value>(first);
      for (std::uint32_t other = piece; other < at.part; other += sharing * at_once) {
        Value read[at_once];
#pragma unroll
        for (std::uint32_t k = 0; k < at_once; ++k)
          if (other + k * sharing < at.part) read[k] = __ldcg(left + (other + k * sharing) * slots + slot);
#pragma unroll
        for (std::uint32_t k = 0; k < at_once; ++k)
          if (other + k * sharing < at.part) sum = Function{}(sum, read[k]);
      }
      in_front[piece][slot] = sum;
    }
    __syncthreads();  // all of the block have read
    if (threadIdx.x < 32) passed.forget(at.line);
  }
};

template <typename Scan>
__global__ void __launch_bounds__(block_threads, Scan::resident) scan_passed_columns_kernel(const Scan scan) {
  await_earlier();
  scan();
}

/// Lines of [outer, extent, inner], as `cumulative` of lines.h; those of `scan_columns` where tensors do not begin where `lanes`
/// elements may. Raises std::runtime_error where there are too many lines, more parts than counters or nobody keeps any, or the
/// launch fails.
template <int lanes, int across, typename T, typename Function>
void scan_passed_columns(const Run& r, const Lines& p, bool exclusive, bool reverse, const void* input, void* output, int first) {
  using Scan = ScanPassedColumns<lanes, across, T, Function>;
  constexpr const char* what = "running sum";
  const T* from = static_cast<const T*>(input);
  T* to = static_cast<T*>(output);
  if (!in_lanes(from, lanes) || !in_lanes(to, lanes))
    return scan_columns<1, across < 32 ? 32 : across, T, Function>(r, p, exclusive, reverse, input, output, first);
  const Index items = p.outer * p.inner / lanes, slabs = (items + across - 1) / across;
  const Index parts = (p.extent + Scan::share - 1) / Scan::share;
  if (slabs * parts == 0) return;
  launch(r, counted(slabs * parts, what), what, scan_passed_columns_kernel<Scan>,
         Scan{from, to, Divisor(p.inner / lanes), counted(items, what), counted(p.extent, what), counted(p.inner, what), exclusive,
              reverse, first, passed_parts(r, slabs, parts, what), static_cast<typename Scan::Value*>(r.scratch())});
}

}  // namespace bolt::portable
