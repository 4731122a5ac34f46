// Keys of a line that threads put in bins of shared memory, and sort there.
#pragma once

#include "bolt_portable/cuda/places/sorted_places.h"

namespace bolt::portable {

/// The least power of two that is not less.
constexpr int power_of_two(int least) {
  int found = 1;
  while (found < least) found *= 2;
  return found;
}

/// Up to `room` keys of a line that `threads` threads share. Numbers in front of their places are counted in `bins` bins of equal
/// width, put where their bin begins, and sorted within their bins: neighbours change places, in as many rounds as the largest
/// bin has keys. Where that is more than `most_rounds`, a network sorts all of them. For the last rounds a thread has `each`
/// neighbours.
template <int threads, int each, int room, int bins, typename Key>
struct KeyBins {
  static constexpr int warps = threads / 32;
  static constexpr std::uint32_t all_room = room;
  static constexpr std::uint32_t most_rounds = 16;
  /// Keys of a warp, and those at either end that belong to another one, so that whole bins are there.
  static constexpr int window = 32 * each, halo = warps > 1 ? most_rounds : 0, own_keys = window - 2 * halo;
  static_assert(warps > 1 ? own_keys * warps >= room : window == room, "a warp has a window");
  static constexpr int of_network = power_of_two((room + threads - 1) / threads);  ///< keys of a thread
  static constexpr int turns = bins / (4 * threads);
  static_assert(turns >= 1 && bins % (4 * threads) == 0 && turns * warps <= 32, "threads have four bins each turn");
  static constexpr Key places = (Key{1} << rank_bits<Key>) - 1;

  alignas(16) Key keys[of_network * threads > room && warps > 1 ? of_network * threads : room];
  alignas(16) std::uint32_t counts[bins];
  std::uint32_t met[warps > 1 ? 2 * warps : 1], totals[warps > 1 ? turns * warps : 1];
  std::uint32_t bin, taken, largest;

  /// Those that share a line wait for each other.
  __device__ static void meet() {
    if constexpr (threads > 32)
      __syncthreads();
    else
      __syncwarp();
  }
  __device__ void clear(std::uint32_t thread) {
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) reinterpret_cast<uint4*>(counts)[turn * threads + thread] = uint4{0, 0, 0, 0};
  }
  /// Bits that numbers up to `range` are shifted by to be those of bins; the last one is of none of them.
  __device__ static int shift_of(std::uint32_t range) {
    const int shift = max(32 - __clz(static_cast<int>(range)) - (31 - __clz(bins)), 0);
    return range >> shift == bins - 1 ? shift + 1 : shift;
  }
  /// The least of all threads' `least`, and the greatest of their `most`.
  __device__ void extremes(std::uint32_t& least, std::uint32_t& greatest, std::uint32_t thread) {
    least = of_warp<OfWarp::least>(least), greatest = of_warp<OfWarp::greatest>(greatest);
    if constexpr (warps > 1) {
      if (thread % 32 == 0) met[thread / 32] = least, met[warps + thread / 32] = greatest;
      __syncthreads();
      least = of_warp<OfWarp::least>(met[thread % 32 % warps]),
      greatest = of_warp<OfWarp::greatest>(met[warps + thread % 32 % warps]);
    } else {
      __syncwarp();
    }
  }

  /// Makes of each bin's count the address in shared memory where its keys begin, and finds the bin of the last key that is wanted.
  __device__ void add_up(std::uint32_t count, std::uint32_t thread) {
    uint4* const mine = reinterpret_cast<uint4*>(counts) + thread;
    uint4 those[turns];
    std::uint32_t sum[turns], before[turns];
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      those[turn] = mine[turn * threads];
      sum[turn] = those[turn].x + those[turn].y + those[turn].z + those[turn].w;
    }
    // Of a warp's lines there are less than 65536 elements: two sums are added up as one.
#pragma unroll
    for (int turn = 0; turn < turns; turn += 2) {
      if (warps == 1 && turn + 1 < turns) {
        const std::uint32_t both = scan_warp<typed::Add>(sum[turn] | sum[turn + 1] << 16);
        before[turn] = both & 0xffff, before[turn + 1] = both >> 16;
      } else {
        before[turn] = scan_warp<typed::Add>(sum[turn]);
        if (turn + 1 < turns) before[turn + 1] = scan_warp<typed::Add>(sum[turn + 1]);
      }
    }
    std::uint32_t offset[turns];
    if constexpr (warps > 1) {
#pragma unroll
      for (int turn = 0; turn < turns; ++turn)
        if (thread % 32 == 31) totals[turn * warps + thread / 32] = before[turn];
      __syncthreads();
      const std::uint32_t lane = thread % 32, total = lane < turns * warps ? totals[lane] : 0;
      const std::uint32_t up_to = scan_warp<typed::Add>(total) - total;
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) offset[turn] = __shfl_sync(0xffffffffu, up_to, turn * warps + thread / 32);
    } else {
      std::uint32_t so_far = 0;
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        offset[turn] = so_far;
        if (turn + 1 < turns) so_far += __shfl_sync(0xffffffffu, before[turn], 31);
      }
    }
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(keys));
    std::uint32_t most = 0;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const uint4 many = those[turn];
      const std::uint32_t first = offset[turn] + before[turn] - sum[turn];
      const std::uint32_t second = first + many.x, third = second + many.y, fourth = third + many.z, end = fourth + many.w;
      if (first < count) most = max(max(max(most, many.x), max(many.y, many.z)), many.w);
      if (first < count && end >= count) {
        bin = (turn * threads + thread) * 4 + (second < count) + (third < count) + (fourth < count);
        taken = second >= count ? second : third >= count ? third : fourth >= count ? fourth : end;
      }
      constexpr std::uint32_t size = sizeof(Key);
      mine[turn * threads] = uint4{base + first * size, base + second * size, base + third * size, base + fourth * size};
    }
    most = of_warp<OfWarp::greatest>(most);
    if constexpr (warps > 1) {
      if (thread % 32 == 0) met[thread / 32] = most;
      __syncthreads();
      if (thread < 32) {
        most = of_warp<OfWarp::greatest>(met[thread % warps]);
        if (thread == 0) largest = most;
      }
      __syncthreads();
    } else {
      if (thread == 0) largest = most;
      __syncwarp();
    }
  }

  /// Sorts keys that are in the right bin: neighbours change places where the first is the greater, in as many rounds as the
  /// largest bin has keys.
  __device__ void sort_in_bins(std::uint32_t rounds, std::uint32_t count, std::uint32_t thread) {
    const int lane = thread % 32, warp = thread / 32, first = warp * own_keys - halo + lane * each;
    Key own[each];
    constexpr int wide = 16 / sizeof(Key);
    static_assert(each % wide == 0 && halo % wide == 0 && own_keys % wide == 0, "keys are read in words of 16 bytes");
    const bool wanted = warps == 1 || warp * own_keys < static_cast<int>(count);
    if (wanted) {
#pragma unroll
      for (int i = 0; i < each; i += wide) {
        const bool there = warps == 1 || (first + i >= 0 && first + i < room);
        Lanes<Key, wide> word;
        if (there) word = *reinterpret_cast<const Lanes<Key, wide>*>(keys + first + i);
#pragma unroll
        for (int k = 0; k < wide; ++k) own[i + k] = there ? word.at[k] : first + i < 0 ? Key{0} : ~Key{0};
      }
#pragma unroll 1
      for (std::uint32_t round = 0; round < rounds; round += 2) {
#pragma unroll
        for (int i = 0; i + 1 < each; i += 2) in_order(own[i], own[i + 1]);
        Key before = __shfl_up_sync(0xffffffffu, own[each - 1], 1), behind = __shfl_down_sync(0xffffffffu, own[0], 1);
#pragma unroll
        for (int i = 1; i + 1 < each; i += 2) in_order(own[i], own[i + 1]);
        if (lane > 0) own[0] = max(own[0], before);
        if (lane < 31) own[each - 1] = min(own[each - 1], behind);
      }
    }
    meet();
    if (wanted) {
#pragma unroll
      for (int i = 0; i < each; i += wide) {
        const int of_window = lane * each + i;
        if (warps > 1 && (of_window < halo || of_window >= halo + own_keys || first + i >= room)) continue;
        Lanes<Key, wide> word;
#pragma unroll
        for (int k = 0; k < wide; ++k) word.at[k] = own[i + k];
        *reinterpret_cast<Lanes<Key, wide>*>(keys + first + i) = word;
      }
    }
    meet();
  }
  __device__ static void in_order(Key& a, Key& b) {
    const Key least = min(a, b);
    b = max(a, b);
    a = least;
  }

  __device__ void sort_by_network(std::uint32_t thread) {
    KeySort<Key, threads, of_network> network;
#pragma unroll
    for (int i = 0; i < of_network; ++i) network.keys[i] = i * threads + thread < room ? keys[i * threads + thread] : ~Key{0};
    network.sort(keys);
    meet();
#pragma unroll
    for (int i = 0; i < of_network; ++i)
      if (thread * of_network + i < room) keys[thread * of_network + i] = network.keys[i];
    meet();
  }

  /// Stores the places of the first `count` keys of a line, and what stands there.
  template <typename Line>
  __device__ void store(const Line& found, std::uint32_t count, std::uint32_t thread) const {
    found.template put_each<false, threads, (room + threads - 1) / threads>(
        thread, count, [&](std::uint32_t i) { return static_cast<std::uint32_t>(keys[i] & places); });
  }

  /// Leaves the `count` least keys of those that threads hold, maybe some more, and the greatest number there is behind them.
  template <typename Held>
  __device__ void select(const Held& held, std::uint32_t count, std::uint32_t thread) {
    Key begin = 0;
    std::uint32_t wanted = count;  // of keys that begin so
    int shift = 8 * sizeof(Key);
    bool fits = false;
#pragma unroll 1
    while (!fits) {  // at the latest the last bits tell all keys apart
      const int above = shift;
      shift -= 8;
      meet();
      for (std::uint32_t i = thread; i < 256; i += threads) counts[i] = 0;
      meet();
#pragma unroll
      for (int i = 0; i < Held::many; ++i) {
        const Key key = held.template key_of<Key>(i, thread);
        if (above == 8 * sizeof(Key) || key >> above == begin)
          atomicAdd(counts + static_cast<std::uint32_t>(key >> shift) % 256, 1u);
      }
      meet();
      if (thread < 32) {
        std::uint32_t sum = 0;
        for (std::uint32_t i = 0; i < 8; ++i) sum += counts[thread * 8 + i];
        const std::uint32_t up_to = scan_warp<typed::Add>(sum);
        std::uint32_t in_front = up_to - sum;
        if (in_front < wanted && up_to >= wanted) {
          std::uint32_t found = thread * 8;
          while (in_front + counts[found] < wanted) in_front += counts[found++];
          bin = found, largest = in_front;
        }
      }
      meet();
      begin = begin << 8 | bin;
      wanted -= largest;
      fits = count - wanted + counts[bin] <= room;
    }
    if (thread == 0) taken = 0;
    meet();
#pragma unroll
    for (int i = 0; i < Held::many; ++i) {
      const Key key = held.template key_of<Key>(i, thread);
      if (key >> shift <= begin) keys[atomicAdd(&taken, 1u)] = key;
    }
    meet();
    for (std::uint32_t i = taken + thread; i < room; i += threads) keys[i] = ~Key{0};
    meet();
  }
};

}  // namespace bolt::portable
