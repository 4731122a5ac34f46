// Running sums and products of lines of neighbours, wherever a line begins: threads read and store whole words.
#pragma once

#include "bolt_portable/cuda/lines/line_words.h"
#include "bolt_portable/cuda/shared_totals.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// `threads` threads have a line, a word each at a time; some words of a thread are under way at once. What lies beside a line
/// in its first and last word counts as nothing, and is not stored. A `reverse` line is walked over from its last word on. Threads
/// of a block have words that follow each other, others one behind the other's. Short lines have `threads` of a warp, all of which
/// go on as long as the longest takes.
///
/// Where lines are few and long each is cut in parts, of a block each. A first launch leaves what each part comes to, and in
/// the second one a block begins with what those in front of it have left.
template <int threads, bool reverse, typename T, typename Function>
struct ScanRuns : LineWords<reverse, T> {
  using Line = LineWords<reverse, T>;
  using Value = typename Line::Value;
  using WordOfLine = typename Line::Word;
  static constexpr int together = block_threads / threads, warps = threads / 32, ahead = 4;
  static constexpr int width = threads < 32 ? threads : 32;  ///< that are scanned together
  static constexpr std::uint32_t lanes = Line::lanes;
  using Line::exclusive, Line::extent, Line::first, Line::in, Line::lines, Line::put_word;

  bool leaves;  ///< totals of parts, and stores nothing else
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
    if constexpr (warps > 1) {
      const auto word_at = [&](std::uint32_t own) {
        const std::uint32_t at = place(own < last ? own : 0) * lanes;
        return WordOfLine{at, own < last, own < last && at >= begin && at + lanes <= end, at - begin};
      };
      if (leaves) {
        const Value all = of_block(total_of(part * share, last, thread, place, word_at));
        if (thread == 0) totals[line * parts.by + part] = all;
      } else {
        run_block(part * share, last, thread, place, word_at, in_front(totals + line * parts.by, part));
      }
      return;
    }
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
        const Value before = scanned(held[turn], own < last, inside, at - begin, found, after);
        if (own < last && !leaves) store_word(at, inside, begin, before, after);
      }
    }
    if (leaves && thread == 0) totals[line * parts.by + part] = found;
  }

 private:
  /// Calls with(element number, element) for those of a word that are the line's, as it is walked over.
  template <typename With>
  __device__ void each_element(const uint4& word, const WordOfLine& of, const With& with) const {
    const auto values = elements_of<T>(word);
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) {
      const std::uint32_t k = reverse ? lanes - 1 - i : i;
      const bool counts = of.inside || (of.there && of.behind + k < extent);
      with(k, counts ? read(&values.at[k]) : static_cast<Value>(first));
    }
  }
  /// What a thread's words of a part come to, wherever they lie.
  template <typename Place, typename WordAt>
  __device__ Value total_of(std::uint32_t from, std::uint32_t last, std::uint32_t thread, const Place& place,
                            const WordAt& word_at) const {
    Value total = static_cast<Value>(first);
    for (std::uint32_t base = from; base < last; base += ahead * threads) {
      uint4 held[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (base + k * threads + thread < last) held[k] = in[place(base + k * threads + thread)];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        each_element(held[k], word_at(base + k * threads + thread),
                     [&](std::uint32_t, Value value) { total = Function{}(total, value); });
    }
    return total;
  }
  __device__ static Value last_of_warp(Value value) {
    return static_cast<Value>(__shfl_sync(0xffffffffu, static_cast<Exchanged<Value>>(value), 31));
  }
  __device__ Value of_block(Value own) const {
    __shared__ Value parts_of[warps];
    const Value of_warp = last_of_warp(scan_warp<Function>(own));
    if (threadIdx.x % 32 == 0) parts_of[threadIdx.x / 32] = of_warp;
    __syncthreads();
    Value all = static_cast<Value>(first);
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) all = Function{}(all, parts_of[warp]);
    return all;
  }
  /// All threads of a block have a line: each has some words that follow each other, so its warp and its block exchange one total
  /// for all of them. The next ones are on their way while these are stored.
  template <typename Place, typename WordAt>
  __device__ void run_block(std::uint32_t from, std::uint32_t last, std::uint32_t thread, const Place& place,
                            const WordAt& word_at, Value found) const {
    __shared__ Value parts_of[2][warps];  // those of the round before are still read
    uint4 held[ahead];
    const auto ask = [&](std::uint32_t base) {
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (base + thread * ahead + k < last) held[k] = in[place(base + thread * ahead + k)];
    };
    ask(from);
    int turn = 0;
#pragma unroll 1
    for (std::uint32_t base = from; base < last; base += ahead * threads, turn ^= 1) {
      Value total = static_cast<Value>(first);
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        each_element(held[k], word_at(base + thread * ahead + k),
                     [&](std::uint32_t, Value value) { total = Function{}(total, value); });
      const Value up_to = scan_warp<Function>(total);
      Value before = from_before(up_to, 1);
      if (threadIdx.x % 32 == 0) before = static_cast<Value>(first);
      if (threadIdx.x % 32 == 31) parts_of[turn][threadIdx.x / 32] = up_to;
      __syncthreads();
      Value all = static_cast<Value>(first);
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) {
        if (warp == static_cast<int>(threadIdx.x / 32)) before = Function{}(all, before);
        all = Function{}(all, parts_of[turn][warp]);
      }
      Value running = Function{}(found, before);
      found = Function{}(found, all);
      uint4 now[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k) now[k] = held[k];
      ask(base + ahead * threads);
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        const WordOfLine of = word_at(base + thread * ahead + k);
        Lanes<T, lanes> made;
        each_element(now[k], of, [&](std::uint32_t at, Value value) {
          const Value in_front_of_it = running;
          running = Function{}(running, value);
          made.at[at] = element<T>(exclusive ? in_front_of_it : running);
        });
        if (of.there) put_word(of, made);
      }
    }
  }

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
  __device__ Value scanned(const uint4& word, bool there, bool inside, std::uint32_t behind, Value& found,
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
    put_word(WordOfLine{at, true, inside, at - begin}, made);
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
                  Runs{{in, out, aligned_to_16(out), exclusive, static_cast<std::uint32_t>(outer),
                        static_cast<std::uint32_t>(extent), first},
                       leaves, Divisor(blocks), share, static_cast<std::uint32_t>(most),
                       blocks > 1 ? static_cast<typename Runs::Value*>(r.scratch()) : nullptr},
                  "running sum");
  }
}

}  // namespace bolt::portable
