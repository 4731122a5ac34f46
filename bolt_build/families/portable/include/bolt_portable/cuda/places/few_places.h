// Places of a few elements of short lines in order: neighbouring threads share a line, and each keeps the first ones that it
// has met.
#pragma once

#include "bolt_portable/cuda/places/held_ranks.h"

namespace bolt::portable {

/// Sorted keys in registers; the compiler knows every step.
template <int many, typename Key>
struct FewKeys {
  Key keys[many];

  /// Batcher's network of odd and even merges.
  __device__ void sort() {
    if constexpr (many > 1) merge<1, 1>();
  }
  /// Keeps the first of its own and of another's. Both are sorted.
  __device__ void join(const FewKeys& other) {
#pragma unroll
    for (int i = 0; i < many; ++i) keys[i] = min(keys[i], other.keys[many - 1 - i]);
#pragma unroll
    for (int apart = many / 2; apart > 0; apart /= 2)
#pragma unroll
      for (int i = 0; i < many; ++i)
        if ((i & apart) == 0) in_order(i, i + apart);
  }

 private:
  template <int run, int apart>
  __device__ void merge() {
#pragma unroll
    for (int i = 0; i + apart < many; ++i)
      if (i >= apart % run && (i - apart % run) / apart % 2 == 0 && i / (2 * run) == (i + apart) / (2 * run))
        in_order(i, i + apart);
    if constexpr (apart > 1)
      merge<run, apart / 2>();
    else if constexpr (2 * run < many)
      merge<2 * run, 2 * run>();
  }
  __device__ void in_order(int i, int k) {
    const Key least = min(keys[i], keys[k]);
    keys[k] = max(keys[i], keys[k]);
    keys[i] = least;
  }
};

/// Lines of [outer, extent, inner] by `threads` neighbouring threads each, which keep the first `kept` keys. A thread loads `lanes`
/// neighbours at once, `loads` times, before it looks at them.
template <bool greatest, int threads, int kept, int loads, int lanes, typename Key, typename T>
struct FewPlaces {
  static constexpr int at_once = loads * lanes, together = 256 / threads;
  static constexpr int block = 256;
  static constexpr bool pairs = sizeof(Key) == 4 && lanes > 1 && (std::is_same_v<T, f16> || std::is_same_v<T, bf16>);
  static_assert(at_once % kept == 0, "keys are sorted in runs of as many as are kept");

  const T* from;
  FirstElements<T> to;
  Divisor inner;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    const std::uint32_t item = number * block + threadIdx.x, thread = item % threads;
    const bool is = item / threads < lines;
    const std::uint32_t line = is ? item / threads : lines - 1;  // whole warps exchange keys
    const std::uint32_t outside = inner.quotient(line), inside = line - outside * inner.by;
    const T* const x = from + static_cast<Index>(outside) * extent * inner.by + inside;
    FewKeys<kept, Key> best;
#pragma unroll
    for (int i = 0; i < kept; ++i) best.keys[i] = ~Key{0};
    for (std::uint32_t first = thread * lanes; first < extent; first += at_once * threads) {
      Lanes<T, lanes> read[loads];
#pragma unroll
      for (int load = 0; load < loads; ++load) {
        const std::uint32_t at = first + load * (threads * lanes);
        if (at < extent) read[load] = *reinterpret_cast<const Lanes<T, lanes>*>(x + static_cast<Index>(at) * inner.by);
        if constexpr (pairs) {
          // The numbers of two neighbours, all bits of which are ones where there are none.
          std::uint32_t* const words = reinterpret_cast<std::uint32_t*>(&read[load]);
#pragma unroll
          for (int i = 0; i < lanes / 2; ++i) words[i] = at < extent ? turned_pair(falling_pair<greatest, T>(words[i])) : ~0u;
        }
      }
#pragma unroll
      for (int run = 0; run < at_once; run += kept) {
        FewKeys<kept, Key> own;
#pragma unroll
        for (int i = 0; i < kept; ++i) {
          const std::uint32_t at = first + (run + i) / lanes * (threads * lanes);
          const int lane = (run + i) % lanes;
          if constexpr (pairs) {
            const std::uint32_t both = reinterpret_cast<const std::uint32_t*>(&read[(run + i) / lanes])[lane / 2];
            own.keys[i] = __byte_perm(at + lane, both, lane % 2 == 0 ? 0x5410 : 0x7610);
          } else {
            const Key key = static_cast<Key>(rank_of<greatest>(read[(run + i) / lanes].at[lane])) << rank_bits<Key> | (at + lane);
            own.keys[i] = at < extent ? key : ~Key{0};
          }
        }
        own.sort();
        best.join(own);
      }
    }
#pragma unroll
    for (int distance = 1; distance < threads; distance *= 2) {
      FewKeys<kept, Key> other;
#pragma unroll
      for (int i = 0; i < kept; ++i) other.keys[i] = __shfl_xor_sync(0xffffffffu, best.keys[i], distance);
      best.join(other);
    }
    if (!is) return;
    constexpr Key places = (Key{1} << rank_bits<Key>) - 1;
    const auto found = to.line(line);
#pragma unroll
    for (int i = 0; i < kept; i += threads) {
      // Each thread has a place of its own to store.
      Key own = best.keys[i];
#pragma unroll
      for (int k = 1; k < threads && i + k < kept; ++k) own = thread == k ? best.keys[i + k] : own;
      if (thread < kept && i + thread < count) found.put(i + thread, static_cast<std::uint32_t>(own & places));
    }
  }
};

/// Places of the first `count` of each line, as `sorted_places`.
template <bool greatest, int threads, int kept, int loads, int lanes, typename Key, typename T>
void few_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  const T* const from = static_cast<const T*>(input);
  if constexpr (lanes > 1) {
    if (!in_lanes(from, lanes))
      return few_places<greatest, threads, kept, loads * lanes, 1, Key, T>(r, p, count, input, places, values);
  }
  using Few = FewPlaces<greatest, threads, kept, loads, lanes, Key, T>;
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  const Few few{from, FirstElements<T>(p, count, input, places, values), Divisor(p.inner), lines, counted(p.extent, "places"),
                static_cast<std::uint32_t>(count)};
  launch_blocks<Few::block>(r, (static_cast<Index>(lines) + Few::together - 1) / Few::together, few, "places");
}

}  // namespace bolt::portable
