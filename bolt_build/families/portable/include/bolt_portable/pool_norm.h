// Pooling by a norm of each window.
#pragma once

#include "bolt_portable/pool.h"

namespace bolt::portable {

/// The p-th root of the sum of |x|^p.
template <int p>
struct PoolNorm {
  static constexpr bool counts_padding = false;
  static BOLT_HD float start() { return 0.0f; }
  static BOLT_HD float step(float sum, float x) {
    if constexpr (p == 1) return sum + fabsf(x);
    if constexpr (p == 2) return sum + x * x;
    return sum + powf(fabsf(x), static_cast<float>(p));
  }
  static BOLT_HD float term(float x) { return step(0.0f, x); }
  static BOLT_HD float join(float a, float b) { return a + b; }
  static BOLT_HD float share(Extent) { return 1.0f; }
  static BOLT_HD float shared(float sum, float) { return finish(sum, 0, 0); }
  static BOLT_HD float finish(float sum, Index, Index) {
    if constexpr (p == 1) return sum;
    if constexpr (p == 2) return sqrtf(sum);
    return powf(sum, 1.0f / static_cast<float>(p));
  }
};

}  // namespace bolt::portable
