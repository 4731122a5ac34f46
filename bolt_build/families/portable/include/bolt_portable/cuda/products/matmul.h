// CUDA driver of matmul.h: tiles through shared memory, or of narrow products a thread an output element.
#pragma once

#include "bolt_portable/cuda/products/tiles.h"

namespace bolt::portable {

/// A matrix whose lines are `line_step` elements apart, and places of the depth `depth_step`.
template <typename T>
struct MatrixFactor {
  using Line = Index;
  const T* from;
  Index line_step, depth_step;
  bool along;

  __device__ Line line(std::uint32_t i) const { return i * line_step; }
  __device__ std::uint32_t place(std::uint32_t k) const { return k; }
  __device__ float load(Line at, std::uint32_t k) const { return portable::load(from + at + k * depth_step); }
};

/// Where the matrices of product `batch` begin; c alone where it is not dense.
struct MatMulAt {
  Index a = 0, b = 0, c = 0;
  __device__ MatMulAt(const MatMul& p, std::uint32_t batch) {
    for (int axis = p.batch_rank; axis-- > 0;) {
      const std::uint32_t extent = static_cast<std::uint32_t>(p.batch[axis]);
      a += batch % extent * p.a_batch[axis];
      b += batch % extent * p.b_batch[axis];
      c += batch % extent * p.c_batch[axis];
      batch /= extent;
    }
  }
};

/// One product's factors, and what becomes of its sums.
template <typename A, typename B, typename Out, typename Epilogue>
struct MatMulFactors {
  MatMul p;
  const A* a;
  const B* b;
  Out* out;
  Epilogue epilogue;

  struct Finish {
    Index first, row_step, column_step;
    bool down;
    Out* out;
    Epilogue epilogue;
    __device__ void operator()(float sum, std::uint32_t row, std::uint32_t column) const {
      const Index to = first + row * row_step + column * column_step;
      store(out + to, epilogue(sum, Place{to, down ? row : column}));
    }
  };
  struct Found {
    MatrixFactor<A> left;
    MatrixFactor<B> right;
    Finish finish;
  };
  __device__ Found operator()(std::uint32_t batch) const {
    const MatMulAt at(p, batch);
    return {{a + at.a, p.a_row, p.a_column, p.a_column == 1},
            {b + at.b, p.b_column, p.b_row, p.b_row == 1},
            {p.c_row ? at.c : batch * p.m * p.n, p.c_row ? p.c_row : p.n, p.c_column, p.channels_down, out, epilogue}};
  }
};

template <typename A, typename B, typename Out, typename Epilogue>
void matmul(const Run& r, const MatMul& p, const void* left, const void* right, void* output,
            const Epilogue& epilogue) {
  const A* a = static_cast<const A*>(left);
  const B* b = static_cast<const B*>(right);
  Out* out = static_cast<Out*>(output);
  Index batches = 1;
  for (int axis = 0; axis < p.batch_rank; ++axis) batches *= p.batch[axis];
  if (p.m >= least_tiled && p.n >= least_tiled) {
    launch_tiles(r, batches, p.m, p.n, p.k, MatMulFactors<A, B, Out, Epilogue>{p, a, b, out, epilogue}, "matrix product");
    return;
  }
  launch_each(
      r, batches * p.m * p.n,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t n = static_cast<std::uint32_t>(p.n), m = static_cast<std::uint32_t>(p.m);
        const Index column = item % n, row = item / n % m;
        const MatMulAt at(p, item / n / m);
        const A* const line = a + at.a + row * p.a_row;
        const B* const other = b + at.b + column * p.b_column;
        float sum = 0.0f;
#pragma unroll 8
        for (Index k = 0; k < p.k; ++k) sum += load(line + k * p.a_column) * load(other + k * p.b_row);
        const Index to = p.c_row ? at.c + row * p.c_row + column * p.c_column : Index{item};
        store(out + to, epilogue(sum, Place{to, p.channels_down ? row : column}));
      },
      "matrix product");
}

}  // namespace bolt::portable
