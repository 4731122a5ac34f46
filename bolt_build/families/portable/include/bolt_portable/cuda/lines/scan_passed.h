// Running sums and products of long lines of neighbours, each cut in parts of a block each: blocks tell those behind them what
// their part comes to, so that elements are read once and stored once.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/lines/line_words.h"
#include "bolt_portable/cuda/lines/passed_parts.h"

namespace bolt::portable {

/// A block has parts of lines, `words` words of each thread, one part after the other: words of the next are under way while it
/// waits for what parts in front of this one come to, and stores. Words of a warp follow each other, so that its accesses are whole
/// lines of memory. Parts in front are added up always in one order.
template <int words, bool reverse, typename T, typename Function>
struct ScanPassed : LineWords<reverse, T> {
  using Line = LineWords<reverse, T>;
  using Value = typename Line::Value;
  using Word = typename Line::Word;
  static constexpr int threads = block_threads, warps = threads / 32, at_once = 4, resident = words > 4 ? 2 : 3;
  static constexpr std::uint32_t share = threads * words, lanes = Line::lanes;

  PassedParts passed;
  Value* totals;  ///< [line][part]

  __device__ void operator()() const {
    __shared__ std::uint32_t told;
    if (threadIdx.x == 0) told = passed.ticket();
    __syncthreads();
    uint4 here[words], there[words];
    std::uint32_t ticket = told;
    if (ticket >= passed.total()) return;
    ask(ticket, here);
    while (true) {
      if ((ticket = run(ticket, here, there)) >= passed.total()) return;
      if ((ticket = run(ticket, there, here)) >= passed.total()) return;
    }
  }

 private:
  /// Where a thread's words of a part lie.
  struct Place {
    PassedParts::Part of;
    std::uint32_t begin, many, from;
  };
  __device__ Place place_of(std::uint32_t ticket) const {
    const auto of = passed.part_of(ticket);
    const std::uint32_t begin = this->in.skew + of.line * this->extent;
    return {of, begin, this->words_of(begin), of.part * share + threadIdx.x / 32 * 32 * words + threadIdx.x % 32};
  }
  __device__ Word word_of(const Place& at, int k) const {
    const bool there = at.from + k * 32 < at.many;
    return this->word(at.begin, Line::place(at.begin, at.many, there ? at.from + k * 32 : 0), there);
  }
  __device__ void ask(std::uint32_t ticket, uint4 (&to)[words]) const {
    const Place at = place_of(ticket);
#pragma unroll
    for (int k = 0; k < words; ++k) to[k] = this->loaded(word_of(at, k));
  }

  /// Scans a part whose words are `held`, and asks for those of the next. Gives its ticket.
  __device__ std::uint32_t run(std::uint32_t ticket, uint4 (&held)[words], uint4 (&ahead)[words]) const {
    __shared__ std::uint32_t told;
    __shared__ Value of_warps[2][warps];
    std::uint32_t next = 0;
    if (threadIdx.x == 0) next = passed.ticket();
    const Place at = place_of(ticket);
    const std::uint32_t warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < words; ++k) this->without_others(word_of(at, k), held[k]);
    // What stands in front of a word in its warp.
    Value before[words], of_warp = static_cast<Value>(this->first);
#pragma unroll
    for (int k = 0; k < words; ++k) {
      Value total = static_cast<Value>(this->first);
      Line::each(held[k], [&](std::uint32_t, Value value) { total = Function{}(total, value); });
      const Value up_to = scan_warp<Function>(total);
      before[k] = from_before(up_to, 1);
      if (threadIdx.x % 32 == 0) before[k] = static_cast<Value>(this->first);
      before[k] = Function{}(of_warp, before[k]);
      of_warp = Function{}(of_warp, last_of_warp(up_to));
    }
    if (threadIdx.x % 32 == 0) of_warps[0][warp] = of_warp;
    if (threadIdx.x == 0) told = next;
    __syncthreads();
    next = told;
    Value own = static_cast<Value>(this->first), all = own;
#pragma unroll
    for (std::uint32_t i = 0; i < warps; ++i) {
      if (i == warp) own = all;
      all = Function{}(all, of_warps[0][i]);
    }
    leave(at.of, all);
    if (next < passed.total()) ask(next, ahead);
    const Value found = in_front(at.of, of_warps[1]);
    own = Function{}(found, own);
#pragma unroll
    for (int k = 0; k < words; ++k) {
      const Word of = word_of(at, k);
      Value running = Function{}(own, before[k]);
      Lanes<T, lanes> made;
      Line::each(held[k], [&](std::uint32_t at, Value value) {
        const Value in_front_of_it = running;
        running = Function{}(running, value);
        made.at[at] = element<T>(this->exclusive ? in_front_of_it : running);
      });
      if (of.there) this->put_word(of, made);
    }
    return next;
  }

  __device__ static Value last_of_warp(Value value) {
    return static_cast<Value>(__shfl_sync(0xffffffffu, static_cast<Exchanged<Value>>(value), 31));
  }

  __device__ void leave(const PassedParts::Part& at, Value all) const {
    if (threadIdx.x > 0 || at.part + 1 >= passed.parts.by) return;
    __stcg(totals + at.line * passed.parts.by + at.part, all);
    passed.leave(at);
  }
  /// What all parts in front of a part come to. All of the block call it.
  __device__ Value in_front(const PassedParts::Part& at, Value (&of_warps)[warps]) const {
    const Value* const left = totals + at.line * passed.parts.by;
    Value found = static_cast<Value>(this->first);
    for (std::uint32_t i = threadIdx.x; i < at.part; i += threads * at_once) {
      Value read[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const std::uint32_t other = i + k * threads;
        if (other < at.part) {
          passed.wait(at.line, other);
          read[k] = __ldcg(left + other);
        }
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (i + k * threads < at.part) found = Function{}(found, read[k]);
    }
    const Value of_warp = last_of_warp(scan_warp<Function>(found));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
    __syncthreads();  // all of the block have read
    if (threadIdx.x < 32) passed.forget(at.line);
    found = of_warps[0];
#pragma unroll
    for (int i = 1; i < warps; ++i) found = Function{}(found, of_warps[i]);
    return found;
  }
};

template <typename Scan>
__global__ void __launch_bounds__(block_threads, Scan::resident) scan_passed_kernel(const Scan scan) {
  await_earlier();
  scan();
}

/// `outer` lines of `extent` neighbours by up to `most_blocks` blocks, as `cumulative` of lines.h. Raises std::runtime_error where
/// the tensor is too large, where there are more parts than counters or nobody keeps any, or the launch fails.
template <int words, bool reverse, typename T, typename Function>
void scan_passed(const Run& r, Index outer, Index extent, Index most_blocks, bool exclusive, const void* input, void* output,
                 int first) {
  using Scan = ScanPassed<words, reverse, T, Function>;
  constexpr const char* what = "running sum";
  const Granules<T> in(input, outer * extent, what);
  T* const out = static_cast<T*>(output) - in.skew;
  constexpr Index lanes = Scan::lanes;
  const Index most = (extent + 2 * lanes - 2) / lanes;  // wherever a line begins
  const Index parts = (most + Scan::share - 1) / Scan::share, blocks = std::min(outer * parts, most_blocks);
  if (blocks == 0) return;
  launch(r, counted(blocks, what), what, scan_passed_kernel<Scan>,
         Scan{{in, out, aligned_to_16(out), exclusive, static_cast<std::uint32_t>(outer), static_cast<std::uint32_t>(extent),
               first},
              passed_parts(r, outer, parts, what),
              static_cast<typename Scan::Value*>(r.scratch())});
}

}  // namespace bolt::portable
