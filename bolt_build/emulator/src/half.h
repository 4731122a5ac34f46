// Sixteen-bit floats.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

#include "rounding.h"

namespace emulator {

inline float float_of_half(std::uint16_t bits) { return _cvtsh_ss(bits); }
inline std::uint16_t half_of_float(float value) {
  if (value != value) return 0x7fff;
  return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline float float_of_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
inline std::uint16_t bfloat_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// f16, as templates take it.
struct Half {
  static constexpr float least_normal = 0x1p-14f;
  static constexpr std::uint16_t one = 0x3c00;
  static float widen(std::uint16_t bits) { return float_of_half(bits); }
  static std::uint16_t narrow(float value, Round how = Round::nearest) {
    switch (how) {
      case Round::zero: return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
      case Round::down: return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
      case Round::up: return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
      default: return half_of_float(value);
    }
  }
};

/// bf16: an fp32 without its lower half, which rounding away from zero adds one to.
struct Bfloat {
  static constexpr float least_normal = std::numeric_limits<float>::min();
  static constexpr std::uint16_t one = 0x3f80;
  static float widen(std::uint16_t bits) { return float_of_bfloat(bits); }
  static std::uint16_t narrow(float value, Round how = Round::nearest) {
    if (how == Round::nearest || value != value) return bfloat_of_float(value);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool away = how == (std::signbit(value) ? Round::down : Round::up) && (bits & 0xffff) != 0;
    return static_cast<std::uint16_t>((bits >> 16) + (away ? 1 : 0));
  }
};

}  // namespace emulator
