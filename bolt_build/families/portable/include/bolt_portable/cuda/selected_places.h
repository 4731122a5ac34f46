// Places of the first elements of a line in order: those that come first are selected by how their numbers begin, and only these
// are sorted, four bits of their numbers at a time.
#pragma once

#include "bolt_portable/cuda/held_ranks.h"

namespace bolt::portable {

/// Lines of [outer, extent, inner] by `threads` threads each, which hold `holds` elements each. Of a line up to 32 * `each` keys are
/// sorted, by one warp: an element's number and how many stand before it, counted from the end of the line where of equal ones the
/// `last` is the first. Keys keep their order where they do not differ, so only bits of the numbers are looked at.
/// `paired`: numbers of neighbours are held in pairs (PairedRanks).
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T, bool paired>
struct SelectedPlaces {
  using Held = std::conditional_t<paired, PairedRanks<greatest, holds, threads, T>, SingleRanks<greatest, last, holds, threads, T>>;
  static constexpr int block = threads < 128 ? 128 : threads, together = block / threads, warps = threads / 32;
  static constexpr int number_bits = 8 * sizeof(T), room = 32 * each;
  static constexpr std::uint32_t bins = 256, digits = 16, column = 33;  ///< a column more, so that lanes have banks of their own
  /// Registers of a thread for what it holds, for its keys and their ranks, and for all else; and blocks that they are for.
  static constexpr int keys = each * (static_cast<int>(sizeof(Key)) / 4 + 1), held_in = (paired ? 1 : 2) * holds;
  static constexpr int registers = (paired ? 46 : 38) + (keys > held_in ? keys : held_in);
  static constexpr int resident = block * registers > 1 << 15 ? 1 : (1 << 16) / (block * registers);
  static_assert(each % 2 == 1, "else lanes that read keys of their own share banks");

  /// What the threads of a line share.
  struct Shared {
    Key keys[room];
    union {
      alignas(16) std::uint32_t counts[bins];
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

  typename Held::Lines from;
  std::int64_t* to;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) Shared all[together];
    Shared& own = all[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    const Held held(from, line, extent, thread);
    take(held, thread, bound_of(held, thread, own), own);
    if (thread >= 32) return;
    sort(thread, own);
    if constexpr (paired) {
      store(own, to + static_cast<Index>(line) * count, 1, thread);
    } else {
      const std::uint32_t outside = from.inner.quotient(line), inside = line - outside * from.inner.by;
      store(own, to + static_cast<Index>(outside) * count * from.inner.by + inside, from.inner.by, thread);
    }
  }

 private:
  /// Stores what has been sorted, each of which lies `apart` from the one before.
  __device__ void store(const Shared& own, std::int64_t* found, std::uint32_t apart, std::uint32_t lane) const {
    found += static_cast<Index>(lane) * apart;
#pragma unroll
    for (std::uint32_t i = 0; i < room; i += 32, found += static_cast<Index>(apart) * 32) {
      if (i + lane >= count) return;
      const std::uint32_t place = static_cast<std::uint32_t>(own.keys[i + lane] & ((Key{1} << rank_bits<Key>) - 1));
      *found = last ? extent - 1 - place : place;
    }
  }

  /// Those that share a line wait for each other.
  __device__ static void meet() {
    if constexpr (threads > 32)
      __syncthreads();
    else
      __syncwarp();
  }

  /// Counts numbers by their leading bits, eight at a time, until those that are taken have room.
  __device__ Bound bound_of(const Held& held, std::uint32_t thread, Shared& own) const {
    Bound bound{0, count, 0, number_bits, false};
#pragma unroll 1
    while (true) {
      const int above = bound.shift;
      bound.shift -= 8;
      for (std::uint32_t i = thread; i < bins; i += threads) own.counts[i] = 0;
      meet();
      if (above == number_bits) {
#pragma unroll
        for (int i = 0; i < holds; ++i) atomicAdd(own.counts + (held.number(i) >> (number_bits - 8)), 1u);
      } else {
#pragma unroll
        for (int i = 0; i < holds; ++i)
          if (held.number(i) >> above == bound.begin) atomicAdd(own.counts + (held.number(i) >> bound.shift) % bins, 1u);
      }
      meet();
      // Each warp looks for the bin of the last one that is wanted.
      constexpr std::uint32_t many = bins / 32;
      std::uint32_t sum = 0;
#pragma unroll
      for (std::uint32_t i = 0; i < many; ++i) sum += own.counts[threadIdx.x % 32 * many + i];
      std::uint32_t before = scan_warp<typed::Add>(sum) - sum;
      const bool has = before < bound.equal && before + sum >= bound.equal;
      const int those = __ffs(__ballot_sync(0xffffffffu, has)) - 1;
      // Of this lane's bins lanes side by side have one each.
      const std::uint32_t lane = threadIdx.x % 32, own_count = own.counts[those * many + lane % many];
      std::uint32_t up_to = own_count;
#pragma unroll
      for (std::uint32_t distance = 1; distance < many; distance *= 2) {
        const std::uint32_t other = __shfl_up_sync(0xffffffffu, up_to, distance, many);
        if (lane % many >= distance) up_to += other;
      }
      up_to += __shfl_sync(0xffffffffu, before, those);
      const int its = __ffs(__ballot_sync(0xffffffffu, up_to >= bound.equal)) - 1;
      const std::uint32_t there = __shfl_sync(0xffffffffu, own_count, its), bin = those * many + its;
      bound.equal -= __shfl_sync(0xffffffffu, up_to, its) - there;
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
  __device__ void take(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own) const {
    if (bound.all)
      take_some<true>(held, thread, bound, own);
    else
      take_some<false>(held, thread, bound, own);
    for (std::uint32_t i = bound.taken + thread; i < room; i += threads) own.keys[i] = ~Key{0};
    meet();
  }
  template <bool all>
  __device__ static void take_some(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own) {
    if constexpr (paired)
      take_neighbours<all>(held, thread, bound, own);
    else
      take_apart<all>(held, thread, bound, own);
  }

  /// Of elements that stand as threads do: a warp's count with each of its threads' in front.
  template <bool all>
  __device__ static void take_apart(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own) {
    const std::uint32_t lane = threadIdx.x % 32, warp = thread / 32, in_front = (1u << lane) - 1;
    if constexpr (warps > 1) {
#pragma unroll
      for (int i = 0; i < holds; ++i) {
        const std::uint32_t both = Among<all>(held.number(i) >> bound.shift, bound.begin).of(~0u);
        if (lane == 0) own.before[i * warps + warp] = both;
      }
      meet();
      if (warp == 0) sum_before<holds>(lane, own);
      meet();
    }
    std::uint32_t so_far = 0;
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      const Among<all> among(held.number(i) >> bound.shift, bound.begin);
      if constexpr (warps > 1) so_far = own.before[i * warps + warp];
      const std::uint32_t both = so_far + among.of(in_front), equal = both >> 16;
      if (among.less || (!all && among.equal && equal < bound.equal))
        own.keys[all ? both : (both & 0xffff) + min(equal, bound.equal)] =
            static_cast<Key>(held.number(i)) << rank_bits<Key> | static_cast<Key>(i * threads + thread);
      if constexpr (warps == 1) so_far += among.of(~0u);
    }
  }

  /// Of threads that have neighbours, `Held::wide` in each turn: a thread counts its own, and threads add up in front of each.
  template <bool all>
  __device__ static void take_neighbours(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own) {
    constexpr int turns = holds / Held::wide;
    const std::uint32_t lane = threadIdx.x % 32, warp = thread / 32;
    const std::uint32_t most = ((bound.begin + 1) << bound.shift << 16) - 1;  // key of those that are less, or begin alike
    std::uint32_t before[turns], so_far = 0;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      std::uint32_t both = 0;
#pragma unroll
      for (int i = turn * Held::wide; i < (turn + 1) * Held::wide; ++i) {
        if constexpr (all) {
          held.count(i, most, both);
        } else {
          if (held.number(i) < bound.begin) ++both;
          if (held.number(i) == bound.begin) both += 1 << 16;
        }
      }
      const std::uint32_t sum = scan_warp<typed::Add>(both);
      before[turn] = so_far + sum - both;
      if constexpr (warps > 1) {
        if (lane == 31) own.before[turn * warps + warp] = sum;
      } else {
        so_far += __shfl_sync(0xffffffffu, sum, 31);
      }
    }
    if constexpr (warps > 1) {
      meet();
      if (warp == 0) sum_before<turns>(lane, own);
      meet();
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) before[turn] += own.before[turn * warps + warp];
    }
    if constexpr (all) {
      const std::uint32_t keys = static_cast<std::uint32_t>(__cvta_generic_to_shared(own.keys));
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) before[turn] = keys + before[turn] * sizeof(Key);
#pragma unroll
      for (int i = 0; i < holds; ++i) held.leave(i, thread, most, before[i / Held::wide]);
    } else {
#pragma unroll
      for (int i = 0; i < holds; ++i) {
        std::uint32_t& both = before[i / Held::wide];
        const bool less = held.number(i) < bound.begin, alike = held.number(i) == bound.begin;
        const std::uint32_t equal = both >> 16;
        if (less || (alike && equal < bound.equal)) own.keys[(both & 0xffff) + min(equal, bound.equal)] = held.key(i, thread);
        both += less ? 1 : alike ? 1 << 16 : 0;
      }
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

  /// Makes of each warp's counts, of so many `turns`, what all those before them come to.
  template <int turns>
  __device__ static void sum_before(std::uint32_t lane, Shared& own) {
    constexpr int counts = turns * warps, of_lane = (counts + 31) / 32;
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
  /// Numbers are counted from the least one, so that fewer bits differ; behind the last key all bits are ones.
  __device__ static void sort(std::uint32_t lane, Shared& own) {
    Key keys[each];
    std::uint32_t rank[each], least = ~0u, differ = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < each; ++i) {
      keys[i] = own.keys[lane * each + i];
      least = min(least, static_cast<std::uint32_t>(keys[i] >> rank_bits<Key>));
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) least = min(least, __shfl_xor_sync(0xffffffffu, least, distance));
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (keys[i] == ~Key{0}) continue;
      keys[i] -= static_cast<Key>(least) << rank_bits<Key>;
      differ |= static_cast<std::uint32_t>(keys[i] >> rank_bits<Key>);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) differ |= __shfl_xor_sync(0xffffffffu, differ, distance);
    if (differ == 0) return;  // of all keys the same: they stand in order
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

/// Places of the first `count` of each line, as `sorted_places`. Pairs have room for lines that begin inside of an access; where
/// they have not, and lines do, elements are held one by one.
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T, bool paired = false>
void selected_places(const Run& r, const Lines& p, Index count, const void* input, void* output) {
  using Selected = SelectedPlaces<greatest, last, holds, threads, each, Key, T, paired>;
  const auto from = [&]() -> typename Selected::Held::Lines {
    if constexpr (paired)
      return {input, p.outer * p.extent, "places"};
    else
      return {static_cast<const T*>(input), Divisor(p.inner)};
  }();
  if constexpr (paired) {
    const bool whole = from.skew == 0 && p.extent % from.lanes == 0;
    if (!whole && p.extent + from.lanes - 1 > threads * holds)
      return selected_places<greatest, last, holds, threads, each, Key, T>(r, p, count, input, output);
  }
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  counted(p.extent * p.inner, "places");
  launch_blocks<Selected::block, Selected::resident>(
      r, (static_cast<Index>(lines) + Selected::together - 1) / Selected::together,
      Selected{from, static_cast<std::int64_t*>(output), lines, counted(p.extent, "places"), static_cast<std::uint32_t>(count)},
      "places");
}

}  // namespace bolt::portable
