// Kernels of the family "plain" that tests build engines with: small, slow, and free of libraries.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "bolt/plan.h"

namespace plain {

/// y = x * w along the last axis. w is copied when the model is created; fails to prepare where w begins with a NaN.
class Scale {
 public:
  Scale(const bolt::Prepare& p, const void* w, const char* key, std::size_t channels)
      : channels_(channels), weights_(p.shared(key, channels * sizeof(float), [&](void* to) {
          std::memcpy(to, w, channels * sizeof(float));
        })) {
    if (std::isnan(static_cast<const float*>(w)[0])) throw std::runtime_error("the scale is not a number");
  }
  std::size_t scratch_bytes() const { return channels_ * sizeof(float); }
  /// Goes through scratch memory; fails where x begins with a NaN.
  void run(const bolt::Run& r, const void* from, void* to, std::size_t rows) const {
    auto* scratch = static_cast<float*>(r.scratch());
    std::memcpy(scratch, weights_.get(), channels_ * sizeof(float));
    const auto* x = static_cast<const float*>(from);
    if (std::isnan(x[0])) throw std::runtime_error("the input is not a number");
    for (std::size_t i = 0; i < rows * channels_; ++i) static_cast<float*>(to)[i] = x[i] * scratch[i % channels_];
  }

 private:
  std::size_t channels_;
  std::shared_ptr<const void> weights_;
};

/// y = x + b along the last axis.
inline void add(const void* from, const void* b, void* to, std::size_t rows, std::size_t channels) {
  const auto* x = static_cast<const float*>(from);
  for (std::size_t i = 0; i < rows * channels; ++i)
    static_cast<float*>(to)[i] = x[i] + static_cast<const float*>(b)[i % channels];
}

inline void relu(const void* from, void* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float x = static_cast<const float*>(from)[i];
    static_cast<float*>(to)[i] = x > 0 ? x : 0;
  }
}

}  // namespace plain
