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
template <bool greatest, int holds, int threads, int each, int room, int bins, int group, typename Key, typename Ranks, typename T>
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
    if (!put_in_bins(held, thread, own)) {
      own.select(Ranks(from, line, extent, thread), count, thread);
      own.sort_by_network(thread);
    } else if (own.largest > Bins::most_rounds) {
      own.sort_by_network(thread);
    } else {
      own.sort_in_bins(own.largest, count, thread);
    }
    own.store(to.line(line), count, thread);
  }

 private:
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

}  // namespace bolt::portable
