// Elements of two bytes that tensor cores multiply, f16 and bf16: how kernels make two neighbours of floats, and floats of
// them.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "bolt_portable/element.h"
#include "bolt_portable/fast_math.h"

namespace bolt::portable {

/// Two numbers as neighbours, rounded to nearest, the first at the lower address.
template <typename Element>
__device__ inline std::uint32_t paired(float low, float high);
template <>
__device__ inline std::uint32_t paired<f16>(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}
template <>
__device__ inline std::uint32_t paired<bf16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return bf16(low).bits | static_cast<std::uint32_t>(bf16(high).bits) << 16;
#endif
}

/// Both numbers.
template <typename Element>
__device__ inline float2 unpaired(std::uint32_t both);
template <>
__device__ inline float2 unpaired<f16>(std::uint32_t both) {
  return __half22float2(*reinterpret_cast<const __half2*>(&both));
}
template <>
__device__ inline float2 unpaired<bf16>(std::uint32_t both) {
  return make_float2(float_of(both << 16), float_of(both & 0xffff0000u));
}

/// Minus infinity, twice.
template <typename Element>
inline constexpr std::uint32_t lowest_pair = 0xfc00fc00u;
template <>
inline constexpr std::uint32_t lowest_pair<bf16> = 0xff80ff80u;

/// The larger of both numbers, twice; NaN where either is.
template <typename Element>
__device__ inline std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t y;
  if constexpr (std::is_same_v<Element, f16>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
#else
  const float2 first = unpaired<Element>(a), second = unpaired<Element>(b);
  return paired<Element>(larger(first.x, second.x), larger(first.y, second.y));
#endif
}

}  // namespace bolt::portable
