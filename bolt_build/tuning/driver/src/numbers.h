// Elements of tensors as numbers, on the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "bolt_tuning/candidates.h"

namespace bolt_tuner {

template <typename T>
double number_at(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

inline double half_at(const unsigned char* bytes) {
  const unsigned bits = bytes[0] | static_cast<unsigned>(bytes[1]) << 8;
  const unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * fraction * 0x1p-24;
  return sign * (1024 + fraction) * 0x1p-25 * static_cast<double>(1u << exponent);
}

/// The element that stands at `bytes`.
inline double number_of(const unsigned char* bytes, bolt_tuning_dtype dtype) {
  switch (dtype) {
    case BOLT_TUNING_F32:
      return number_at<float>(bytes);
    case BOLT_TUNING_F16:
      return half_at(bytes);
    case BOLT_TUNING_BF16: {
      const unsigned char wide[4] = {0, 0, bytes[0], bytes[1]};
      return number_at<float>(wide);
    }
    case BOLT_TUNING_F64:
      return number_at<double>(bytes);
    case BOLT_TUNING_I64:
      return number_at<std::int64_t>(bytes);
    case BOLT_TUNING_I32:
      return number_at<std::int32_t>(bytes);
    case BOLT_TUNING_I8:
      return number_at<std::int8_t>(bytes);
    case BOLT_TUNING_U8:
    case BOLT_TUNING_BOOL:
      return bytes[0];
    case BOLT_TUNING_I16:
      return number_at<std::int16_t>(bytes);
    case BOLT_TUNING_U16:
      return number_at<std::uint16_t>(bytes);
    case BOLT_TUNING_U32:
      return number_at<std::uint32_t>(bytes);
    case BOLT_TUNING_U64:
      return number_at<std::uint64_t>(bytes);
  }
  return 0;
}

}  // namespace bolt_tuner
