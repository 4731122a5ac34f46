// Sums over the threads of a block that share a line.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// What `step` makes of the values that the threads of a line have, in each of them. All of the block must call,
/// with 0 and then 1 as `call`. Parts of sums are the first that a block has in shared memory.
template <typename Shape, typename Step>
__device__ inline float over_line(float value, int call, const Step& step) {
  if constexpr (Shape::threads == 1) {
    return value;
  } else if constexpr (!Shape::columns && Shape::threads <= 32) {
    return over_warp<Shape::threads>(value, step);
  } else {
    extern __shared__ __align__(16) unsigned char staged_memory[];
    float* const partial = reinterpret_cast<float*>(staged_memory) + (Shape::columns ? call * Shape::block : 0);
    constexpr int apart = Shape::columns ? Shape::across : 1, parts = Shape::columns ? Shape::threads : Shape::block / 32;
    const int line = Shape::columns ? threadIdx.x % apart : 0;
    if constexpr (Shape::columns) {
      partial[threadIdx.x] = value;
    } else {
      value = over_warp(value, step);
      __syncthreads();  // an earlier call may still be read
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = partial[line];
#pragma unroll
    for (int other = 1; other < parts; ++other) value = step(value, partial[other * apart + line]);
    return value;
  }
}

/// Where the threads of a line side by side have left `own`, `Shape::across` apart. All of the block must call, and once only.
template <typename Shape>
__device__ inline const float2* all_of_line(float2 own) {
  static_assert(Shape::columns);
  extern __shared__ __align__(16) unsigned char staged_memory[];
  float2* const partial = reinterpret_cast<float2*>(staged_memory);
  partial[threadIdx.x] = own;
  __syncthreads();
  return partial + threadIdx.x % Shape::across;
}

}  // namespace bolt::portable
