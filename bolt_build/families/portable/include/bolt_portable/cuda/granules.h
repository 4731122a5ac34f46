// Tensors as words of 16 bytes, whichever element a row begins with: threads read whole words wherever their elements are.
#pragma once

#include <cstring>

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// A tensor from the word on in which its first element lies. Elements are counted from the beginning of that word, so that
/// word `n` holds elements from `n * lanes` on; the tensor's own begin with element `skew`.
template <typename T>
struct Granules {
  static constexpr std::uint32_t lanes = 16 / sizeof(T);

  const T* base;
  std::uint32_t skew, elements;
  std::uint32_t first, whole;  ///< words that are all the tensor's: so many from the first one on

  Granules(const void* from, Index many, const char* what) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    skew = static_cast<std::uint32_t>(address % 16 / sizeof(T));
    base = static_cast<const T*>(from) - skew;
    elements = counted(many + lanes, what) - lanes;
    first = skew > 0 ? 1 : 0;
    const std::uint32_t end = (skew + elements) / lanes;
    whole = end > first ? end - first : 0;
  }

  /// Word `at`. Of one that is not all the tensor's only its elements are read.
  __device__ uint4 operator[](std::uint32_t at) const {
    const T* const from = base + static_cast<Index>(at) * lanes;
    if (at - first < whole) return *reinterpret_cast<const uint4*>(from);
    Lanes<T, lanes> read;
#pragma unroll
    for (std::uint32_t i = 0; i < lanes; ++i) {
      memset(&read.at[i], 0, sizeof(T));
      if (at * lanes + i - skew < elements) read.at[i] = from[i];
    }
    uint4 word;
    memcpy(&word, &read, sizeof word);
    return word;
  }
};

/// The elements of a word.
template <typename T>
__device__ inline Lanes<T, Granules<T>::lanes> elements_of(const uint4& word) {
  Lanes<T, Granules<T>::lanes> found;
  memcpy(&found, &word, sizeof found);
  return found;
}

/// As many elements as a word has, from element `at` of two words that follow each other.
template <typename T>
__device__ inline uint4 straddling(const uint4& low, const uint4& high, std::uint32_t at) {
  const std::uint32_t bytes = at * sizeof(T);
  std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = bytes & 8 ? words[i + 2] : words[i];
  if constexpr (sizeof(T) < 8) {
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = bytes & 4 ? words[i + 1] : words[i];
  }
  if constexpr (sizeof(T) < 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], bytes % 4 * 8);
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

}  // namespace bolt::portable
