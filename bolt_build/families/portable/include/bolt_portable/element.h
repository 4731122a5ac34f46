// Element types as they are stored; all arithmetic is float.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define BOLT_HD __host__ __device__
// Of lambdas that `for_each_item` runs. Not for the host too: nvcc copies such ones through pointers that each source file
// has by itself, while the linker keeps one file's copy of what uses them. A launch from another file calls null.
#define BOLT_BODY __device__
#else
#define BOLT_HD
#define BOLT_BODY
#endif

// In front of a loop over neighbours, for the host's vector units.
#if defined(_OPENMP)
#define BOLT_SIMD _Pragma("omp simd")
#else
#define BOLT_SIMD
#endif

namespace bolt::portable {

using Index = std::int64_t;

BOLT_HD inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

BOLT_HD inline float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// bfloat16: the upper half of a float, rounded to nearest even.
struct bf16 {
  std::uint16_t bits;
  bf16() = default;
  BOLT_HD explicit bf16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const std::uint32_t b = bits_of(value);
    const bool nan = (b & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (b >> 16) | 0x40u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
  }
  BOLT_HD explicit operator float() const { return float_of(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE half precision, rounded to nearest even.
struct f16 {
  std::uint16_t bits;
  f16() = default;
  BOLT_HD explicit f16(float value) {
#if defined(__CUDA_ARCH__)
    bits = __half_as_ushort(__float2half_rn(value));
#else
    const std::uint32_t b = bits_of(value);
    const std::uint32_t sign = (b >> 16) & 0x8000u;
    const std::uint32_t magnitude = b & 0x7fffffffu;
    std::uint32_t half;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
      half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns the mantissa and rounds it
      half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | half);
#endif
  }
  BOLT_HD explicit operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude < 0x400u) {  // magnitude * 2^-24, exact
      return float_of(sign | bits_of(static_cast<float>(magnitude) * 5.9604644775390625e-8f));
    }
    return float_of(sign | ((magnitude << 13) + 0x38000000u));
#endif
  }
};

template <typename T>
BOLT_HD inline float load(const T* at) {
  return static_cast<float>(*at);
}

template <typename T>
BOLT_HD inline void store(T* at, float value) {
  *at = static_cast<T>(value);
}

}  // namespace bolt::portable
