// What memory is filled with before kernels are measured: the same values on the host and on the GPU.
#pragma once

#include <cstdint>

#include "bolt_tuning/candidates.h"

#ifdef __CUDACC__
#define BOLT_TUNER_ANYWHERE __host__ __device__
#else
#define BOLT_TUNER_ANYWHERE
#endif

namespace bolt_tuner {

/// SplitMix64: every bit of the result depends on every bit of the value.
BOLT_TUNER_ANYWHERE inline std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

/// Values of `count` elements. Random ones are the same for the same seed; those that ascend do not depend on it.
struct Values {
  std::uint64_t count, seed;
  double low, high;
  bool ascends;

  Values(const bolt_tuning_operand& operand, std::uint64_t count, std::uint64_t seed)
      : count(count), seed(seed), low(operand.low), high(operand.high), ascends(operand.ascends != 0) {}

  /// Not yet rounded, where elements are whole numbers.
  BOLT_TUNER_ANYWHERE float at(std::uint64_t i) const {
    if (ascends) {
      const double part = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.0;
      return static_cast<float>(low + (high - low) * part);
    }
    const float part = static_cast<float>(mixed(seed ^ mixed(i)) >> 40) * (1.0f / 16777216.0f);
    const float least = static_cast<float>(low), most = static_cast<float>(high);
    return least + (most - least) * part;
  }
};

}  // namespace bolt_tuner
