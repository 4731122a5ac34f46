// Places of the first elements of a line in order: threads sort keys in registers that hold an element and its place.
#pragma once

#include "bolt_portable/cuda/reductions/fold.h"

namespace bolt::portable {

/// An element as an unsigned number of its own width: what stands before another in the order asked for has the less. NaN has
/// the least, and both zeros have one.
template <bool greatest, typename T>
__device__ inline std::uint32_t rank_of(const T& x) {
  constexpr std::uint32_t bits = 8 * sizeof(T), all = bits == 32 ? ~0u : (1u << bits % 32) - 1, top = 1u << (bits - 1);
  std::uint32_t own = 0;
  memcpy(&own, &x, sizeof(T));
  if constexpr (std::is_same_v<T, boolean>) {
    own = own != 0 ? 1 : 0;
  } else if constexpr (std::is_floating_point_v<typename Computed<T>::type>) {
    constexpr std::uint32_t infinite = bits == 32 ? 0x7f800000u : std::is_same_v<T, f16> ? 0x7c00u : 0x7f80u;
    const std::uint32_t size = own & ~top & all;
    const bool negative = (own & top) != 0;
    own ^= greatest ? (negative ? 0 : all >> 1) : (negative ? all : top);
    if (size == 0) own = greatest ? all >> 1 : top;
    return size > infinite ? 0 : own;
  } else if constexpr (std::is_signed_v<T>) {
    own ^= top;
  }
  return greatest ? ~own & all : own;
}

/// Where the first `count` elements of lines of [outer, extent, inner] go, to [outer, count, inner]: their places, and they
/// themselves; null where nobody reads these.
template <typename T>
struct FirstElements {
  const T* from;
  std::int64_t* places;
  T* values;
  Divisor inner;
  std::uint32_t extent, count;

  FirstElements(const Lines& p, Index many, const void* input, void* to, void* elements)
      : from(static_cast<const T*>(input)),
        places(static_cast<std::int64_t*>(to)),
        values(static_cast<T*>(elements)),
        inner(p.inner),
        extent(counted(p.extent, "places")),
        count(static_cast<std::uint32_t>(many)) {}

  struct Line {
    const T* from;
    std::int64_t* places;
    T* values;
    std::uint32_t apart;

    /// Number `at` of them is the line's element `place`.
    __device__ void put(std::uint32_t at, std::uint32_t place) const {
      const Index to = static_cast<Index>(at) * apart;
      if (places != nullptr) places[to] = place;
      if (values != nullptr) values[to] = from[static_cast<Index>(place) * apart];
    }
    /// The same of numbers from `first` on that are `step` apart, up to `most` of them that are less than `count`;
    /// `place(at)` tells the element. Of lines of `neighbours` every address is a constant beside one.
    template <bool neighbours, std::uint32_t step, int most, typename Place>
    __device__ void put_each(std::uint32_t first, std::uint32_t count, const Place& place) const {
      const std::uint32_t beside = neighbours ? 1 : apart;
      if (places != nullptr) {
        std::int64_t* to = places + static_cast<Index>(first) * beside;
#pragma unroll
        for (int i = 0; i < most; ++i, to += static_cast<Index>(step) * beside)
          if (first + i * step < count) *to = place(first + i * step);
      }
      if (values != nullptr) {
        T* to = values + static_cast<Index>(first) * beside;
#pragma unroll
        for (int i = 0; i < most; ++i, to += static_cast<Index>(step) * beside)
          if (first + i * step < count) *to = from[static_cast<Index>(place(first + i * step)) * beside];
      }
    }
  };
  __device__ Line line(std::uint32_t number) const {
    const std::uint32_t outside = inner.quotient(number), inside = number - outside * inner.by;
    const Index to = static_cast<Index>(outside) * count * inner.by + inside;
    return {from + static_cast<Index>(outside) * extent * inner.by + inside, places == nullptr ? nullptr : places + to,
            values == nullptr ? nullptr : values + to, inner.by};
  }
};

/// What all of a warp's numbers come to, in each of its threads.
enum class OfWarp { sum, least, greatest };
template <OfWarp function>
__device__ inline std::uint32_t of_warp(std::uint32_t number) {
#if __CUDA_ARCH__ >= 800
  if constexpr (function == OfWarp::sum) return __reduce_add_sync(0xffffffffu, number);
  return function == OfWarp::least ? __reduce_min_sync(0xffffffffu, number) : __reduce_max_sync(0xffffffffu, number);
#else
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, number, distance);
    number = function == OfWarp::sum ? number + other : function == OfWarp::least ? min(number, other) : max(number, other);
  }
  return number;
#endif
}

/// Bits of a key that hold the element, in front of the place: half of them.
template <typename Key>
constexpr int rank_bits = 4 * sizeof(Key);

/// `each` neighbouring keys of every of `threads` threads, sorted in registers: those of threads and warps are exchanged where
/// keys to compare are of two. The compiler knows every step, so that no key has an address.
template <typename Key, int threads, int each>
struct KeySort {
  static constexpr std::uint32_t all = threads * each;
  Key keys[each];

  /// `memory` has room for all keys where there are several warps.
  __device__ void sort(Key* memory) {
    if constexpr (all > 1) sort_runs<2>(memory, 0);
  }

 private:
  /// Makes runs of `run` keys of sorted ones of half as many, and so on. Every second run is sorted the other way round. Keys
  /// of a thread that are all of one such run are kept `turned`, so that the least is the first everywhere.
  template <std::uint32_t run>
  __device__ void sort_runs(Key* memory, Key turned) {
    const std::uint32_t first = threadIdx.x % threads * each;
    if constexpr (run >= each) {
      const Key turns = (first & run) == 0 ? Key{0} : ~Key{0};
#pragma unroll
      for (int i = 0; i < each; ++i) keys[i] ^= turned ^ turns;
      turned = turns;
    }
    merge<run, run / 2>(memory);
    if constexpr (run < all) sort_runs<2 * run>(memory, turned);
  }

  template <std::uint32_t run, std::uint32_t apart>
  __device__ void merge(Key* memory) {
    if constexpr (apart >= each) {
      exchange<apart / each>(memory);
    } else {
#pragma unroll
      for (std::uint32_t i = 0; i < each; ++i)
        if ((i & apart) == 0) {
          const bool up = run >= each || (i & run) == 0;
          const Key a = keys[i], b = keys[i + apart];
          keys[i] = (a < b) == up ? a : b;
          keys[i + apart] = (a < b) == up ? b : a;
        }
    }
    if constexpr (apart > 1) merge<run, apart / 2>(memory);
  }

  template <std::uint32_t distance>
  __device__ void exchange(Key* memory) {
    const std::uint32_t thread = threadIdx.x % threads;
    const bool less = (thread & distance) == 0;
    if constexpr (distance >= 32) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < each; ++i) memory[i * threads + thread] = keys[i];
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
      Key other;
      if constexpr (distance >= 32) {
        other = memory[i * threads + (thread ^ distance)];
      } else {
        other = __shfl_xor_sync(0xffffffffu, keys[i], static_cast<int>(distance));
      }
      keys[i] = (keys[i] < other) == less ? keys[i] : other;
    }
  }
};

/// Sorts lines of [outer, extent, inner] by `threads` threads each, which have `each` keys. Of lines that are longer keys are
/// selected before: by a warp whose threads hold more, `holds` elements each, or, where they hold none, of any length.
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T>
struct SortedPlaces {
  static constexpr bool selects = holds == 0;
  static constexpr int block = threads < block_threads ? block_threads : threads, together = block / threads;
  static constexpr std::uint32_t room = threads * each, bins = 256;
  static constexpr int at_once = 4;
  /// Blocks of a multiprocessor that registers are for.
  static constexpr int bytes = (holds > each ? holds : each) * sizeof(Key);  ///< of a thread's keys
  static constexpr int resident = block > 256 || bytes > 128 ? 1 : bytes > 64 ? 3 : 4;

  const T* from;
  FirstElements<T> to;
  Divisor inner;
  std::uint32_t lines, extent, count;

  __device__ void operator()(std::uint32_t number) const {
    constexpr bool exchanges = threads > 32 || holds != each;
    static_assert(holds <= each || threads == 32, "a warp selects of what it holds");
    __shared__ __align__(16) Key all[together][exchanges ? room : 1];
    Key* const memory = all[threadIdx.x / threads];
    const std::uint32_t thread = threadIdx.x % threads, line = number * together + threadIdx.x / threads;
    if (line >= lines) return;  // whole warps
    const std::uint32_t outside = inner.quotient(line), inside = line - outside * inner.by;
    const T* const x = from + static_cast<Index>(outside) * extent * inner.by + inside;
    KeySort<Key, threads, each> own;
    if constexpr (selects) {
      select(x, memory);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < each; ++i) own.keys[i] = memory[i * threads + thread];
    } else if constexpr (holds > each) {
      Key held[holds];
      hold(x, held);
      select_held(held, memory);
#pragma unroll
      for (int i = 0; i < each; ++i) own.keys[i] = memory[i * threads + thread];
    } else {
      hold(x, own.keys);
    }
    own.sort(memory);
    if constexpr (exchanges)
      if (inner.by == 1) return store_run(own.keys, memory, to.line(line));
    const auto found = to.line(line);
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (thread * each + i < count) found.put(thread * each + i, place(own.keys[i]));
  }

 private:
  __device__ static Key key(const T& x, std::uint32_t place) {
    constexpr Key places = (Key{1} << rank_bits<Key>) - 1;
    return static_cast<Key>(rank_of<greatest>(x)) << rank_bits<Key> | (last ? ~static_cast<Key>(place) & places : place);
  }
  __device__ static std::uint32_t place(Key key) {
    constexpr Key places = (Key{1} << rank_bits<Key>) - 1;
    return static_cast<std::uint32_t>((last ? ~key : key) & places);
  }

  /// Stores the places of a line of neighbours. A thread's own ones lie side by side, so neighbouring threads exchange them first:
  /// then an access of a warp is a run of memory.
  __device__ void store_run(const Key (&keys)[each], Key* memory, const typename FirstElements<T>::Line& found) const {
    const std::uint32_t thread = threadIdx.x % threads;
    meet();
#pragma unroll
    for (int i = 0; i < each; ++i) memory[thread * each + i] = keys[i];
    meet();
#pragma unroll 4
    for (std::uint32_t i = thread; i < count; i += threads) found.put(i, place(memory[i]));
  }
  /// Those that share a line wait for each other.
  __device__ static void meet() {
    if constexpr (threads > 32)
      __syncthreads();
    else
      __syncwarp();
  }

  /// The keys of a line that has room in the threads' registers; behind the last one the greatest number there is.
  template <int many>
  __device__ void hold(const T* x, Key (&keys)[many]) const {
    const std::uint32_t thread = threadIdx.x % threads;
    const T* at = x + static_cast<Index>(thread) * inner.by;
    const Index step = static_cast<Index>(threads) * inner.by;  // of one address, where many would take all registers
    T read[many];
#pragma unroll
    for (int i = 0; i < many; ++i) {
      if (i * threads + thread < extent) read[i] = *at;
      at += step;
    }
#pragma unroll
    for (int i = 0; i < many; ++i)
      keys[i] = i * threads + thread < extent ? key(read[i], i * threads + thread) : ~Key{0};
  }

  /// Leaves the `count` least of a warp's keys in memory, maybe some more, and the greatest number there is behind them. They
  /// are less than a bound, of which one bit after the other is found.
  __device__ void select_held(const Key (&held)[holds], Key* memory) const {
    Key bound = 0;
    std::uint32_t own = 0, there = 0;
    for (int bit = 8 * sizeof(Key) - 1; bit >= 0; --bit) {
      const Key tried = bound | Key{1} << bit;
      own = 0;
#pragma unroll
      for (int i = 0; i < holds; ++i) own += held[i] < tried ? 1 : 0;
      there = own;
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) there += __shfl_xor_sync(0xffffffffu, there, distance);
      if (there < count) {
        bound = tried;
      } else if (there <= room) {
        bound = tried;
        break;  // at the latest at the last bit, for no two keys are equal
      }
    }
    std::uint32_t to = scan_warp<typed::Add>(own) - own;
#pragma unroll
    for (int i = 0; i < holds; ++i)
      if (held[i] < bound) memory[to++] = held[i];
    for (std::uint32_t i = there + threadIdx.x % 32; i < room; i += 32) memory[i] = ~Key{0};
    __syncwarp();
  }

  /// Calls with(key) for this thread's elements of a line, some of which are under way at once.
  template <typename With>
  __device__ void each_key(const T* x, const With& with) const {
    for (std::uint32_t first = threadIdx.x; first < extent; first += at_once * threads) {
      T read[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (first + k * threads < extent) read[k] = x[static_cast<Index>(first + k * threads) * inner.by];
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (first + k * threads < extent) with(key(read[k], first + k * threads));
    }
  }

  /// Leaves the `count` least keys in memory, maybe some more, and the greatest number there is behind them.
  __device__ void select(const T* x, Key* memory) const {
    __shared__ std::uint32_t counts[bins], chosen, before, taken;
    Key begin = 0;
    std::uint32_t wanted = count;  // of keys that begin so
    int shift = 8 * sizeof(Key);
    for (;;) {
      const int above = shift;
      shift -= 8;
      for (std::uint32_t i = threadIdx.x; i < bins; i += threads) counts[i] = 0;
      __syncthreads();
      each_key(x, [&](Key key) {
        if (above == 8 * sizeof(Key) || key >> above == begin) atomicAdd(counts + (key >> shift) % bins, 1u);
      });
      __syncthreads();
      if (threadIdx.x < 32) choose(counts, wanted, chosen, before);
      __syncthreads();
      begin = begin << 8 | chosen;
      wanted -= before;
      const bool fits = count - wanted + counts[chosen] <= room;
      __syncthreads();
      if (fits) break;  // at the latest behind the last bits, for no two keys are equal
    }
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    each_key(x, [&](Key key) {
      if (key >> shift <= begin) memory[atomicAdd(&taken, 1u)] = key;
    });
    __syncthreads();
    for (std::uint32_t i = taken + threadIdx.x; i < room; i += threads) memory[i] = ~Key{0};
  }

  /// The bin of the `wanted`-th key, and how many are in front of it. By one warp.
  __device__ static void choose(const std::uint32_t* counts, std::uint32_t wanted, std::uint32_t& chosen,
                                std::uint32_t& before) {
    constexpr std::uint32_t own = bins / 32;
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < own; ++i) sum += counts[threadIdx.x * own + i];
    std::uint32_t up_to = scan_warp<typed::Add>(sum), in_front = up_to - sum;
    if (in_front >= wanted || up_to < wanted) return;
    for (std::uint32_t i = 0; i < own; ++i) {
      const std::uint32_t many = counts[threadIdx.x * own + i];
      if (in_front + many >= wanted) {
        chosen = threadIdx.x * own + i;
        before = in_front;
        return;
      }
      in_front += many;
    }
  }
};

/// Places of the first `count` of each line, as `places` of lines.h, and what stands there; either null where nobody reads it.
/// Raises std::runtime_error where there are too many lines, or the launch fails.
template <bool greatest, bool last, int holds, int threads, int each, typename Key, typename T>
void sorted_places(const Run& r, const Lines& p, Index count, const void* input, void* places, void* values = nullptr) {
  using Sorted = SortedPlaces<greatest, last, holds, threads, each, Key, T>;
  const std::uint32_t lines = counted(p.outer * p.inner, "places");
  launch_blocks<Sorted::block, Sorted::resident>(
      r, (static_cast<Index>(lines) + Sorted::together - 1) / Sorted::together,
      Sorted{static_cast<const T*>(input), FirstElements<T>(p, count, input, places, values), Divisor(p.inner), lines,
             counted(p.extent, "places"), static_cast<std::uint32_t>(count)},
      "places");
}

}  // namespace bolt::portable
