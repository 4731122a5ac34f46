// Places of the first few elements of a line in order: all but some are sifted out, and those are put in bins (key_bins.h).
#pragma once

#include "bolt_portable/cuda/places/binned_places.h"
#include "bolt_portable/cuda/places/falling_ranks.h"
#include "bolt_portable/cuda/shared_totals.h"

namespace bolt::portable {

/// Lines, or parts of them, by `threads` threads each, which hold `holds` elements each. At least as many of the least numbers of
/// each `group` of a thread's elements as are wanted are at most a bound, which their bins tell. So what is greater is not wanted,
/// and of all that remains, up to `room` keys, most are.
template <int holds, int threads, int each, int room, int bins, int group, typename Key, typename Ranks>
struct SiftedKeys {
  using Bins = KeyBins<threads, each, room, bins, Key>;
  static constexpr int block = threads == 32 ? 128 : threads, together = block / threads, turns = (room + threads - 1) / threads;
  static constexpr int in_registers = Ranks::registers + (Ranks::many == 2 * Ranks::registers ? 44 : 64),
                       of_keys = (Bins::of_network > each ? Bins::of_network : each) * static_cast<int>(sizeof(Key)) / 4 + 32,
                       registers = in_registers > of_keys ? in_registers : of_keys;
  static constexpr int resident = block * registers > 1 << 15 ? 1 : (1 << 16) / (block * registers);

  struct Shared : Bins {
    Key sifted[room];
    std::uint32_t next;
  };

  /// Leaves keys that remain in `sifted`, and returns how many: more than there is room for, or less than are wanted, where it
  /// cannot. Counters of bins are zero. `least` is that of their numbers, `most` what is added to it at most.
  template <typename Held>
  __device__ static std::uint32_t sift(const Held& held, std::uint32_t count, std::uint32_t thread, Shared& own,
                                       std::uint32_t& least, std::uint32_t& most) {
    std::uint32_t clip = 0;
    least = ~0u;
    held.template each_least<group>([&](std::uint32_t number) {
      least = min(least, number), clip = max(clip, number == Ranks::all_bits ? 0 : number);
    });
    if (thread == 0) own.bin = bins - 1;
    own.extremes(least, clip, thread);
    const std::uint32_t range = max(clip, least) - least;
    const int shift = Bins::shift_of(range);
    held.template each_least<group>([&](std::uint32_t number) {
      if (number <= clip) atomicAdd(own.counts + ((number - least) >> shift), 1u);
    });
    Bins::meet();
    own.add_up(count, thread);
    most = min(((own.bin + 1) << shift) - 1, Ranks::all_bits - least);
    own.clear(thread);
    const std::uint32_t first = static_cast<std::uint32_t>(__cvta_generic_to_shared(own.sifted)),
                        limit = first + room * sizeof(Key);
    if (thread == 0) own.next = first;
    Bins::meet();
    held.template sift_all<Key>(thread, least + most, &own.next, limit);
    Bins::meet();
    return (own.next - first) / sizeof(Key);
  }

  /// Sorts what remains, and leaves the first `count` of it in `keys`.
  __device__ static void arrange(std::uint32_t there, std::uint32_t least, std::uint32_t most, std::uint32_t count,
                                 std::uint32_t thread, Shared& own) {
    Key keys[turns];
    const int shift = Bins::shift_of(most);
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      if (i * threads + thread >= there) continue;
      keys[i] = own.sifted[i * threads + thread];
      atomicAdd(own.counts + bin_of(keys[i], least, shift), 1u);
    }
    Bins::meet();
    own.add_up(count, thread);
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const bool is = i * threads + thread < there;
      put_key<Key>(is ? 0 : 1, 0, own.counts + (is ? bin_of(keys[i], least, shift) : 0), keys[i]);
      if (!is && i * threads + thread < room) own.keys[i * threads + thread] = ~Key{0};
    }
    Bins::meet();
    if (own.largest > Bins::most_rounds)
      own.sort_by_network(thread);
    else
      own.sort_in_bins(own.largest, count, thread);
  }
  __device__ static std::uint32_t bin_of(Key key, std::uint32_t least, int shift) {
    return (static_cast<std::uint32_t>(key >> rank_bits<Key>) - least) >> shift;
  }
};

/// Elements of which most are sifted out: pairs as they are, where instructions compare them.
template <typename Ranks, typename T>
using SiftedRanks = std::conditional_t<pairs_compare<T>, typename Ranks::Falling, Ranks>;

template <typename Sifted, typename Ranks, typename T>
struct SiftedPlaces {
  static constexpr int block = Sifted::block, threads = block / Sifted::together;
  typename Ranks::Lines from;
  FirstElements<T> to;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) typename Sifted::Shared all[Sifted::together];
    auto& own = all[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * Sifted::together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    own.clear(thread);
    std::uint32_t least, most;
    using Held = SiftedRanks<Ranks, T>;
    const std::uint32_t there = Sifted::sift(Held(from, line, extent, thread), count, thread, own, least, most);
    if (there < count || there > Sifted::Bins::all_room) {
      own.select(Ranks(from, line, extent, thread), count, thread);
      own.sort_by_network(thread);
    } else {
      Sifted::arrange(there, least, most, count, thread, own);
    }
    own.store(to.line(line), count, thread);
  }
};

/// The first keys of parts of lines in no order, as many as there is room for; all bits of one behind the last.
template <typename Sifted, typename Ranks, typename Key, typename T>
struct SiftedParts {
  static constexpr int block = Sifted::block, threads = block / Sifted::together;
  static constexpr std::uint32_t room = Sifted::Bins::all_room;
  typename Ranks::Lines from;
  std::uint64_t* to;
  Divisor parts;
  std::uint32_t all, extent, of_part, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) typename Sifted::Shared all_lines[Sifted::together];
    auto& own = all_lines[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, item = number * Sifted::together + threadIdx.x / threads;
    if (item >= all) return;  // whole warps
    const std::uint32_t line = parts.quotient(item), begin = (item - line * parts.by) * of_part,
                        many = min(of_part, extent - begin);
    const std::uint32_t wanted = min(count, many);
    own.clear(thread);
    std::uint32_t least, most;
    using Held = SiftedRanks<Ranks, T>;
    std::uint32_t there = Sifted::sift(Held(from, line, extent, thread, begin, many), wanted, thread, own, least, most);
    const Key* keys = own.sifted;
    if (there < wanted || there > room) {
      own.select(Ranks(from, line, extent, thread, begin, many), wanted, thread);
      keys = own.keys, there = own.taken;
    }
    std::uint64_t* const found = to + static_cast<Index>(item) * room;
    for (std::uint32_t i = thread; i < room; i += threads) {
      const Key key = keys[i < there ? i : 0];
      const std::uint32_t place = begin + static_cast<std::uint32_t>(key & Sifted::Bins::places);
      const std::uint64_t whole = static_cast<std::uint64_t>(key >> rank_bits<Key>) << 32 | place;
      found[i] = i < there ? whole : ~std::uint64_t{0};
    }
  }
};

/// Places of the first `count` of each line, as `sorted_places`.
template <bool greatest, int holds, int threads, int each, int room, int bins, int group, typename Key, typename T,
          bool paired = false>
void sifted_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  counted(p.extent * p.inner, "places");
  held_elements<greatest, holds, threads, T, paired>(p, p.extent, 0, input, [&](auto* ranks, const auto& from) {
    using Ranks = std::remove_pointer_t<decltype(ranks)>;
    using Sifted = SiftedKeys<holds, threads, each, room, bins, group, Key, Ranks>;
    launch_blocks<Sifted::block, Sifted::resident>(
        r, (static_cast<Index>(lines) + Sifted::together - 1) / Sifted::together,
        SiftedPlaces<Sifted, Ranks, T>{from, FirstElements<T>(p, count, input, places, values), lines,
                                       static_cast<std::uint32_t>(p.extent), static_cast<std::uint32_t>(count)},
        "places");
  });
}

/// The same of long lines, of which blocks have `of_part` elements each: what remains of all parts lies in the run's
/// scratch, as keys of 64 bits, and a second kernel puts these in order. Its numbers are the last ones.
template <bool greatest, int holds, int threads, int each, int room, int bins, int group, typename Key, typename T, bool paired,
          int merged_holds, int merged_threads, int merged_each, int merged_room, int merged_bins, int merged_group>
void parted_places(const Run& r, const Lines& p, Index of_part, Index count, const void* input, void* places,
                   void* values = nullptr) {
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  counted(p.extent * p.inner, "places");
  const Index parts = (p.extent + of_part - 1) / of_part, all = counted(lines * parts, "places");
  held_elements<greatest, holds, threads, T, paired>(p, of_part, of_part, input, [&](auto* ranks, const auto& from) {
    using Ranks = std::remove_pointer_t<decltype(ranks)>;
    using Sifted = SiftedKeys<holds, threads, each, room, bins, group, Key, Ranks>;
    launch_blocks<Sifted::block, Sifted::resident>(
        r, (all + Sifted::together - 1) / Sifted::together,
        SiftedParts<Sifted, Ranks, Key, T>{from, static_cast<std::uint64_t*>(r.scratch()), Divisor(parts),
                                        static_cast<std::uint32_t>(all), static_cast<std::uint32_t>(p.extent),
                                        static_cast<std::uint32_t>(of_part), static_cast<std::uint32_t>(count)},
        "places");
  });
  using Kept = KeptRanks<merged_holds, merged_threads>;
  using Merged = BinnedPlaces<greatest, merged_holds, merged_threads, merged_each, merged_room, merged_bins, merged_group,
                              std::uint64_t, Kept, T>;
  launch_blocks<Merged::block, Merged::resident>(
      r, (static_cast<Index>(lines) + Merged::together - 1) / Merged::together,
      Merged{static_cast<const std::uint64_t*>(r.scratch()), FirstElements<T>(p, count, input, places, values), lines,
             static_cast<std::uint32_t>(parts * room), static_cast<std::uint32_t>(count)},
      "places");
}

}  // namespace bolt::portable
