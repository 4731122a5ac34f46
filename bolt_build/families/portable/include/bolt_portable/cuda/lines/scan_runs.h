// Running sums and products of lines of neighbours, wherever a line begins: threads read and store whole words.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/lines/scan.h"
#include "bolt_portable/cuda/shared_totals.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// `threads` threads have a line, a word each at a time; some words of a thread are under way at once. What lies beside a line
/// in its first and last word counts as nothing, and is not stored. A `reverse` line is walked over from its last word on. Short
/// lines have `threads` of a warp, all of which go on as long as the longest takes.
///
/// Where lines are few and long each is cut in parts, of a block each. A first launch leaves what each part comes to, and in
/// the second one a block begins with what those in front of it have left.
template <int threads, bool reverse, typename T, typename Function>
struct ScanRuns {
  using Value = typename Computed<T>::type;
  static constexpr int together = block_threads / threads, warps = threads / 32, ahead = 4;
  static constexpr int width = threads < 32 ? threads : 32;  ///< that are scanned together
  static constexpr std::uint32_t lanes = Granules<T>::lanes;

  Granules<T> in;
  T* out;      ///< element 0 of the input's words
  bool whole;  ///< words of the output lie as those of the input
  bool exclusive;
  bool leaves;  ///< totals of parts, and stores nothing else
  std::uint32_t lines, extent;
  int first;
  Divisor parts;
  std::uint32_t share, most;  ///< words of a part, and of a line at most
  Value* totals;        ///< [line][part]

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t tile = parts.quotient(block), part = block - tile * parts.by;
    const std::uint32_t line = tile * together + threadIdx.x / threads, thread = threadIdx.x % threads;
    if (threads >= 32 && line >= lines) return;  // whole warps
    const std::uint32_t begin = in.skew + line * extent, end = begin + extent;
    const std::uint32_t word = begin / lanes, words = line < lines ? (end + lanes - 1) / lanes - word : 0;
    const auto place = [&](std::uint32_t i) { return word + (reverse ? words - 1 - i : i); };
    const std::uint32_t last = min((part + 1) * share, words), stop = threads < 32 ? most : last;
    Value found = leaves ? static_cast<Value>(first) : in_front(totals + line * parts.by, part);
    for (std::uint32_t base = part * share; base < stop; base += ahead * threads) {
      uint4 held[ahead];
#pragma unroll
      for (int turn = 0; turn < ahead; ++turn)
        if (base + turn * threads + thread < last) held[turn] = in[place(base + turn * threads + thread)];
#pragma unroll
      for (int turn = 0; turn < ahead; ++turn) {
        if (base + turn * threads >= stop) break;
        const std::uint32_t own = base + turn * threads + thread, at = place(own < last ? own : 0) * lanes;
        const bool inside = own < last && at >= begin && at + lanes <= end;
        Value after[lanes];
        const Value before = scanned(held[turn], own < last, inside, at - begin, found, turn % 2, after);
        if (own < last && !leaves) store_word(at, inside, begin, before, after);
      }
    }
    if (leaves && thread == 0) totals[line * parts.by + part] = found;
  }

 private:
  /// What `many` parts of a line come to together: every warp finds it by itself.
  __device__ Value in_front(const Value* left, std::uint32_t many) const {
    Value all = static_cast<Value>(first);
    for (std::uint32_t i = threadIdx.x % 32; i < many; i += 32) all = Function{}(all, left[i]);
    if (many > 0)
      all = static_cast<Value>(__shfl_sync(0xffffffffu, static_cast<Exchanged<Value>>(scan_warp<Function>(all)), 31));
    return all;
  }

  /// What comes of a word and all in front of it, element by element; `found` becomes that of all threads. Gives what stands
  /// in front of the word.
  __device__ Value scanned(const uint4& word, bool there, bool inside, std::uint32_t behind, Value& found, int turn,
                           Value (&after)[lanes]) const {
    const auto values = elements_of<T>(word);
    Value own = static_cast<Value>(first);
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) {
      const std::uint32_t k = reverse ? lanes - 1 - i : i;
      const bool counts = inside || (there && behind + k < extent);
      own = Function{}(own, counts ? read(&values.at[k]) : static_cast<Value>(first));
      after[k] = own;
    }
    Value up_to = scan_warp<Function, width>(own), before = from_before(up_to, 1);
    Value all = static_cast<Value>(__shfl_sync(0xffffffffu, static_cast<Exchanged<Value>>(up_to), width - 1, width));
    if (threadIdx.x % width == 0) before = static_cast<Value>(first);
    if constexpr (warps > 1) {
      __shared__ Value parts[2][warps];  // those of the turn before are still read
      const int warp = threadIdx.x / 32 % warps;
      if (threadIdx.x % 32 == 31) parts[turn][warp] = up_to;
      __syncthreads();
      all = static_cast<Value>(first);
#pragma unroll
      for (int other = 0; other < warps; ++other) {
        if (other == warp) before = Function{}(all, before);
        all = Function{}(all, parts[turn][other]);
      }
    }
    before = Function{}(found, before);
    found = Function{}(found, all);
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) after[i] = Function{}(before, after[i]);
    return before;
  }

  __device__ void store_word(std::uint32_t at, bool inside, std::uint32_t begin, Value before,
                             const Value (&after)[lanes]) const {
    Lanes<T, lanes> made;
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) {
      const std::uint32_t k = reverse ? lanes - 1 - i : i, earlier = reverse ? k + 1 : k - 1;
      made.at[k] = element<T>(exclusive ? (i == 0 ? before : after[earlier % lanes]) : after[k]);
    }
    T* const to = out + static_cast<Index>(at);
    if (inside && whole) {
      *reinterpret_cast<Lanes<T, lanes>*>(to) = made;
      return;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i)
      if (at + i - begin < extent) to[i] = made.at[i];
  }
};

/// `outer` lines of `extent` neighbours by `threads` threads each, as `cumulative` of lines.h; `blocks` blocks share a line,
/// one but where all threads of a block have it. Raises std::runtime_error where the tensor is too large, or the launch fails.
template <int threads, bool reverse, typename T, typename Function>
void scan_runs(const Run& r, Index outer, Index extent, Index blocks, bool exclusive, const void* input, void* output,
               int first) {
  using Runs = ScanRuns<threads, reverse, T, Function>;
  const Granules<T> in(input, outer * extent, "running sum");
  T* const out = static_cast<T*>(output) - in.skew;
  constexpr Index lanes = Runs::lanes, turn = threads * Runs::ahead;
  const Index turns = ((extent + lanes - 1) / lanes + 1 + turn - 1) / turn;  // wherever a line begins
  const std::uint32_t share = counted((turns + blocks - 1) / blocks * turn, "running sum");
  const Index beside = in.skew % lanes != 0 || extent % lanes != 0 ? 1 : 0, most = (extent + lanes - 1) / lanes + beside;
  for (const bool leaves : {true, false}) {
    if (leaves && blocks == 1) continue;
    launch_blocks(r, (outer + Runs::together - 1) / Runs::together * blocks,
                  Runs{in, out, aligned_to_16(out), exclusive, leaves, static_cast<std::uint32_t>(outer),
                       static_cast<std::uint32_t>(extent), first, Divisor(blocks), share,
                       static_cast<std::uint32_t>(most),
                       blocks > 1 ? static_cast<typename Runs::Value*>(r.scratch()) : nullptr},
                  "running sum");
  }
}

}  // namespace bolt::portable
