// Sixteen-bit floats.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

namespace emulator {

inline float float_of_half(std::uint16_t bits) { return _cvtsh_ss(bits); }
inline std::uint16_t half_of_float(float value) {
  return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline float float_of_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
inline std::uint16_t bfloat_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace emulator
