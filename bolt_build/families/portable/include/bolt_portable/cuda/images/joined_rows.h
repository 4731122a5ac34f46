// Neighbours of rows, as a thread that joins rows reads them: from the tensor, from shared memory, or element by element.
#pragma once

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/staged_run.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// What so many neighbours are loaded in at once.
template <typename In, int lanes>
using JoinedWord = std::conditional_t<lanes * sizeof(In) == 16, uint4,
                                      std::conditional_t<lanes * sizeof(In) == 8, uint2, std::uint32_t>>;

template <typename In, int lanes>
__device__ inline void joined_values(const void* from, float (&to)[lanes]) {
  const JoinedWord<In, lanes> word = *static_cast<const JoinedWord<In, lanes>*>(from);
  Cells<In, lanes> cells;
  memcpy(&cells, &word, sizeof word);
  cells.values(to);
}

/// Neighbours of rows in the tensor, from those of the first row on. Of odd rows two are of two words, which are shifted together.
/// No word is farther than the `last` one of the tensor.
template <typename In, typename Tile>
struct PlaneRows {
  static constexpr int lanes = Tile::lanes;
  const In* at;
  const std::uint32_t* last;

  __device__ PlaneRows from(int row) const { return {at + row * Tile::row, last}; }
  /// Those of a plane behind it.
  __device__ PlaneRows deeper(int planes) const { return {at + Index{planes} * Tile::plane, last}; }
  /// Those of the row `ahead` of it.
  __device__ void load(int ahead, float (&to)[lanes]) const {
    const In* const here = at + ahead * Tile::row;
    if constexpr (Tile::shifted) {
      const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(here);
      const std::uint32_t* const words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
      // Behind the last whole word of a tensor may be one half.
      const std::uint32_t low = words <= last ? *words : *reinterpret_cast<const std::uint16_t*>(words);
      const float2 both = unpaired<In>(__byte_perm(low, words < last ? words[1] : 0u, address & 2 ? 0x5432 : 0x3210));
      to[0] = both.x, to[1] = both.y;
    } else {
      joined_values<In>(here, to);
    }
  }
};

/// The same of rows in shared memory, whose first row begins with the element at the address `at`. A row of an odd number of halves
/// begins in the middle of a word if the one before did not: two are of two words, which are shifted together.
template <typename In, typename Tile>
struct HeldRows {
  static constexpr int lanes = Tile::lanes, pitch = Tile::row * static_cast<int>(sizeof(In));
  static constexpr bool shifted = Tile::shifted;
  static_assert(!shifted || (lanes == 2 && sizeof(In) == 2));
  std::uint32_t at;

  struct Begun {
    std::uint32_t even, odd, of_even, of_odd;

    __device__ void load(int ahead, float (&to)[lanes]) const {
      if constexpr (shifted) {
        const std::uint32_t* const words = word(ahead % 2 == 0 ? even + ahead * pitch : odd + (ahead - 1) * pitch);
        const float2 both = unpaired<In>(__byte_perm(words[0], words[1], ahead % 2 == 0 ? of_even : of_odd));
        to[0] = both.x, to[1] = both.y;
      } else {
        joined_values<In>(word(even + ahead * pitch), to);
      }
    }
  };

  __device__ Begun from(int row) const {
    const std::uint32_t begin = at + row * pitch, next = begin + pitch;
    if constexpr (!shifted) return {begin, 0, 0, 0};
    return {begin & ~3u, next & ~3u, begin & 2 ? 0x5432u : 0x3210u, next & 2 ? 0x5432u : 0x3210u};
  }

 private:
  __device__ static const std::uint32_t* word(std::uint32_t address) {
    return reinterpret_cast<const std::uint32_t*>(__cvta_shared_to_generic(std::size_t{address}));
  }
};

/// The same of rows in the tensor that no access divides: element by element, those of the group from `first` on.
template <typename In, typename Tile>
struct LooseRows {
  static constexpr int lanes = Tile::lanes;
  const In* at;
  int first;

  __device__ LooseRows from(int row) const { return {at + row * Tile::row, first}; }
  __device__ void load(int ahead, float (&to)[lanes]) const {
#pragma unroll
    for (int i = 0; i < lanes; ++i) to[i] = portable::load(at + ahead * Tile::row + min(first + i, Tile::row - 1));
  }
};

}  // namespace bolt::portable
