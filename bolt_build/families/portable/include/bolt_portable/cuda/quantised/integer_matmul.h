// CUDA driver of integer_matmul.h: the tiles of products in fp32, with numbers that are int32.
#pragma once

#include "bolt_portable/cuda/products/matmul.h"

namespace bolt::portable {

/// A matrix of integers less their zero points: one for all, or one a line.
template <typename T>
struct IntegerFactor {
  struct Line {
    Index at;
    std::int32_t zero;
  };
  const T* from;
  const T* zeros;
  Index line_step, depth_step, zero_step;
  bool along;

  __device__ Line line(std::uint32_t i) const {
    return {static_cast<Index>(i) * line_step, static_cast<std::int32_t>(zeros[i * zero_step])};
  }
  __device__ std::uint32_t place(std::uint32_t k) const { return k; }
  __device__ std::int32_t load(const Line& line, std::uint32_t k) const {
    return static_cast<std::int32_t>(from[line.at + k * depth_step]) - line.zero;
  }
};

template <typename A, typename B>
struct IntegerFactors {
  IntegerMatMul p;
  const A* a;
  const B* b;
  const A* a_zero;
  const B* b_zero;
  std::int32_t* out;

  struct Finish {
    Index first, n;
    std::int32_t* out;
    __device__ void operator()(std::int32_t sum, std::uint32_t row, std::uint32_t column) const {
      out[first + row * n + column] = sum;
    }
  };
  struct Found {
    IntegerFactor<A> left;
    IntegerFactor<B> right;
    Finish finish;
  };
  __device__ Found operator()(std::uint32_t batch) const {
    const MatMulAt at(p.of, batch);
    return {{a + at.a, a_zero, p.of.a_row, p.of.a_column, p.a_zero, p.of.a_column == 1},
            {b + at.b, b_zero, p.of.b_column, p.of.b_row, p.b_zero, p.of.b_row == 1},
            {batch * p.of.m * p.of.n, p.of.n, out}};
  }
};

template <typename A, typename B>
void integer_matmul(const Run& r, const IntegerMatMul& p, const void* left, const void* right, const void* left_zero,
                    const void* right_zero, void* output) {
  std::int32_t* out = static_cast<std::int32_t*>(output);
  Index batches = 1;
  for (int axis = 0; axis < p.of.batch_rank; ++axis) batches *= p.of.batch[axis];
  const IntegerFactors<A, B> factors{p,
                                     static_cast<const A*>(left),
                                     static_cast<const B*>(right),
                                     static_cast<const A*>(left_zero),
                                     static_cast<const B*>(right_zero),
                                     out};
  if (p.of.m >= least_tiled && p.of.n >= least_tiled) {
    launch_tiles<std::int32_t>(r, batches, p.of.m, p.of.n, p.of.k, factors, "integer product");
    return;
  }
  launch_each(
      r, batches * p.of.m * p.of.n,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t n = static_cast<std::uint32_t>(p.of.n), m = static_cast<std::uint32_t>(p.of.m);
        const std::uint32_t depth = static_cast<std::uint32_t>(p.of.k);
        const auto found = factors(item / n / m);
        const auto x = found.left.line(item / n % m);
        const auto y = found.right.line(item % n);
        std::uint32_t sum = 0;
        for (std::uint32_t k = 0; k < depth; ++k)
          sum += static_cast<std::uint32_t>(found.left.load(x, k) * found.right.load(y, k));
        out[item] = static_cast<std::int32_t>(sum);
      },
      "integer product");
}

}  // namespace bolt::portable
