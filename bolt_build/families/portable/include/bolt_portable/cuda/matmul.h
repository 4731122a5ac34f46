// CUDA driver of matmul.h: a thread an output element.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

template <typename A, typename B, typename Out, typename Epilogue>
void matmul(const Run& r, const MatMul& p, const void* left, const void* right, void* output,
            const Epilogue& epilogue) {
  const A* a = static_cast<const A*>(left);
  const B* b = static_cast<const B*>(right);
  Out* out = static_cast<Out*>(output);
  Index batches = 1;
  for (int axis = 0; axis < p.batch_rank; ++axis) batches *= p.batch[axis];
  launch_each(
      r, batches * p.m * p.n,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t n = static_cast<std::uint32_t>(p.n), m = static_cast<std::uint32_t>(p.m);
        const Index column = item % n, row = item / n % m;
        std::uint32_t batch = item / n / m;
        Index at_a = row * p.a_row, at_b = column * p.b_column;
        for (int axis = p.batch_rank; axis-- > 0;) {
          const std::uint32_t extent = static_cast<std::uint32_t>(p.batch[axis]);
          at_a += batch % extent * p.a_batch[axis];
          at_b += batch % extent * p.b_batch[axis];
          batch /= extent;
        }
        float sum = 0.0f;
        for (Index k = 0; k < p.k; ++k) sum += load(a + at_a + k * p.a_column) * load(b + at_b + k * p.b_row);
        store(out + item, epilogue(sum, Place{item, column}));
      },
      "matrix product");
}

}  // namespace bolt::portable
