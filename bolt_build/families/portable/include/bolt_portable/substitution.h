// Forward substitution in the lower triangles of square matrices. All tensors are row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// `matrices` of `rows` rows and columns.
struct Substitution {
  Index matrices, rows;
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/products/substitution.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// `most` bounds the rows; with `unit`, 1 is added along the diagonal.
template <int most, bool unit, typename In, typename Out>
void substitution(const Run& r, const Substitution& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const Index rows = p.rows;
  parallel(r, p.matrices, rows * rows * rows / 3, [=](Index begin, Index end) {
    float made[most][most];
    for (Index matrix = begin; matrix < end; ++matrix) {
      const In* given = in + matrix * rows * rows;
      Out* stored = out + matrix * rows * rows;
      for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < rows; ++j) made[i][j] = load(given + i * rows + j);
        for (Index k = 0; k < i; ++k) {
          const float factor = load(given + i * rows + k);
          BOLT_SIMD
          for (Index j = 0; j < i; ++j) made[i][j] += factor * made[k][j];
        }
      }
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < rows; ++j) store(stored + i * rows + j, made[i][j] + (unit && i == j ? 1.0f : 0.0f));
    }
  });
}

}  // namespace bolt::portable
#endif
