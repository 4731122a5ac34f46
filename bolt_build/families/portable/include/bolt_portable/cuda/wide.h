// Loads and stores of as many elements as a thread has at once.
#pragma once

#include "bolt_portable/cuda/halves.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/cuda/put_lanes.h"

namespace bolt::portable {

/// As load_lanes and store_lanes, two halves by one instruction.
template <typename T>
__device__ inline void load_wide(const T* from, float* values) {
  if constexpr (sizeof(T) == 2) {
    const uint4 read = *reinterpret_cast<const uint4*>(from);
    const std::uint32_t words[4] = {read.x, read.y, read.z, read.w};
#pragma unroll
    for (int i = 0; i < wide / 2; ++i) {
      const float2 both = unpaired<T>(words[i]);
      values[2 * i] = both.x;
      values[2 * i + 1] = both.y;
    }
  } else {
    load_lanes<wide>(from, values);
  }
}
template <typename T>
__device__ inline void store_wide(T* to, const float* values) {
  if constexpr (sizeof(T) == 2) {
    std::uint32_t words[wide / 2];
#pragma unroll
    for (int i = 0; i < wide / 2; ++i) words[i] = paired<T>(values[2 * i], values[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    store_lanes<wide>(to, values);
  }
}

/// As store_wide, in accesses that the compiler does not take apart.
template <typename T>
__device__ inline void put_wide(T* to, const float (&values)[wide]) {
  Lanes<T, wide> made;
  store_wide(made.at, values);
  if constexpr (sizeof(made) == 16) {
    put_word(to, *reinterpret_cast<const uint4*>(&made));
  } else {
    static_assert(sizeof(made) == 32);
    put_word(to, reinterpret_cast<const uint4*>(&made)[0]);
    put_word(to + wide / 2, reinterpret_cast<const uint4*>(&made)[1]);
  }
}

}  // namespace bolt::portable
