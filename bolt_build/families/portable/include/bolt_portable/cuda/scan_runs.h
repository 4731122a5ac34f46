// Running sums and products of lines of neighbours, wherever a line begins: threads read and store whole words.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/scan.h"

namespace bolt::portable {

/// `threads` threads have a line, a word each at a time; some words of a thread are under way at once. What lies beside a line
/// in its first and last word counts as nothing, and is not stored. A `reverse` line is walked over from its last word on.
template <int threads, bool reverse, typename T, typename Function>
struct ScanRuns {
  using Value = typename Computed<T>::type;
  static constexpr int together = block_threads / threads, warps = threads / 32, ahead = 4;
  static constexpr std::uint32_t lanes = Granules<T>::lanes;

  Granules<T> in;
  T* out;      ///< element 0 of the input's words
  bool whole;  ///< words of the output lie as those of the input
  bool exclusive;
  std::uint32_t lines, extent;
  int first;

  __device__ void operator()(std::uint32_t block) const {
    const std::uint32_t line = block * together + threadIdx.x / threads, thread = threadIdx.x % threads;
    if (line >= lines) return;  // whole warps
    const std::uint32_t begin = in.skew + line * extent, end = begin + extent;
    const std::uint32_t word = begin / lanes, words = (end + lanes - 1) / lanes - word;
    const auto place = [&](std::uint32_t i) { return word + (reverse ? words - 1 - i : i); };
    Value found = static_cast<Value>(first);
    for (std::uint32_t base = 0; base < words; base += ahead * threads) {
      uint4 held[ahead];
#pragma unroll
      for (int turn = 0; turn < ahead; ++turn)
        if (base + turn * threads + thread < words) held[turn] = in[place(base + turn * threads + thread)];
#pragma unroll
      for (int turn = 0; turn < ahead; ++turn) {
        if (base + turn * threads >= words) break;
        const std::uint32_t own = base + turn * threads + thread, at = place(own < words ? own : 0) * lanes;
        const bool inside = own < words && at >= begin && at + lanes <= end;
        Value after[lanes];
        const Value before = scanned(held[turn], own < words, inside, at - begin, found, turn % 2, after);
        if (own < words) store_word(at, inside, begin, before, after);
      }
    }
  }

 private:
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
    Value up_to = scan_warp<Function>(own), before = from_before(up_to, 1);
    Value all = static_cast<Value>(__shfl_sync(0xffffffffu, static_cast<Exchanged<Value>>(up_to), 31));
    if (threadIdx.x % 32 == 0) before = static_cast<Value>(first);
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

/// `outer` lines of `extent` neighbours by `threads` threads each, as `cumulative` of lines.h. Raises std::runtime_error where
/// the tensor is too large, or the launch fails.
template <int threads, bool reverse, typename T, typename Function>
void scan_runs(const Run& r, Index outer, Index extent, bool exclusive, const void* input, void* output, int first) {
  using Runs = ScanRuns<threads, reverse, T, Function>;
  const Granules<T> in(input, outer * extent, "running sum");
  T* const out = static_cast<T*>(output) - in.skew;
  launch_blocks(r, (outer + Runs::together - 1) / Runs::together,
                Runs{in, out, aligned_to_16(out), exclusive, static_cast<std::uint32_t>(outer),
                     static_cast<std::uint32_t>(extent), first},
                "running sum");
}

}  // namespace bolt::portable
