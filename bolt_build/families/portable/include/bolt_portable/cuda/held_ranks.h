// Elements of a line that threads hold as numbers whose order is asked for: one by one, or neighbours of half precision in pairs.
#pragma once

#include "bolt_portable/cuda/granules.h"
#include "bolt_portable/cuda/sorted_places.h"

namespace bolt::portable {

/// Lines of [outer, extent, inner], of whose elements each of `threads` threads `holds` some, which stand as threads do. Behind a
/// line's last one there is the greatest number: those stand behind all others that have it.
template <bool greatest, bool last, int holds, int threads, typename T>
struct SingleRanks {
  struct Lines {
    const T* from;
    Divisor inner;
  };
  std::uint32_t numbers[holds];

  __device__ SingleRanks(const Lines& lines, std::uint32_t line, std::uint32_t extent, std::uint32_t thread) {
    const std::uint32_t apart = lines.inner.by, outside = lines.inner.quotient(line);
    const T* const x = lines.from + static_cast<Index>(outside) * extent * apart + (line - outside * apart);
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
      numbers[i] = i * threads + thread < extent ? number : ~0u >> (32 - 8 * sizeof(T));
    }
  }
  __device__ std::uint32_t number(int i) const { return numbers[i]; }
};

/// The numbers of two neighbours. One multiply-add makes zeros of both signs one, and a positive number of every NaN; of the least
/// of all the greatest of their negatives.
template <bool greatest, typename T>
__device__ inline std::uint32_t paired_ranks(std::uint32_t both) {
  static_assert(std::is_same_v<T, f16> || std::is_same_v<T, bf16>);
#if __CUDA_ARCH__ < 800
  if constexpr (std::is_same_v<T, bf16>) {
    const auto values = reinterpret_cast<const T*>(&both);
    return rank_of<greatest>(values[0]) | rank_of<greatest>(values[1]) << 16;
  }
#endif
  std::uint32_t own = 0;
  if constexpr (std::is_same_v<T, f16>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(own) : "r"(both), "r"(greatest ? 0x3c003c00u : 0xbc00bc00u), "r"(0u));
  } else {
#if __CUDA_ARCH__ >= 800
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(own) : "r"(both), "r"(greatest ? 0x3f803f80u : 0xbf80bf80u), "r"(0u));
#endif
  }
  return own ^ (0x7fff7fffu - (own >> 15 & 0x00010001u) * 0x7fffu);
}

/// The same of lines of neighbours in half precision, which are read in whole words wherever they begin: a thread has a word of each
/// turn. Elements of a word that are of other lines have the greatest number, which no element has.
template <bool greatest, int holds, int threads, typename T>
struct PairedRanks {
  using Lines = Granules<T>;
  static constexpr int wide = Lines::lanes, turns = holds / wide;
  static_assert(wide == 8 && holds % wide == 0, "numbers of two elements are in one register");
  std::uint32_t pairs[holds / 2];
  std::uint32_t skew;  ///< elements of the first word that are not the line's

  __device__ PairedRanks(const Lines& in, std::uint32_t line, std::uint32_t extent, std::uint32_t thread) {
    const std::uint32_t first = in.skew + line * extent;
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
      own[0] = paired_ranks<greatest, T>(read[turn].x), own[1] = paired_ranks<greatest, T>(read[turn].y);
      own[2] = paired_ranks<greatest, T>(read[turn].z), own[3] = paired_ranks<greatest, T>(read[turn].w);
      const std::uint32_t at = (turn * threads + thread) * wide;
      if (at >= skew && at + wide <= skew + extent) continue;
#pragma unroll
      for (int i = 0; i < wide; ++i)
        if (at + i - skew >= extent) own[i / 2] |= i % 2 == 0 ? 0xffffu : 0xffff0000u;
    }
  }
  __device__ std::uint32_t number(int i) const { return i % 2 == 0 ? pairs[i / 2] & 0xffff : pairs[i / 2] >> 16; }
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

}  // namespace bolt::portable
