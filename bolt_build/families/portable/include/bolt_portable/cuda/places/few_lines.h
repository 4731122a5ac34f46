// Places of a few elements of short lines in order: a warp brings its lines to shared memory and takes results to memory in whole
// accesses, and each line is a few threads' in between.
#pragma once

#include "bolt_portable/cuda/places/few_places.h"

namespace bolt::portable {

/// The element that has such a number (`rank_of`); NaN and zeros, which share one, are others'.
template <bool greatest, typename T>
__device__ inline T ranked_element(std::uint32_t rank) {
  constexpr std::uint32_t bits = 8 * sizeof(T), all = bits == 32 ? ~0u : (1u << bits % 32) - 1, top = 1u << (bits - 1);
  std::uint32_t own = rank;
  if constexpr (std::is_floating_point_v<typename Computed<T>::type>) {
    if constexpr (greatest)
      own = rank & top ? rank : rank ^ (all >> 1);
    else
      own = rank & top ? rank ^ top : ~rank;
  } else {
    own = greatest ? ~rank : rank;
    if constexpr (std::is_signed_v<T>) own ^= top;
  }
  T found;
  memcpy(&found, &own, sizeof(T));
  return found;
}

/// As FewPlaces, of lines of neighbours that are whole words of 16 bytes. A warp has 32 / `threads` lines. It loads up to eight
/// words a thread of all of them side by side, so neighbouring threads have neighbouring words, and leaves them in rows of shared
/// memory, with a word between rows. The next ones are on their way while threads take their own from there.
template <bool greatest, int threads, int kept, typename Key, typename T>
struct FewLines {
  static constexpr int block = 256, warps = block / 32, lanes = 16 / static_cast<int>(sizeof(T)), together = 32 / threads;
  static constexpr int each = 8, row = each * threads + 1;  ///< words of a thread at once, and from one row to the next
  static constexpr int at_once = kept > lanes ? kept / lanes : 1;  ///< words whose keys are sorted together
  static constexpr bool pairs = sizeof(Key) == 4 && (std::is_same_v<T, f16> || std::is_same_v<T, bf16>);
  static_assert(kept <= lanes * at_once && each % at_once == 0 && lanes * at_once % kept == 0);

  const T* from;
  FirstElements<T> to;
  Divisor counts;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    __shared__ __align__(16) uint4 memory[warps][together * row];
    uint4* const own = memory[threadIdx.x / 32];
    const std::uint32_t lane = threadIdx.x % 32, thread = lane % threads, line = lane / threads;
    const std::uint32_t first = (number * warps + threadIdx.x / 32) * together;
    if (first >= lines) return;  // whole warps
    const std::uint32_t there = min(lines - first, static_cast<std::uint32_t>(together)), words = extent / lanes;
    const uint4* const given = reinterpret_cast<const uint4*>(from) + Index{first} * words;
    uint4 read[each];
    const auto ask = [&](std::uint32_t base) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const std::uint32_t item = i * 32 + lane, of = item / (each * threads), word = base + item % (each * threads);
        if (of < there && word < words) read[i] = given[of * words + word];
      }
    };
    FewKeys<kept, Key> best;
#pragma unroll
    for (int i = 0; i < kept; ++i) best.keys[i] = ~Key{0};
    ask(0);
#pragma unroll 1
    for (std::uint32_t base = 0; base < words; base += each * threads) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const std::uint32_t item = i * 32 + lane;
        own[item / (each * threads) * row + item % (each * threads)] = read[i];
      }
      __syncwarp();
      if (base + each * threads < words) ask(base + each * threads);
#pragma unroll
      for (int k = 0; k < each; k += at_once) {
        if (base + k * threads >= words) break;  // of all threads
        join(best, own + line * row, base, k * threads + thread, words);
      }
      __syncwarp();
    }
#pragma unroll
    for (int distance = 1; distance < threads; distance *= 2) {
      FewKeys<kept, Key> other;
#pragma unroll
      for (int i = 0; i < kept; ++i) other.keys[i] = __shfl_xor_sync(0xffffffffu, best.keys[i], distance);
      best.join(other);
    }
    Key* const found = reinterpret_cast<Key*>(own);
    if (thread == 0)
#pragma unroll
      for (int i = 0; i < kept; ++i) found[line * kept + i] = best.keys[i];
    __syncwarp();
    store(found, first, there, lane);
  }

 private:
  /// Keeps the first of those that it has and of `at_once` words, `threads` apart.
  __device__ static void join(FewKeys<kept, Key>& best, const uint4* row_of, std::uint32_t base, std::uint32_t word,
                              std::uint32_t words) {
    Key keys[at_once * lanes];
#pragma unroll
    for (int w = 0; w < at_once; ++w) {
      const std::uint32_t at = word + w * threads, place = (base + at) * lanes;
      const bool is = base + at < words;
      const uint4 both = row_of[at];
      if constexpr (pairs) {
        const std::uint32_t halves[4] = {both.x, both.y, both.z, both.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t numbers = is ? turned_pair(falling_pair<greatest, T>(halves[i])) : ~0u;
          keys[w * lanes + 2 * i] = __byte_perm(place + 2 * i, numbers, 0x5410);
          keys[w * lanes + 2 * i + 1] = __byte_perm(place + 2 * i + 1, numbers, 0x7610);
        }
      } else {
        const Lanes<T, lanes> elements = elements_of<T>(both);
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const Key key = static_cast<Key>(rank_of<greatest>(elements.at[i])) << rank_bits<Key> | (place + i);
          keys[w * lanes + i] = is ? key : ~Key{0};
        }
      }
    }
#pragma unroll
    for (int run = 0; run < at_once * lanes; run += kept) {
      FewKeys<kept, Key> some;
#pragma unroll
      for (int i = 0; i < kept; ++i) some.keys[i] = keys[run + i];
      some.sort();
      best.join(some);
    }
  }

  /// Results of a warp's lines are one run of memory.
  __device__ void store(const Key* found, std::uint32_t first, std::uint32_t there, std::uint32_t lane) const {
    constexpr Key places = (Key{1} << rank_bits<Key>) - 1;
    const Index begin = Index{first} * count;
#pragma unroll 4
    for (std::uint32_t i = lane; i < there * count; i += 32) {
      const std::uint32_t line = counts.quotient(i);
      const Key key = found[line * kept + (i - line * count)];
      const auto place = static_cast<std::uint32_t>(key & places);
      if (to.places != nullptr) to.places[begin + i] = place;
      if (to.values != nullptr) {
        const auto rank = static_cast<std::uint32_t>(key >> rank_bits<Key>);
        T value = ranked_element<greatest, T>(rank);
        if constexpr (std::is_floating_point_v<typename Computed<T>::type>)
          if (rank == 0 || read(&value) == 0) value = from[(Index{first} + line) * extent + place];
        to.values[begin + i] = value;
      }
    }
  }
};

/// Places of the first `count` of each line, as `few_places`, of lines that are whole words; by that kernel where they do not begin
/// with words.
template <bool greatest, int threads, int kept, typename Key, typename T>
void few_lines(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  using Few = FewLines<greatest, threads, kept, Key, T>;
  const T* const from = static_cast<const T*>(input);
  if (!in_lanes(from, Few::lanes))
    return few_places<greatest, threads, kept, 16, 1, Key, T>(r, p, count, input, places, values);
  const std::uint32_t lines = counted(p.outer, "places");
  counted(p.outer * p.extent, "places");
  const Few few{from, FirstElements<T>(p, count, input, places, values), Divisor(count), lines,
                static_cast<std::uint32_t>(p.extent), static_cast<std::uint32_t>(count)};
  constexpr Index of_block = Few::warps * Few::together;
  launch_blocks<Few::block>(r, (static_cast<Index>(lines) + of_block - 1) / of_block, few, "places");
}

}  // namespace bolt::portable
