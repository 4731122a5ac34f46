// Elements of a line that threads hold as numbers whose order is asked for: one by one, or neighbours of half precision in pairs.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/places/sorted_places.h"

namespace bolt::portable {

/// Takes the place that a counter in shared memory names, its address, for a key that is wanted where `own` is at most `most`; the
/// next one comes behind it.
template <typename Key>
__device__ inline void put_key(std::uint32_t own, std::uint32_t most, const std::uint32_t* counter, Key key) {
  const std::uint32_t address = static_cast<std::uint32_t>(__cvta_generic_to_shared(counter));
  if constexpr (sizeof(Key) == 4)
    asm volatile("{\n\t.reg .pred p;\n\t.reg .u32 to;\n\tsetp.le.u32 p, %0, %1;\n\t@p atom.shared.add.u32 to, [%2], 4;\n\t"
                 "@p st.shared.u32 [to], %3;\n\t}" ::"r"(own), "r"(most), "r"(address), "r"(key)
                 : "memory");
  else
    asm volatile("{\n\t.reg .pred p;\n\t.reg .u32 to;\n\tsetp.le.u32 p, %0, %1;\n\t@p atom.shared.add.u32 to, [%2], 8;\n\t"
                 "@p st.shared.u64 [to], %3;\n\t}" ::"r"(own), "r"(most), "r"(address), "l"(key)
                 : "memory");
}

/// The same where it lies in front of `limit`.
template <typename Key>
__device__ inline void sift_key(std::uint32_t own, std::uint32_t most, const std::uint32_t* counter, std::uint32_t limit, Key key) {
  const std::uint32_t address = static_cast<std::uint32_t>(__cvta_generic_to_shared(counter));
  if constexpr (sizeof(Key) == 4)
    asm volatile("{\n\t.reg .pred p, q;\n\t.reg .u32 to;\n\tsetp.le.u32 p, %0, %1;\n\t@p atom.shared.add.u32 to, [%2], 4;\n\t"
                 "setp.lt.and.u32 q, to, %4, p;\n\t@q st.shared.u32 [to], %3;\n\t}" ::"r"(own), "r"(most), "r"(address), "r"(key),
                 "r"(limit)
                 : "memory");
  else
    asm volatile("{\n\t.reg .pred p, q;\n\t.reg .u32 to;\n\tsetp.le.u32 p, %0, %1;\n\t@p atom.shared.add.u32 to, [%2], 8;\n\t"
                 "setp.lt.and.u32 q, to, %4, p;\n\t@q st.shared.u64 [to], %3;\n\t}" ::"r"(own), "r"(most), "r"(address), "l"(key),
                 "r"(limit)
                 : "memory");
}

template <bool greatest, int holds, int threads, typename T>
struct FallingRanks;

/// Numbers that a thread holds, one for each of its elements.
template <int holds>
struct HeldNumbers {
  std::uint32_t numbers[holds];

  __device__ std::uint32_t number(int i) const { return numbers[i]; }
  __device__ std::uint32_t least() const {
    std::uint32_t found = numbers[0];
#pragma unroll
    for (int i = 1; i < holds; ++i) found = min(found, numbers[i]);
    return found;
  }
  /// Calls with(number) for the least numbers of each `group`, all bits of one where none is an element's.
  template <int group, typename With>
  __device__ void each_least(const With& with) const {
#pragma unroll
    for (int i = 0; i < holds; i += group) {
      std::uint32_t least = numbers[i];
#pragma unroll
      for (int k = i + 1; k < i + group && k < holds; ++k) least = min(least, numbers[k]);
      with(least);
    }
  }
  /// Counts numbers from the `least` one, up to `most`.
  __device__ void relate(std::uint32_t least, std::uint32_t most) {
#pragma unroll
    for (int i = 0; i < holds; ++i) numbers[i] = min(numbers[i] - least, most);
  }
};

/// Lines of [outer, extent, inner], of whose elements each of `threads` threads `holds` some, which stand as threads do. Behind a
/// line's last one there is the greatest number: those stand behind all others that have it.
template <bool greatest, bool last, int holds, int threads, typename T>
struct SingleRanks : HeldNumbers<holds> {
  using Falling = SingleRanks;
  struct Lines {
    const T* from;
    Divisor inner;
  };
  static constexpr int many = holds, registers = holds + 16;
  static constexpr std::uint32_t all_bits = ~0u >> (32 - 8 * sizeof(T));
  using HeldNumbers<holds>::numbers;

  __device__ SingleRanks(const Lines& lines, std::uint32_t line, std::uint32_t extent, std::uint32_t thread)
      : SingleRanks(lines, line, extent, thread, 0, extent) {}
  /// Of `many` elements of a line from one on.
  __device__ SingleRanks(const Lines& lines, std::uint32_t line, std::uint32_t whole, std::uint32_t thread, std::uint32_t begin,
                         std::uint32_t extent) {
    const std::uint32_t apart = lines.inner.by, outside = lines.inner.quotient(line);
    const T* const x = lines.from + (static_cast<Index>(outside) * whole + begin) * apart + (line - outside * apart);
    T read[holds];
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      const std::uint32_t at = min(i * threads + thread, extent - 1);
      read[i] = x[static_cast<Index>((last ? extent - 1 - at : at) * apart)];
    }
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      std::uint32_t number = rank_of<greatest>(read[i]);
      asm volatile("" : "+r"(number));  // else each load stands where it is known to be wanted, and waits for those before it
      numbers[i] = i * threads + thread < extent ? number : all_bits;
    }
  }
  template <typename Key>
  __device__ Key key_of(int i, std::uint32_t thread) const {
    return static_cast<Key>(numbers[i]) << rank_bits<Key> | static_cast<Key>(i * threads + thread);
  }
  template <typename Key>
  __device__ void put(int i, std::uint32_t thread, std::uint32_t most, const std::uint32_t* counters, int shift) const {
    put_key<Key>(numbers[i], most, counters + (numbers[i] >> shift), key_of<Key>(i, thread));
  }
  /// Leaves keys up to a number, which have room in front of `limit`, where `next` says.
  template <typename Key>
  __device__ void sift_all(std::uint32_t thread, std::uint32_t most, const std::uint32_t* next, std::uint32_t limit) const {
#pragma unroll
    for (int i = 0; i < holds; ++i) sift_key<Key>(numbers[i], most, next, limit, key_of<Key>(i, thread));
  }
};

/// Whether instructions compare two neighbours of half precision at once.
template <typename T>
constexpr bool pairs_compare =
#if __CUDA_ARCH__ >= 900
    std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
#else
    std::is_same_v<T, f16>;
#endif

/// Two neighbours so that the first ones of the order asked for are the greatest, zeros of both signs are one, and each NaN is the
/// positive one whose bits are all ones: what a multiply-add makes of them. bf16 has none before A100.
template <bool greatest, typename T>
__device__ inline std::uint32_t falling_pair(std::uint32_t both) {
  static_assert(std::is_same_v<T, f16> || std::is_same_v<T, bf16>);
  std::uint32_t own = 0;
  if constexpr (std::is_same_v<T, f16>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(own) : "r"(both), "r"(greatest ? 0x3c003c00u : 0xbc00bc00u), "r"(0u));
  } else {
#if __CUDA_ARCH__ >= 800
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(own) : "r"(both), "r"(greatest ? 0x3f803f80u : 0xbf80bf80u), "r"(0u));
#else
    const auto values = reinterpret_cast<const T*>(&both);
    own = rank_of<greatest>(values[0]) | rank_of<greatest>(values[1]) << 16;
    own ^= 0x7fff7fffu - (own >> 15 & 0x00010001u) * 0x7fffu;
#endif
  }
  return own;
}
/// Their numbers, and what they were: of the least of all the greatest of negatives.
__device__ inline std::uint32_t turned_pair(std::uint32_t own) { return own ^ (0x7fff7fffu - (own >> 15 & 0x00010001u) * 0x7fffu); }

/// The greater ones of two such pairs; what is no number before all others.
template <typename T>
__device__ inline std::uint32_t greater_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t found = 0;
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, f16>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
#else
  const std::uint32_t first = a ^ (0x7fff7fffu - (a >> 15 & 0x00010001u) * 0x7fffu);
  const std::uint32_t least = __vminu2(first, b ^ (0x7fff7fffu - (b >> 15 & 0x00010001u) * 0x7fffu));
  found = least ^ (0x7fff7fffu - (least >> 15 & 0x00010001u) * 0x7fffu);
#endif
  return found;
}
/// All bits of each of a pair that is not less than that of a bound, or where one of both is no number.
template <typename T>
__device__ inline std::uint32_t at_least(std::uint32_t pair, std::uint32_t bound) {
  std::uint32_t those = 0;
  if constexpr (std::is_same_v<T, f16>) {
    asm("set.geu.u32.f16x2 %0, %1, %2;" : "=r"(those) : "r"(pair), "r"(bound));
  } else {
#if __CUDA_ARCH__ >= 900
    asm("set.geu.u32.bf16x2 %0, %1, %2;" : "=r"(those) : "r"(pair), "r"(bound));
#endif
  }
  return those;
}

/// The same of lines of neighbours in half precision, which are read in whole words wherever they begin: a thread has a word
/// of each turn. Elements of a word that are of other lines have the greatest number, which no element has.
template <bool greatest, int holds, int threads, typename T>
struct PairedRanks {
  using Falling = FallingRanks<greatest, holds, threads, T>;
  using Lines = Granules<T>;
  static constexpr int wide = Lines::lanes, turns = holds / wide;
  static constexpr int many = holds, registers = holds / 2;
  static constexpr std::uint32_t all_bits = 0xffff;
  static_assert(wide == 8 && holds % wide == 0, "numbers of two elements are in one register");
  std::uint32_t pairs[holds / 2];
  std::uint32_t skew;  ///< elements of the first word that are not the line's

  __device__ PairedRanks(const Lines& in, std::uint32_t line, std::uint32_t extent, std::uint32_t thread)
      : PairedRanks(in, line, extent, thread, 0, extent) {}
  /// Of `extent` elements of a line of `whole` from one on.
  __device__ PairedRanks(const Lines& in, std::uint32_t line, std::uint32_t whole, std::uint32_t thread, std::uint32_t begin,
                         std::uint32_t extent) {
    load(in, line, whole, thread, begin, extent);
    finish(extent, thread);
  }

 protected:
  __device__ PairedRanks() {}
  /// Leaves pairs as `falling_pair` does. Those of other lines are anything.
  __device__ void load(const Lines& in, std::uint32_t line, std::uint32_t whole, std::uint32_t thread, std::uint32_t begin,
                       std::uint32_t extent) {
    const std::uint32_t first = in.skew + line * whole + begin;
    skew = first % wide;
    uint4 read[turns];
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      read[turn] = uint4{0, 0, 0, 0};
      if ((turn * threads + thread) * wide < skew + extent) read[turn] = in[first / wide + turn * threads + thread];
    }
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      std::uint32_t* const own = pairs + turn * (wide / 2);
      own[0] = falling_pair<greatest, T>(read[turn].x), own[1] = falling_pair<greatest, T>(read[turn].y);
      own[2] = falling_pair<greatest, T>(read[turn].z), own[3] = falling_pair<greatest, T>(read[turn].w);
    }
  }
  __device__ void finish(std::uint32_t extent, std::uint32_t thread) {
#pragma unroll
    for (int i = 0; i < holds / 2; ++i) pairs[i] = turned_pair(pairs[i]);
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      std::uint32_t* const own = pairs + turn * (wide / 2);
      const std::uint32_t at = (turn * threads + thread) * wide;
      if (at >= skew && at + wide <= skew + extent) continue;
#pragma unroll
      for (int i = 0; i < wide; ++i)
        if (at + i - skew >= extent) own[i / 2] |= i % 2 == 0 ? 0xffffu : 0xffff0000u;
    }
  }
 public:
  __device__ std::uint32_t number(int i) const { return i % 2 == 0 ? pairs[i / 2] & 0xffff : pairs[i / 2] >> 16; }
  __device__ std::uint32_t least() const {
    std::uint32_t found = pairs[0];
#pragma unroll
    for (int i = 1; i < holds / 2; ++i) found = __vminu2(found, pairs[i]);
    return min(found & 0xffff, found >> 16);
  }
  template <int group, typename With>
  __device__ void each_least(const With& with) const {
#pragma unroll
    for (int i = 0; i < holds / 2; i += group) {
      std::uint32_t least = pairs[i];
#pragma unroll
      for (int k = i + 1; k < i + group && k < holds / 2; ++k) least = __vminu2(least, pairs[k]);
      with(least & 0xffff);
      with(least >> 16);
    }
  }
  /// Counts numbers from the `least` one, up to `most`.
  __device__ void relate(std::uint32_t least, std::uint32_t most) {
#pragma unroll
    for (int i = 0; i < holds / 2; ++i) pairs[i] = __vminu2(pairs[i] - least * 0x10001u, most * 0x10001u);
  }
  template <typename Key>
  __device__ Key key_of(int i, std::uint32_t thread) const {
    return key(i, thread);
  }
  template <typename Key>
  __device__ void put(int i, std::uint32_t thread, std::uint32_t most, const std::uint32_t* counters, int shift) const {
    put_key<Key>(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2], most << 16 | 0xffff, counters + (number(i) >> shift),
                 key(i, thread));
  }
  template <typename Key>
  __device__ void sift_all(std::uint32_t thread, std::uint32_t most, const std::uint32_t* next, std::uint32_t limit) const {
#pragma unroll
    for (int i = 0; i < holds; ++i)
      sift_key<Key>(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2], most << 16 | 0xffff, next, limit, key(i, thread));
  }
  /// Its number, and behind it where it stands in the line.
  __device__ std::uint32_t key(int i, std::uint32_t thread) const {
    const std::uint32_t place = thread * wide - skew + (i / wide * threads * wide + i % wide);
    return __byte_perm(place, pairs[i / 2], i % 2 == 0 ? 0x5410 : 0x7610);
  }
  /// Adds one to `many` where its number is at most that of a key with the greatest of places. A compiler has two instructions for
  /// what is one if a predicate says so.
  __device__ void count(int i, std::uint32_t most, std::uint32_t& many) const {
    const std::uint32_t own = i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2];
    asm("{\n\t.reg .pred p;\n\tsetp.le.u32 p, %1, %2;\n\t@p add.u32 %0, %0, 1;\n\t}" : "+r"(many) : "r"(own), "r"(most));
  }
  /// Leaves its key at the address `to` of shared memory where it is at most `most`, and goes on to the next.
  __device__ void leave(int i, std::uint32_t thread, std::uint32_t most, std::uint32_t& to) const {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.le.u32 p, %1, %2;\n\t@p st.shared.u32 [%0], %1;\n\t@p add.u32 %0, %0, 4;\n\t}"
                 : "+r"(to)
                 : "r"(key(i, thread)), "r"(most)
                 : "memory");
  }
};

/// The same before they are numbers, which two at a time are compared with a bound: as many as a warp has for a line. Those
/// of other lines are minus infinity.
template <bool greatest, int holds, typename T>
struct FallingPairs : PairedRanks<greatest, holds, 32, T> {
  using Base = PairedRanks<greatest, holds, 32, T>;
  static constexpr std::uint32_t worst = std::is_same_v<T, f16> ? 0xfc00u : 0xff80u;

  __device__ FallingPairs(const typename Base::Lines& in, std::uint32_t line, std::uint32_t extent, std::uint32_t lane) {
    this->load(in, line, extent, lane, 0, extent);
#pragma unroll
    for (int turn = 0; turn < Base::turns; ++turn) {
      std::uint32_t* const own = this->pairs + turn * (Base::wide / 2);
      const std::uint32_t at = (turn * 32 + lane) * Base::wide;
      if (at >= this->skew && at + Base::wide <= this->skew + extent) continue;
#pragma unroll
      for (int i = 0; i < Base::wide; ++i)
        if (at + i - this->skew >= extent) own[i / 2] = __byte_perm(own[i / 2], worst, i % 2 == 0 ? 0x3254 : 0x5410);
    }
  }
  /// Makes numbers of them.
  __device__ void finished(std::uint32_t extent, std::uint32_t lane) { this->finish(extent, lane); }
  /// The number of one.
  __device__ std::uint32_t sample(int i) const { return turned_pair(this->number(i)) & 0xffff; }

  /// How many of each turn have a number of at most `most`, which is less than that of minus infinity; two counts in each of
  /// `many`.
  __device__ void count_turns(std::uint32_t most, std::uint32_t (&many)[Base::turns]) const {
    const std::uint32_t bound = (turned_pair(most) & 0xffff) * 0x10001u;
#pragma unroll
    for (int turn = 0; turn < Base::turns; ++turn) {
      many[turn] = 0;
#pragma unroll
      for (int i = turn * Base::wide / 2; i < (turn + 1) * Base::wide / 2; ++i) {
        std::uint32_t those = 0;
        if constexpr (std::is_same_v<T, f16>) {
          asm("set.geu.f16x2.f16x2 %0, %1, %2;" : "=r"(those) : "r"(this->pairs[i]), "r"(bound));
          asm("add.rn.f16x2 %0, %0, %1;" : "+r"(many[turn]) : "r"(those));
        } else {
#if __CUDA_ARCH__ >= 900
          asm("set.geu.bf16x2.bf16x2 %0, %1, %2;" : "=r"(those) : "r"(this->pairs[i]), "r"(bound));
          asm("add.rn.bf16x2 %0, %0, %1;" : "+r"(many[turn]) : "r"(those));
#endif
        }
      }
    }
  }
  /// Both of two counts together.
  __device__ static std::uint32_t both(std::uint32_t counts) {
    if constexpr (std::is_same_v<T, f16>) {
      const __half2 those = *reinterpret_cast<const __half2*>(&counts);
      return static_cast<std::uint32_t>(__half2float(__hadd(__low2half(those), __high2half(those))));
    } else {
      return static_cast<std::uint32_t>(float_of(counts << 16) + float_of(counts & 0xffff0000u));
    }
  }
  __device__ static std::uint32_t joined(std::uint32_t a, std::uint32_t b) {
    if constexpr (std::is_same_v<T, f16>) {
      asm("add.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    } else {
#if __CUDA_ARCH__ >= 900
      asm("add.rn.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
#endif
    }
    return a;
  }
};

/// Keys of 64 bits that other blocks have left, whose places are those of a line: lines of `extent` neighbours.
template <int holds, int threads>
struct KeptRanks : HeldNumbers<holds> {
  using Lines = const std::uint64_t*;
  static constexpr int many = holds, registers = 2 * holds + 16;
  static constexpr std::uint32_t all_bits = ~0u;
  using HeldNumbers<holds>::numbers;
  std::uint32_t places[holds];

  __device__ KeptRanks(const Lines& lines, std::uint32_t line, std::uint32_t extent, std::uint32_t thread) {
    const std::uint64_t* const from = lines + static_cast<Index>(line) * extent + thread;
#pragma unroll
    for (int i = 0; i < holds; ++i) {
      const std::uint64_t key = i * threads + thread < extent ? from[i * threads] : ~std::uint64_t{0};
      numbers[i] = static_cast<std::uint32_t>(key >> 32), places[i] = static_cast<std::uint32_t>(key);
    }
  }
  template <typename Key>
  __device__ Key key_of(int i, std::uint32_t) const {
    return static_cast<Key>(numbers[i]) << 32 | places[i];
  }
  template <typename Key>
  __device__ void put(int i, std::uint32_t thread, std::uint32_t most, const std::uint32_t* counters, int shift) const {
    put_key<Key>(numbers[i], most, counters + (numbers[i] >> shift), key_of<Key>(i, thread));
  }
};

}  // namespace bolt::portable
