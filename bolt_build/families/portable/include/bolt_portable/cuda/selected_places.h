// Places of the first elements of a line in order: those that come first are selected by how their numbers begin, and only these
// are sorted, four bits of their numbers at a time.
#pragma once

#include "bolt_portable/cuda/sorted_places.h"

namespace bolt::portable {

/// Lines of [outer, extent, inner] by `threads` threads each, which hold `holds` elements each. Of a line up to 32 * `each` keys are
/// sorted, by one warp: an element's number and how many stand before it, counted from the end of the line where of equal ones the
/// `last` is the first. Keys keep their order where they do not differ, so only bits of the numbers are looked at.
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T>
struct SelectedPlaces {
  static constexpr int block = threads < 128 ? 128 : threads, together = block / threads, warps = threads / 32;
  static constexpr int number_bits = 8 * sizeof(T), room = 32 * each;
  static constexpr std::uint32_t bins = 256, digits = 16, column = 33;  ///< a column more, so that lanes have banks of their own
  /// Registers of a thread for what it holds, for its keys and their ranks, and for all else; and blocks that they are for.
  static constexpr int keys = each * (static_cast<int>(sizeof(Key)) / 4 + 1), registers = 38 + (keys > 2 * holds ? keys : 2 * holds);
  static constexpr int resident = block * registers > 1 << 15 ? 1 : (1 << 16) / (block * registers);
  static constexpr std::uint32_t greatest_number = ~0u >> (32 - number_bits);
  static_assert(each % 2 == 1, "else lanes that read keys of their own share banks");

  /// What the threads of a line share.
  struct Shared {
    Key keys[room];
    union {
      std::uint32_t counts[bins];
      std::uint32_t before[holds * warps];  ///< in front of each warp's elements of each round, less ones in the low half
      std::uint32_t columns[digits * column];
    };
  };
  /// Elements that are taken: all whose leading bits are less than `begin`, and the first `equal` of those that begin so.
  struct Bound {
    std::uint32_t begin, equal, taken;
    int shift;
    bool all;  ///< of these
  };

  const T* from;
  std::int64_t* to;
  Divisor inner;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) Shared all[together];
    Shared& own = all[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    const std::uint32_t outside = inner.quotient(line), inside = line - outside * inner.by;
    const T* const x = from + static_cast<Index>(outside) * extent * inner.by + inside;
    std::uint32_t held[holds];
    hold(x, thread, held);
    take(held, thread, bound_of(held, thread, own), own);
    if (thread >= 32) return;
    sort(thread, own);
    std::int64_t* const found = to + static_cast<Index>(outside) * count * inner.by + inside;
#pragma unroll 4
    for (std::uint32_t i = thread; i < count; i += 32) {
      const std::uint32_t place = static_cast<std::uint32_t>(own.keys[i] & ((Key{1} << rank_bits<Key>) - 1));
      found[static_cast<Index>(i) * inner.by] = last ? extent - 1 - place : place;
    }
  }

 private:
  /// Those that share a line wait for each other.
  __device__ static void meet() {
    if constexpr (threads > 32)
      __syncthreads();
    else
      __syncwarp();
  }

  /// Numbers of the elements that a thread has; behind a line's last one the greatest there is. Those stand behind all others that
  /// have it.
  __device__ void hold(const T* x, std::uint32_t thread, std::uint32_t (&held)[holds]) const {
    T read[holds];
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      const std::uint32_t at = min(i * threads + thread, extent - 1);
      read[i] = x[static_cast<Index>((last ? extent - 1 - at : at) * inner.by)];
    }
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      std::uint32_t number = rank_of<greatest>(read[i]);
      asm volatile("" : "+r"(number));  // else each load stands where it is known to be wanted, and waits for those before it
      held[i] = i * threads + thread < extent ? number : greatest_number;
    }
  }

  /// Counts numbers by their leading bits, eight at a time, until those that are taken have room.
  __device__ Bound bound_of(const std::uint32_t (&held)[holds], std::uint32_t thread, Shared& own) const {
    Bound bound{0, count, 0, number_bits, false};
#pragma unroll 1
    while (true) {
      const int above = bound.shift;
      bound.shift -= 8;
      for (std::uint32_t i = thread; i < bins; i += threads) own.counts[i] = 0;
      meet();
      if (above == number_bits) {
#pragma unroll
        for (int i = 0; i < holds; ++i) atomicAdd(own.counts + (held[i] >> (number_bits - 8)), 1u);
      } else {
#pragma unroll
        for (int i = 0; i < holds; ++i)
          if (held[i] >> above == bound.begin) atomicAdd(own.counts + (held[i] >> bound.shift) % bins, 1u);
      }
      meet();
      // Each warp looks for the bin of the last one that is wanted.
      constexpr std::uint32_t many = bins / 32;
      std::uint32_t counts[many], sum = 0;
#pragma unroll
      for (std::uint32_t i = 0; i < many; ++i) sum += counts[i] = own.counts[threadIdx.x % 32 * many + i];
      std::uint32_t before = scan_warp<typed::Add>(sum) - sum, bin = 0, there = 0;
      const bool has = before < bound.equal && before + sum >= bound.equal;
      if (has) {
        bool found = false;
#pragma unroll
        for (std::uint32_t i = 0; i < many; ++i) {
          if (!found && before + counts[i] >= bound.equal) found = true, bin = threadIdx.x % 32 * many + i, there = counts[i];
          if (!found) before += counts[i];
        }
      }
      const int lane = __ffs(__ballot_sync(0xffffffffu, has)) - 1;
      bin = __shfl_sync(0xffffffffu, bin, lane);
      there = __shfl_sync(0xffffffffu, there, lane);
      bound.equal -= __shfl_sync(0xffffffffu, before, lane);
      bound.begin = bound.begin << 8 | bin;
      const bool fits = count - bound.equal + there <= room;
      meet();  // counts have been read
      if (fits || bound.shift == 0) {
        bound.taken = fits ? count - bound.equal + there : count;
        bound.all = fits;
        return bound;
      }
    }
  }

  /// Leaves the keys that are taken in their order, and the greatest number there is behind them.
  __device__ void take(const std::uint32_t (&held)[holds], std::uint32_t thread, const Bound& bound, Shared& own) const {
    if (bound.all)
      take_some<true>(held, thread, bound, own);
    else
      take_some<false>(held, thread, bound, own);
    for (std::uint32_t i = bound.taken + thread; i < room; i += threads) own.keys[i] = ~Key{0};
    meet();
  }
  template <bool all>
  __device__ static void take_some(const std::uint32_t (&held)[holds], std::uint32_t thread, const Bound& bound, Shared& own) {
    const std::uint32_t lane = threadIdx.x % 32, warp = thread / 32, in_front = (1u << lane) - 1;
    if constexpr (warps > 1) {
#pragma unroll
      for (int i = 0; i < holds; ++i) {
        const std::uint32_t both = Among<all>(held[i] >> bound.shift, bound.begin).of(~0u);
        if (lane == 0) own.before[i * warps + warp] = both;
      }
      meet();
      if (warp == 0) sum_before(lane, own);
      meet();
    }
    std::uint32_t so_far = 0;
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      const Among<all> among(held[i] >> bound.shift, bound.begin);
      if constexpr (warps > 1) so_far = own.before[i * warps + warp];
      const std::uint32_t both = so_far + among.of(in_front), equal = both >> 16;
      if (among.less || (!all && among.equal && equal < bound.equal))
        own.keys[all ? both : (both & 0xffff) + min(equal, bound.equal)] =
            static_cast<Key>(held[i]) << rank_bits<Key> | static_cast<Key>(i * threads + thread);
      if constexpr (warps == 1) so_far += among.of(~0u);
    }
  }

  /// A warp's elements that are less than a bound, `all` those that begin as it does with them; or these by themselves, whose count
  /// is in the high half of counts.
  template <bool all>
  struct Among {
    bool less, equal;
    std::uint32_t those_less, those_equal = 0;

    __device__ Among(std::uint32_t number, std::uint32_t begin)
        : less(all ? number <= begin : number < begin), equal(number == begin), those_less(__ballot_sync(0xffffffffu, less)) {
      if constexpr (!all) those_equal = __ballot_sync(0xffffffffu, equal);
    }
    __device__ std::uint32_t of(std::uint32_t lanes) const {
      const std::uint32_t found = static_cast<std::uint32_t>(__popc(those_less & lanes));
      return all ? found : found | static_cast<std::uint32_t>(__popc(those_equal & lanes)) << 16;
    }
  };

  /// Makes of each warp's counts what all those before them come to.
  __device__ static void sum_before(std::uint32_t lane, Shared& own) {
    constexpr int counts = holds * warps, of_lane = (counts + 31) / 32;
    std::uint32_t sum = 0;
    for (int i = 0; i < of_lane; ++i)
      if (lane * of_lane + i < counts) sum += own.before[lane * of_lane + i];
    std::uint32_t so_far = scan_warp<typed::Add>(sum) - sum;
    for (int i = 0; i < of_lane; ++i)
      if (lane * of_lane + i < counts) {
        const std::uint32_t next = own.before[lane * of_lane + i];
        own.before[lane * of_lane + i] = so_far;
        so_far += next;
      }
  }

  /// Sorts keys by their numbers, the last four bits first: lanes have neighbouring keys, and columns of counters of their own.
  __device__ static void sort(std::uint32_t lane, Shared& own) {
    Key keys[each];
    std::uint32_t rank[each], differ = 0;
    __syncwarp();
    const Key one = own.keys[0];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      keys[i] = own.keys[lane * each + i];
      if (keys[i] != ~Key{0}) differ |= static_cast<std::uint32_t>((keys[i] ^ one) >> rank_bits<Key>);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) differ |= __shfl_xor_sync(0xffffffffu, differ, distance);
    std::uint32_t* const counters = own.columns + lane;
#pragma unroll 1
    for (int shift = 0; shift < number_bits; shift += 4) {
      if ((differ >> shift) % digits == 0) continue;  // of all keys the same
#pragma unroll
      for (std::uint32_t digit = 0; digit < digits; ++digit) counters[digit * column] = 0;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        std::uint32_t& counter = counters[static_cast<std::uint32_t>(keys[i] >> (shift + rank_bits<Key>)) % digits * column];
        rank[i] = counter;
        counter = rank[i] + 1;
      }
      __syncwarp();
      sum_columns(lane, own);
#pragma unroll
      for (int i = 0; i < each; ++i)
        own.keys[counters[static_cast<std::uint32_t>(keys[i] >> (shift + rank_bits<Key>)) % digits * column] + rank[i]] = keys[i];
      __syncwarp();
#pragma unroll
      for (int i = 0; i < each; ++i) keys[i] = own.keys[lane * each + i];
      __syncwarp();
    }
  }

  /// Makes of each counter what all those of lesser digits, and of lanes before it, come to.
  __device__ static void sum_columns(std::uint32_t lane, Shared& own) {
    std::uint32_t* const first = own.columns + lane / 2 * column + lane % 2 * 16;
    std::uint32_t many[16], sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += many[i] = first[i];
    std::uint32_t so_far = scan_warp<typed::Add>(sum) - sum;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      first[i] = so_far;
      so_far += many[i];
    }
    __syncwarp();
  }
};

/// Places of the first `count` of each line, as `sorted_places`.
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T>
void selected_places(const Run& r, const Lines& p, Index count, const void* input, void* output) {
  using Selected = SelectedPlaces<greatest, last, holds, threads, each, Key, T>;
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  counted(p.extent * p.inner, "places");
  launch_blocks<Selected::block, Selected::resident>(
      r, (static_cast<Index>(lines) + Selected::together - 1) / Selected::together,
      Selected{static_cast<const T*>(input), static_cast<std::int64_t*>(output), Divisor(p.inner), lines,
               counted(p.extent, "places"), static_cast<std::uint32_t>(count)},
      "places");
}

}  // namespace bolt::portable
