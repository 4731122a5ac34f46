// Places of the first elements of a line in order: those that come first are selected by a bound that a sample tells, or by how
// their numbers begin, and only these are sorted: in bins, or four bits of their numbers at a time.
#pragma once

#include "bolt_portable/cuda/places/held_ranks.h"
#include "bolt_portable/cuda/places/warp_sort.h"

namespace bolt::portable {

/// Lines of [outer, extent, inner] by `threads` threads each, which hold `holds` elements each. Of a line up to 32 * `each`
/// keys are sorted, by one warp: an element's number and how many stand before it, counted from the end of the line where of
/// equal ones the
/// `last` is the first. Keys keep their order where they do not differ, so only bits of the numbers are looked at.
/// `paired`: numbers of neighbours are held in pairs (PairedRanks).
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T, bool paired>
struct SelectedPlaces {
  using Held = std::conditional_t<paired, PairedRanks<greatest, holds, threads, T>, SingleRanks<greatest, last, holds, threads, T>>;
  static constexpr int block = threads == 32 ? 128 : threads, together = block / threads, warps = threads / 32;
  static constexpr int number_bits = 8 * sizeof(T), room = 32 * each;
  static constexpr std::uint32_t all_bits = ~0u >> (32 - number_bits);
  using Sort = WarpSort<each, number_bits, Key>;
  static constexpr std::uint32_t bins = 256;
  /// Registers of a thread for what it holds, for its keys and their ranks, and for all else; and blocks that they are for.
  static constexpr int keys = each * (static_cast<int>(sizeof(Key)) / 4 + 1), held_in = (paired ? 1 : 2) * holds;
  static constexpr int registers = (paired ? 46 : 38) + (keys > held_in ? keys : held_in);
  static constexpr int resident = block * registers > 1 << 15 ? 1 : (1 << 16) / (block * registers);

  /// What the threads of a line share: keys; and counts, or how many of each warp's elements of each round are in front,
  /// less ones in the low half.
  using Shared =
      typename Sort::template MemoryOf<(static_cast<int>(bins) > holds * warps ? static_cast<int>(bins) : holds * warps)>;
  /// Elements that are taken: all whose leading bits are less than `begin`, and the first `equal` of those that begin so.
  struct Bound {
    std::uint32_t begin, equal, taken;
    int shift;
    bool all;  ///< of these
  };

  typename Held::Lines from;
  FirstElements<T> to;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) Shared all[together];
    Shared& own = all[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    if constexpr (warps == 1 && paired && pairs_compare<T>) {
      FallingPairs<greatest, holds, T> held(from, line, extent, thread);
      std::uint32_t many[Held::turns];
      const auto count_up_to = [&](std::uint32_t most) {
        held.count_turns(most, many);
        std::uint32_t all = many[0];
#pragma unroll
        for (int turn = 1; turn < Held::turns; ++turn) all = held.joined(all, many[turn]);
        return of_warp<OfWarp::sum>(held.both(all));
      };
      // Numbers between those of both infinities: NaN is not compared.
      constexpr std::uint32_t infinite = 0x7fffu - (held.worst & 0x7fffu);
      const auto sample = [&](int i) { return held.sample(i); };
      Bound bound = sampled_bound<infinite, held.worst - 1>(sample, count_up_to, thread);
      held.finished(extent, thread);
      const bool known = bound.all;  // counted up to that bound last
      if (bound.taken == 0) bound = bound_of(held, thread, own);
#pragma unroll
      for (int turn = 0; turn < Held::turns; ++turn) many[turn] = held.both(many[turn]);
      take(held, thread, bound, own, known ? many : nullptr);
      Sort::sort(thread, min(((bound.begin + 1) << bound.shift) - 1, all_bits), own);
    } else {
      const Held held(from, line, extent, thread);
      Bound bound{};
      if constexpr (warps == 1) {
        const auto sample = [&](int i) { return held.number(i); };
        bound = sampled_bound<0, all_bits>(sample, [&](std::uint32_t most) { return counted_up_to(held, most); }, thread);
      }
      if (bound.taken == 0) bound = bound_of(held, thread, own);
      take(held, thread, bound, own, nullptr);
      if (thread >= 32) return;
      Sort::sort(thread, min(((bound.begin + 1) << bound.shift) - 1, all_bits), own);
    }
    to.line(line).template put_each<paired, 32, each>(thread, count, [&](std::uint32_t i) {
      const std::uint32_t place = static_cast<std::uint32_t>(own.keys[i] & ((Key{1} << rank_bits<Key>) - 1));
      return last ? extent - 1 - place : place;
    });
  }

 private:
  /// Those that share a line wait for each other.
  __device__ static void meet() {
    if constexpr (threads > 32)
      __syncthreads();
    else
      __syncwarp();
  }

  /// How many of a warp's numbers are at most `most`.
  __device__ static std::uint32_t counted_up_to(const Held& held, std::uint32_t most) {
    std::uint32_t many = 0;
#pragma unroll
    for (int i = 0; i < holds; ++i) many += held.number(i) <= most ? 1 : 0;
    return of_warp<OfWarp::sum>(many);
  }

  /// Counts numbers up to those of a sorted sample, one of each lane, until those that are taken have room; at last up to others.
  /// `number(i)` is that of a lane's element, `up_to(most)` counts. Takes none where that takes a bound that is less than
  /// `first` or more than `end`.
  template <std::uint32_t first, std::uint32_t end, typename Number, typename UpTo>
  __device__ Bound sampled_bound(const Number& number, const UpTo& up_to, std::uint32_t lane) const {
    constexpr int spread = holds < 4 ? 0 : holds / 4;
    KeySort<std::uint32_t, 32, 1> sample;
    std::uint32_t some[4] = {number(0), number(spread), number(2 * spread), number(3 * spread)};
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(some[i]));  // else the compiler picks one of memory
    const std::uint32_t one = lane & 1 ? some[1] : some[0], other = lane & 1 ? some[3] : some[2];
    sample.keys[0] = lane & 2 ? other : one;
    sample.sort(nullptr);
    // Lanes whose numbers are known to be too small and too large, how many elements there are up to them, and numbers that are so.
    int low = -1, high = 32;
    std::uint32_t below = 0, above = extent, least = first - 1, most = end + 1;
    bool alike = true;
    const std::uint32_t wanted = min((count + room + 1) / 2, extent);
#pragma unroll 1
    while (true) {
      const bool in_sample = high - low > 1;
      int at = 0;
      std::uint32_t tried;
      if (in_sample) {
        const int missing = static_cast<int>(wanted - below), between = static_cast<int>(above - below);
        const float part = __fdividef(static_cast<float>(missing), static_cast<float>(between));
        at = min(max(low + static_cast<int>(part * static_cast<float>(high - low) + 0.5f), low + 1), high - 1);
        tried = min(max(__shfl_sync(0xffffffffu, sample.keys[0], at), first), end);
      } else {
        // No number is between the two, or they are none that can be compared.
        const std::uint32_t between = most - least;
        if (between <= 1) return least == first - 1 || most == end + 1 ? Bound{} : Bound{most, count - below, count, 0, false};
        // Many elements may be alike: those that a number of the sample is of.
        tried = alike && most != end + 1 ? most - 1 : least + between / 2;
        alike = false;
      }
      const std::uint32_t many = up_to(tried);
      if (many >= count && many <= room) return Bound{tried, 0, many, 0, true};
      if (many < count) {
        low = in_sample ? at : low, below = many, least = tried;
      } else {
        high = in_sample ? at : high, above = many, most = tried;
      }
    }
  }

  /// Counts numbers by their leading bits, eight at a time, until those that are taken have room.
  __device__ Bound bound_of(const Held& held, std::uint32_t thread, Shared& own) const {
    Bound bound{0, count, 0, number_bits, false};
#pragma unroll 1
    while (true) {
      const int above = bound.shift;
      bound.shift -= 8;
      for (std::uint32_t i = thread; i < bins; i += threads) own.words[i] = 0;
      meet();
      if (above == number_bits) {
#pragma unroll
        for (int i = 0; i < holds; ++i) atomicAdd(own.words + (held.number(i) >> (number_bits - 8)), 1u);
      } else {
#pragma unroll
        for (int i = 0; i < holds; ++i)
          if (held.number(i) >> above == bound.begin) atomicAdd(own.words + (held.number(i) >> bound.shift) % bins, 1u);
      }
      meet();
      // Each warp looks for the bin of the last one that is wanted.
      constexpr std::uint32_t many = bins / 32;
      std::uint32_t sum = 0;
#pragma unroll
      for (std::uint32_t i = 0; i < many; ++i) sum += own.words[threadIdx.x % 32 * many + i];
      std::uint32_t before = scan_warp<typed::Add>(sum) - sum;
      const bool has = before < bound.equal && before + sum >= bound.equal;
      const int those = __ffs(__ballot_sync(0xffffffffu, has)) - 1;
      // Of this lane's bins lanes side by side have one each.
      const std::uint32_t lane = threadIdx.x % 32, own_count = own.words[those * many + lane % many];
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
  /// `known`: how many numbers of each turn are taken; null where it is to be counted.
  __device__ void take(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own, const std::uint32_t* known) const {
    if (bound.all)
      take_some<true>(held, thread, bound, own, known);
    else
      take_some<false>(held, thread, bound, own, nullptr);
    for (std::uint32_t i = bound.taken + thread; i < Sort::window; i += threads) own.keys[i] = ~Key{0};
    meet();
  }
  template <bool all>
  __device__ static void take_some(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own,
                                   const std::uint32_t* known) {
    if constexpr (paired)
      take_neighbours<all>(held, thread, bound, own, known);
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
        if (lane == 0) own.words[i * warps + warp] = both;
      }
      meet();
      if (warp == 0) sum_before<holds>(lane, own);
      meet();
    }
    std::uint32_t so_far = 0;
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      const Among<all> among(held.number(i) >> bound.shift, bound.begin);
      if constexpr (warps > 1) so_far = own.words[i * warps + warp];
      const std::uint32_t both = so_far + among.of(in_front), equal = both >> 16;
      if (among.less || (!all && among.equal && equal < bound.equal))
        own.keys[all ? both : (both & 0xffff) + min(equal, bound.equal)] =
            static_cast<Key>(held.number(i)) << rank_bits<Key> | static_cast<Key>(i * threads + thread);
      if constexpr (warps == 1) so_far += among.of(~0u);
    }
  }

  /// Of threads that have neighbours, `Held::wide` in each turn: a thread counts its own, and threads add up in front of each.
  template <bool all>
  __device__ static void take_neighbours(const Held& held, std::uint32_t thread, const Bound& bound, Shared& own,
                                         const std::uint32_t* known) {
    constexpr int turns = holds / Held::wide;
    const std::uint32_t lane = threadIdx.x % 32, warp = thread / 32;
    const std::uint32_t most = ((bound.begin + 1) << bound.shift << 16) - 1;  // key of those that are less, or begin alike
    std::uint32_t those[turns], before[turns], so_far = 0;
    if (all && known != nullptr) {
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) those[turn] = known[turn];
    } else {
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        those[turn] = 0;
#pragma unroll
        for (int i = turn * Held::wide; i < (turn + 1) * Held::wide; ++i) {
          if constexpr (all) {
            held.count(i, most, those[turn]);
          } else {
            if (held.number(i) < bound.begin) ++those[turn];
            if (held.number(i) == bound.begin) those[turn] += 1 << 16;
          }
        }
      }
    }
    if constexpr (all && warps == 1) {
      // Counts of two turns are added up as one number.
#pragma unroll
      for (int turn = 0; turn < turns; turn += 2) {
        const bool two = turn + 1 < turns;
        const std::uint32_t both = those[turn] | (two ? those[turn + 1] << 16 : 0), sum = scan_warp<typed::Add>(both);
        const std::uint32_t every = __shfl_sync(0xffffffffu, sum, 31);
        before[turn] = so_far + ((sum - both) & 0xffff), so_far += every & 0xffff;
        if (two) before[turn + 1] = so_far + ((sum - both) >> 16), so_far += every >> 16;
      }
    } else {
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const std::uint32_t sum = scan_warp<typed::Add>(those[turn]);
        before[turn] = so_far + sum - those[turn];
        if constexpr (warps > 1) {
          if (lane == 31) own.words[turn * warps + warp] = sum;
        } else {
          so_far += __shfl_sync(0xffffffffu, sum, 31);
        }
      }
    }
    if constexpr (warps > 1) {
      meet();
      if (warp == 0) sum_before<turns>(lane, own);
      meet();
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) before[turn] += own.words[turn * warps + warp];
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
      if (lane * of_lane + i < counts) sum += own.words[lane * of_lane + i];
    std::uint32_t so_far = scan_warp<typed::Add>(sum) - sum;
    for (int i = 0; i < of_lane; ++i)
      if (lane * of_lane + i < counts) {
        const std::uint32_t next = own.words[lane * of_lane + i];
        own.words[lane * of_lane + i] = so_far;
        so_far += next;
      }
  }
};

/// Places of the first `count` of each line, as `sorted_places`. Pairs have room for lines that begin inside of an access; where
/// they have not, and lines do, elements are held one by one.
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T, bool paired = false>
void selected_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
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
      return selected_places<greatest, last, holds, threads, each, Key, T>(r, p, count, input, places, values);
  }
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  counted(p.extent * p.inner, "places");
  launch_blocks<Selected::block, Selected::resident>(
      r, (static_cast<Index>(lines) + Selected::together - 1) / Selected::together,
      Selected{from, FirstElements<T>(p, count, input, places, values), lines, counted(p.extent, "places"),
               static_cast<std::uint32_t>(count)},
      "places");
}

}  // namespace bolt::portable
