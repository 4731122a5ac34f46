// What kernels share in which each warp computes whole rows of products of few channels: runs of columns, and `mma.sync` on
// words as lanes load them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "bolt_portable/element.h"

namespace bolt::cutlass_kernels {

/// `body(begin, size)` of runs of 32 columns, then of 16 and of 8, with both as constants. Of a run, lane t of four has
/// columns t * size / 4 to (t + 1) * size / 4, one load of 16, 8 or 4 bytes. Depths and columns of products may be in any
/// order, so long as both factors have the same.
template <int columns, int begin = 0, typename Body>
__device__ __forceinline__ void in_runs(const Body& body) {
  if constexpr (begin < columns) {
    constexpr int left = columns - begin, size = left >= 32 ? 32 : left >= 16 ? 16 : 8;
    body(std::integral_constant<int, begin>{}, std::integral_constant<int, size>{});
    in_runs<columns, begin + size>(body);
  }
}

/// As many words in one access.
template <int words>
__device__ __forceinline__ void copy_words(std::uint32_t* to, const std::uint32_t* from) {
  using Access = std::conditional_t<words == 4, uint4, std::conditional_t<words == 2, uint2, std::uint32_t>>;
  static_assert(sizeof(Access) == words * 4);
  const Access loaded = *reinterpret_cast<const Access*>(from);
  __builtin_memcpy(to, &loaded, sizeof loaded);
}
template <int words>
__device__ __forceinline__ void store_words(std::uint32_t* to, const std::uint32_t* from) {
  using Access = std::conditional_t<words == 4, uint4, std::conditional_t<words == 2, uint2, std::uint32_t>>;
  Access stored;
  __builtin_memcpy(&stored, from, sizeof stored);
  *reinterpret_cast<Access*>(to) = stored;
}

/// As many words of shared memory that a kernel writes once. The compiler would keep what it reads again in each round in
/// registers, of which there are too few: it may not.
template <int words>
__device__ __forceinline__ void read_words(std::uint32_t (&to)[words], const std::uint32_t* from) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  if constexpr (words == 4)
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
  else if constexpr (words == 2)
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at));
  else
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(at));
}

/// sums[16, 8] = left[16, size] * right[size, 8] + begin, of `size` 16 or 8. `begin` may be other registers than the sums,
/// which saves copies.
template <int size, typename Element>
__device__ __forceinline__ void multiply_from(float (&sums)[4], const std::uint32_t* left, const std::uint32_t* right,
                                              const float* begin) {
#define BOLT_MULTIPLY_16(type)                                                                                          \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                   \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                               \
               : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])                                             \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]), "f"(begin[0]), \
                 "f"(begin[1]), "f"(begin[2]), "f"(begin[3]))
#define BOLT_MULTIPLY_8(type)                                                                                           \
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." type "." type                                                    \
               ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"                                              \
               : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])                                             \
               : "r"(left[0]), "r"(left[1]), "r"(right[0]), "f"(begin[0]), "f"(begin[1]), "f"(begin[2]), "f"(begin[3]))
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    if constexpr (size == 16) BOLT_MULTIPLY_16("bf16");
    if constexpr (size == 8) BOLT_MULTIPLY_8("bf16");
  } else {
    if constexpr (size == 16) BOLT_MULTIPLY_16("f16");
    if constexpr (size == 8) BOLT_MULTIPLY_8("f16");
  }
#undef BOLT_MULTIPLY_16
#undef BOLT_MULTIPLY_8
}

/// Of eight rows of a fragment of weights the one that belongs to column `own` of a run of so many, in the `fragment`-th of its
/// fragments: lane t's two sums of each are neighbours in the run.
__device__ __forceinline__ int row_of(int fragment, int own, int size) {
  return own / 2 * (size / 4) + fragment * 2 + own % 2;
}

/// A warp: `rows` rows of so many columns, from the `first` of `all` on, are asked for from memory, a sector of each 64 bytes,
/// while the warp still computes. They lie `row_words` words apart.
template <int columns, int rows>
__device__ __forceinline__ void ask_for_rows(const std::uint32_t* from, int row_words, std::int64_t first, int all, int lane) {
  static_assert(rows <= 32, "a lane asks for a row");
  const std::int64_t row = first + lane;
  if (lane >= rows || row >= all) return;
#pragma unroll
  for (int at = 0; at < columns / 2; at += 16) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + row * row_words + at));
}

}  // namespace bolt::cutlass_kernels
