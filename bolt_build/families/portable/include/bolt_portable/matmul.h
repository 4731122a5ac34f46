// Matrix products: every case. Slow; for what no library kernel takes.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// c[batch..., m, n] = sum over k of a[batch..., m, k] * b[batch..., k, n]. A batch stride of 0 broadcasts. c is dense
/// where `c_row` is 0. Per-channel operands of the epilogue follow n, or m if `channels_down`.
struct MatMul {
  static constexpr int most = 8;
  int batch_rank;
  Index batch[most], a_batch[most], b_batch[most];
  Index m, n, k;
  Index a_row, a_column, b_row, b_column;
  Index c_batch[most] = {};
  Index c_row = 0, c_column = 1;
  bool channels_down = false;
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/products/matmul.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// A bias is a stage of the epilogue with an operand for each channel.
template <typename A, typename B, typename Out, typename Epilogue>
void matmul(const Run& r, const MatMul& p, const void* left, const void* right, void* output,
            const Epilogue& epilogue) {
  constexpr Index width = 64;
  Out* out = static_cast<Out*>(output);
  Index batches = 1;
  for (int axis = 0; axis < p.batch_rank; ++axis) batches *= p.batch[axis];
  const Index blocks = (p.n + width - 1) / width;
  parallel(r, batches * p.m * blocks, width * p.k, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index row = item / blocks % p.m, first = item % blocks * width;
      Index batch = item / blocks / p.m, at_a = row * p.a_row, at_b = 0;
      Index to = p.c_row ? row * p.c_row : (batch * p.m + row) * p.n;
      for (int axis = p.batch_rank; axis-- > 0;) {
        at_a += batch % p.batch[axis] * p.a_batch[axis];
        at_b += batch % p.batch[axis] * p.b_batch[axis];
        to += batch % p.batch[axis] * p.c_batch[axis];
        batch /= p.batch[axis];
      }
      const A* a = static_cast<const A*>(left) + at_a;
      const B* b = static_cast<const B*>(right) + at_b;
      const Index many = std::min(width, p.n - first);
      float sum[width] = {};
      if (p.b_column == 1) {
        for (Index k = 0; k < p.k; ++k) {
          const float x = load(a + k * p.a_column);
          for (Index j = 0; j < many; ++j) sum[j] += x * load(b + k * p.b_row + first + j);
        }
      } else {
        for (Index j = 0; j < many; ++j)
          for (Index k = 0; k < p.k; ++k)
            sum[j] += load(a + k * p.a_column) * load(b + k * p.b_row + (first + j) * p.b_column);
      }
      for (Index j = 0; j < many; ++j) {
        const Index c = first + j, there = to + c * p.c_column;
        store(out + there, epilogue(sum[j], Place{there, p.channels_down ? row : c}));
      }
    }
  });
}

}  // namespace bolt::portable
#endif
