// Neighbouring elements in registers as they lie in memory.
#pragma once

#include <type_traits>

#include "bolt_portable/cuda/halves.h"

namespace bolt::portable {

/// `lanes` elements as they lie in memory, in words: elements by themselves would take a register each.
template <typename T, int lanes>
struct alignas(sizeof(T) * lanes < 16 ? sizeof(T) * lanes : 16) Cells {
  static constexpr bool single = sizeof(T) * lanes < 4, halves = sizeof(T) == 2 && !single;
  using Word = std::conditional_t<single, std::uint16_t, std::uint32_t>;
  static constexpr int words = static_cast<int>(sizeof(T) * lanes / sizeof(Word));
  Word at[words];

  __device__ void values(float (&to)[lanes]) const {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if constexpr (halves) {
        const float2 both = unpaired<T>(at[i]);
        to[2 * i] = both.x, to[2 * i + 1] = both.y;
      } else if constexpr (single) {
        T one;
        one.bits = at[i];
        to[i] = load(&one);
      } else {
        to[i] = float_of(at[i]);
      }
    }
  }

  /// The elements next to `from`.
  __device__ static Cells of(const float (&from)[lanes]) {
    Cells cells;
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if constexpr (halves) {
        cells.at[i] = paired<T>(from[2 * i], from[2 * i + 1]);
      } else {
        T one;
        store(&one, from[i]);
        memcpy(&cells.at[i], &one, sizeof one);
      }
    }
    return cells;
  }
};

}  // namespace bolt::portable
