// Places of the first elements of a line in order: threads hold a line, and put its first keys in bins (key_bins.h).
#pragma once

#include "bolt_portable/cuda/places/held_ranks.h"
#include "bolt_portable/cuda/places/key_bins.h"

namespace bolt::portable {

/// Lines by `threads` threads each, which hold `holds` elements each. Numbers are counted from the least one of the line, up to one
/// that enough elements are expected to be below: the greatest of the least numbers of each `group` of a thread's elements. All
/// behind it share the last bin. Up to `room` keys are put in order.
///
/// Where more than there is room for begin as the last one that is wanted, and where too few are in front of the last bin, keys are
/// selected by eight bits at a time and sorted by a network: such lines take longer.
///
/// Elements that are taken are read from `staged` bytes of shared memory where there are some: those of a line are neighbours, and
/// a warp that takes 32 of them would ask the L1 cache for as many of its lines.
template <bool greatest, int holds, int threads, int each, int room, int bins, int group, typename Key, typename Ranks, typename T,
          int staged = 0>
struct BinnedPlaces {
  using Bins = KeyBins<threads, each, room, bins, Key>;
  static constexpr int block = threads == 32 ? 128 : threads, together = block / threads;
  static constexpr int in_registers = Ranks::registers + 64,
                       of_keys = (Bins::of_network > each ? Bins::of_network : each) * static_cast<int>(sizeof(Key)) / 4 + 32,
                       registers = in_registers > of_keys ? in_registers : of_keys;
  static constexpr int resident = block * registers > 1 << 15 ? 1 : (1 << 16) / (block * registers);

  typename Ranks::Lines from;
  FirstElements<T> to;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) Bins all[together];
    Bins& own = all[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    own.clear(thread);
    Ranks held(from, line, extent, thread);
    auto found = to.line(line);
    if constexpr (staged > 0) {
      __shared__ __align__(16) unsigned char lines_there[together][staged];
      found.from = keep(found.from, lines_there[threadIdx.x / threads], thread);
    }
    if (!put_in_bins(held, thread, own)) {
      own.select(Ranks(from, line, extent, thread), count, thread);
      own.sort_by_network(thread);
    } else if (own.largest > Bins::most_rounds) {
      own.sort_by_network(thread);
    } else {
      own.sort_in_bins(own.largest, count, thread);
    }
    own.store(found, count, thread);
  }

 private:
  /// The line as it is, in shared memory. Its words are in the L1 cache.
  __device__ const T* keep(const T* given, unsigned char* memory, std::uint32_t thread) const {
    constexpr std::uint32_t wide = 16 / sizeof(T);
    const auto skew = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(given) % 16 / sizeof(T));
    T* const kept = reinterpret_cast<T*>(memory) + skew;
    const std::uint32_t front = skew == 0 ? 0 : min(wide - skew, extent), words = (extent - front) / wide;
    for (std::uint32_t i = thread; i < words; i += threads)
      *reinterpret_cast<uint4*>(kept + front + i * wide) = *reinterpret_cast<const uint4*>(given + front + i * wide);
    if (thread < front) kept[thread] = given[thread];
    for (std::uint32_t i = front + words * wide + thread; i < extent; i += threads) kept[i] = given[i];
    return kept;
  }
  /// Leaves keys where their bins begin. False where that cannot be.
  __device__ bool put_in_bins(Ranks& held, std::uint32_t thread, Bins& own) const {
    std::uint32_t least = held.least(), clip = 0;
    held.template each_least<group>([&](std::uint32_t number) { clip = max(clip, number == Ranks::all_bits ? 0 : number); });
    own.extremes(least, clip, thread);
    const std::uint32_t range = max(clip, least) - least;
    int shift = Bins::shift_of(range);
    held.relate(least, static_cast<std::uint32_t>(min(static_cast<std::uint64_t>(bins - 1) << shift,
                                                      static_cast<std::uint64_t>(Ranks::all_bits))));
#pragma unroll
    for (int i = 0; i < holds; ++i) atomicAdd(own.counts + (held.number(i) >> shift), 1u);
    Bins::meet();
    own.add_up(count, thread);
    const std::uint32_t bin = own.bin;
    if (bin == bins - 1 || own.taken > room) return false;
    const std::uint32_t most = min(((bin + 1) << shift) - 1, Ranks::all_bits);
    asm volatile("" : "+r"(shift));  // else addresses of all counters stay in registers
#pragma unroll
    for (int i = 0; i < holds; ++i) held.template put<Key>(i, thread, most, own.counts, shift);
    for (std::uint32_t i = own.taken + thread; i < room; i += threads) own.keys[i] = ~Key{0};
    Bins::meet();
    return true;
  }
};

/// Calls with(ranks, from) for what holds elements of lines, of type `*ranks`. `extent`: how many a line has, or a part of one.
template <bool greatest, int holds, int threads, typename T, bool paired, typename With>
void held_elements(const Lines& p, Index extent, Index begin, const void* input, const With& with) {
  if constexpr (paired) {
    const Granules<T> from(input, p.outer * p.extent, "places");
    const bool whole = from.skew == 0 && p.extent % from.lanes == 0 && begin % from.lanes == 0;
    if (whole || extent + from.lanes - 1 <= threads * holds)
      return with(static_cast<PairedRanks<greatest, holds, threads, T>*>(nullptr), from);
  }
  using Ranks = SingleRanks<greatest, false, holds, threads, T>;
  with(static_cast<Ranks*>(nullptr), typename Ranks::Lines{static_cast<const T*>(input), Divisor(p.inner)});
}

/// Places of the first `count` of each line, as `sorted_places`: of whole lines that threads hold.
template <bool greatest, int holds, int threads, int each, int room, int bins, int staged, typename Key, typename T, bool paired>
void binned_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  counted(p.extent * p.inner, "places");
  held_elements<greatest, holds, threads, T, paired>(p, p.extent, 0, input, [&](auto* ranks, const auto& from) {
    using Ranks = std::remove_pointer_t<decltype(ranks)>;
    using Binned = BinnedPlaces<greatest, holds, threads, each, room, bins, 1, Key, Ranks, T, staged>;
    launch_blocks<Binned::block, Binned::resident>(
        r, (static_cast<Index>(lines) + Binned::together - 1) / Binned::together,
        Binned{from, FirstElements<T>(p, count, input, places, values), lines, static_cast<std::uint32_t>(p.extent),
               static_cast<std::uint32_t>(count)},
        "places");
  });
}

}  // namespace bolt::portable
