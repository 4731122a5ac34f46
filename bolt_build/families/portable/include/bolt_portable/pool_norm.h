// Pooling by a norm of each window.
#pragma once

#include "bolt_portable/pool.h"

namespace bolt::portable {

/// The p-th root of the sum of |x|^p.
template <int p>
struct PoolNorm {
  static BOLT_HD float start() { return 0.0f; }
  static BOLT_HD float step(float sum, float x) {
    if constexpr (p == 1) return sum + fabsf(x);
    if constexpr (p == 2) return sum + x * x;
    return sum + powf(fabsf(x), static_cast<float>(p));
  }
  static BOLT_HD float finish(float sum, Index, Index) {
    if constexpr (p == 1) return sum;
    if constexpr (p == 2) return sqrtf(sum);
    return powf(sum, 1.0f / static_cast<float>(p));
  }
};

}  // namespace bolt::portable
