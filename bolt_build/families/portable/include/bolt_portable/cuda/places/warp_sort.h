// Keys of a line that one warp sorts: in bins, or by four bits of their numbers at a time.
#pragma once

#include "bolt_portable/cuda/places/sorted_places.h"

namespace bolt::portable {

/// Up to 32 * `each` keys in shared memory, numbers of `number_bits` in front of places; behind the last key all bits are
/// ones. Keys whose numbers are the same stand in the order of their places.
template <int each, int number_bits, typename Key>
struct WarpSort {
  static constexpr int room = 32 * each;
  /// Neighbours of a lane in the last rounds, an even number; keys of a warp then; bins, and keys of one at most.
  static constexpr int own_keys = each + 1, window = 32 * own_keys;
  static constexpr int sorting_bins = each <= 12 ? 256 : each <= 24 || sizeof(Key) == 8 ? 512 : 1024;
  static constexpr std::uint32_t most_rounds = 16, digits = 16,
                                 column = 33;  ///< a column more, so that lanes have banks of their own
  static constexpr int words_of_sort = sorting_bins > static_cast<int>(digits * column) ? sorting_bins + 1 : digits * column;
  static_assert(each % 2 == 1, "else lanes that read keys of their own share banks");

  /// `more`: words beside keys that others want, never at the same time.
  template <int more>
  struct MemoryOf {
    alignas(16) Key keys[window];
    alignas(16) std::uint32_t words[more > words_of_sort ? more : words_of_sort];
  };

  /// Sorts keys up to the number `most`.
  template <typename Memory>
  __device__ static void sort(std::uint32_t lane, std::uint32_t most, Memory& own) {
    if (!sort_in_bins(lane, most, own)) sort_digits(lane, own);
  }

 private:
  /// Puts keys in bins of equal width, and sorts each bin by exchanges of neighbours. False, and nothing is done, where a bin has
  /// too many of them.
  template <typename Memory>
  __device__ static bool sort_in_bins(std::uint32_t lane, std::uint32_t most, Memory& own) {
    constexpr int turns = sorting_bins / 128;
    Key keys[each];
    std::uint32_t least = ~0u;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) reinterpret_cast<uint4*>(own.words)[turn * 32 + lane] = uint4{0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < each; ++i) {
      keys[i] = own.keys[i * 32 + lane];
      least = min(least, static_cast<std::uint32_t>(keys[i] >> rank_bits<Key>));
    }
    least = of_warp<OfWarp::least>(least);
    const int shift = max(32 - __clz(static_cast<int>(most - least)) - (31 - __clz(sorting_bins)), 0);
    __syncwarp();
    // What is behind the last key has a counter of its own, for no lane to ask.
#pragma unroll
    for (int i = 0; i < each; ++i) atomicAdd(own.words + bin_of(keys[i], least, shift), 1u);
    __syncwarp();
    const std::uint32_t base = static_cast<std::uint32_t>(__cvta_generic_to_shared(own.keys));
    uint4* const counts = reinterpret_cast<uint4*>(own.words) + lane;
    std::uint32_t so_far = base, rounds = 0;
    uint4 those[turns];
    std::uint32_t sums[turns];
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      those[turn] = counts[turn * 32];
      rounds = max(max(max(rounds, those[turn].x), max(those[turn].y, those[turn].z)), those[turn].w);
      sums[turn] = those[turn].x + those[turn].y + those[turn].z + those[turn].w;
    }
    rounds = of_warp<OfWarp::greatest>(rounds);
    if (rounds > most_rounds) {
      __syncwarp();
      return false;
    }
    constexpr std::uint32_t size = sizeof(Key);
#pragma unroll
    for (int turn = 0; turn < turns; turn += 2) {
      const std::uint32_t both = scan_warp<typed::Add>(sums[turn] | sums[turn + 1] << 16);
      const std::uint32_t all = __shfl_sync(0xffffffffu, both, 31);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 many = those[turn + half];
        const std::uint32_t end = half == 0 ? both & 0xffff : both >> 16;
        const std::uint32_t at = so_far + (end - sums[turn + half]) * size, second = at + many.x * size,
                            third = second + many.y * size;
        counts[(turn + half) * 32] = uint4{at, second, third, third + many.z * size};
        so_far += (half == 0 ? all & 0xffff : all >> 16) * size;
      }
    }
    if (lane == 0) own.words[sorting_bins] = so_far;
    __syncwarp();
    // Lanes that take places of one counter wait for each other. So what is behind the last key stays where it is, mostly.
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (i + 4 > each && keys[i] == ~Key{0}) continue;
      const std::uint32_t to = atomicAdd(own.words + bin_of(keys[i], least, shift), size);
      if constexpr (size == 4)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(keys[i]) : "memory");
      else
        asm volatile("st.shared.u64 [%0], %1;" ::"r"(to), "l"(keys[i]) : "memory");
    }
    __syncwarp();
    exchange_neighbours(rounds, lane, own);
    return true;
  }
  __device__ static std::uint32_t bin_of(Key key, std::uint32_t least, int shift) {
    return min((static_cast<std::uint32_t>(key >> rank_bits<Key>) - least) >> shift, static_cast<std::uint32_t>(sorting_bins));
  }
  /// Sorts keys that are less than `rounds` places from where they belong.
  template <typename Memory>
  __device__ static void exchange_neighbours(std::uint32_t rounds, std::uint32_t lane, Memory& own) {
    constexpr int wide = own_keys * sizeof(Key) % 16 == 0  ? 16 / sizeof(Key)
                         : own_keys * sizeof(Key) % 8 == 0 ? 8 / sizeof(Key)
                                                           : 1;
    using Word = Lanes<Key, wide>;
    Key keys[own_keys];
    Word* const words = reinterpret_cast<Word*>(own.keys + lane * own_keys);
#pragma unroll
    for (int i = 0; i < own_keys / wide; ++i) {
      const Word word = words[i];
#pragma unroll
      for (int k = 0; k < wide; ++k) keys[i * wide + k] = word.at[k];
    }
#pragma unroll 1
    for (std::uint32_t round = 0; round < rounds; round += 2) {
#pragma unroll
      for (int i = 0; i < own_keys; i += 2) in_order(keys[i], keys[i + 1]);
      const Key before = __shfl_up_sync(0xffffffffu, keys[own_keys - 1], 1), behind = __shfl_down_sync(0xffffffffu, keys[0], 1);
#pragma unroll
      for (int i = 1; i + 1 < own_keys; i += 2) in_order(keys[i], keys[i + 1]);
      if (lane > 0) keys[0] = max(keys[0], before);
      if (lane < 31) keys[own_keys - 1] = min(keys[own_keys - 1], behind);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < own_keys / wide; ++i) {
      Word word;
#pragma unroll
      for (int k = 0; k < wide; ++k) word.at[k] = keys[i * wide + k];
      words[i] = word;
    }
    __syncwarp();
  }
  __device__ static void in_order(Key& a, Key& b) {
    const Key least = min(a, b);
    b = max(a, b);
    a = least;
  }

  /// Sorts keys by their numbers, the last four bits first: lanes have neighbouring keys, and columns of counters of their own.
  /// Numbers are counted from the least one, so that fewer bits differ; behind the last key all bits are ones.
  template <typename Memory>
  __device__ static void sort_digits(std::uint32_t lane, Memory& own) {
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
    std::uint32_t* const counters = own.words + lane;
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
  template <typename Memory>
  __device__ static void sum_columns(std::uint32_t lane, Memory& own) {
    std::uint32_t* const first = own.words + lane / 2 * column + lane % 2 * 16;
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

}  // namespace bolt::portable
