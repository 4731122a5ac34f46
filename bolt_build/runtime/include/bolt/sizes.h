// Sums of bytes that say so where they are more than an address can count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bolt/failure.h"

namespace bolt {

/// What a size may be at most: what pointers and their differences can count.
constexpr std::size_t kMostBytes = PTRDIFF_MAX;

/// The sum of two sizes. Throws Failure (BOLT_OUT_OF_MEMORY) where it is beyond kMostBytes.
inline std::size_t added(std::size_t a, std::size_t b) {
  if (a > kMostBytes || b > kMostBytes - a)
    throw Failure(BOLT_OUT_OF_MEMORY, "out of memory: more than 63 bits can count is needed");
  return a + b;
}

/// `bytes` rounded up to a multiple of 64. Throws Failure as added() does.
inline std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  return added(bytes, kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace bolt
