// Stores of whole accesses, where the compiler would take them apart.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// One instruction each, in the memory of the whole GPU.
__device__ inline void put_word(void* to, const uint4& word) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(word.x), "r"(word.y),
               "r"(word.z), "r"(word.w)
               : "memory");
}
__device__ inline void put_word(void* to, const uint2& word) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(word.x), "r"(word.y) : "memory");
}
__device__ inline void put_word(void* to, std::uint32_t word) { *static_cast<std::uint32_t*>(to) = word; }

/// Stores neighbours in accesses as wide as they are aligned. Of blocks that a thread turns the compiler would store many an
/// element by itself: it takes what is stored apart, and puts only some of it together again.
template <int lanes, typename T>
__device__ inline void put_lanes(T* to, const Lanes<T, lanes>& values) {
  constexpr int bytes = alignof(Lanes<T, lanes>);
  using Word = std::conditional_t<bytes == 16, uint4, std::conditional_t<bytes == 8, uint2, std::uint32_t>>;
  constexpr int words = sizeof(Lanes<T, lanes>) / sizeof(Word);
  Word found[words];
  memcpy(found, &values, sizeof found);
#pragma unroll
  for (int i = 0; i < words; ++i) put_word(reinterpret_cast<Word*>(to) + i, found[i]);
}

}  // namespace bolt::portable
