// CUDA drivers of line.h: a block a line where its elements are neighbours, else a thread a line.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// The greatest of a block's, in every thread.
__device__ inline LineTop top_of_block(LineTop top) {
  __shared__ LineTop partial[block_threads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    top = first_top(top, {__shfl_xor_sync(0xffffffffu, top.value, distance),
                          static_cast<Index>(__shfl_xor_sync(0xffffffffu, static_cast<int>(top.place), distance))});
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = top;
  __syncthreads();
  for (int warp = 0; warp < block_threads / 32; ++warp) top = first_top(top, partial[warp]);
  return top;
}

template <typename Function, typename In, typename Out>
void line(const Run& r, const Line& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (p.inner == 1 && p.axis >= 32) {
    counted(p.axis, "line");
    launch_blocks(
        r, p.outer,
        [=] __device__(std::uint32_t row) {
          const Index at = static_cast<Index>(row) * p.axis;
          LineTop top{load(in + at), 0};
          for (Index i = threadIdx.x; i < p.axis; i += block_threads) top = first_top(top, {load(in + at + i), i});
          top = top_of_block(top);
          float sum = 0.0f;
          if (Function::sums)
            for (Index i = threadIdx.x; i < p.axis; i += block_threads) sum += Function::term(load(in + at + i), top);
          sum = over_block(sum, [](float a, float b) { return a + b; });
          for (Index i = threadIdx.x; i < p.axis; i += block_threads)
            store(out + at + i, Function::finish(load(in + at + i), i, top, sum));
        },
        "line");
    return;
  }
  launch_each(
      r, p.outer * p.inner,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t inner = static_cast<std::uint32_t>(p.inner);
        const Index at = static_cast<Index>(item / inner) * p.axis * p.inner + item % inner;
        one_line<Function>(in + at, out + at, p.axis, p.inner);
      },
      "line");
}

}  // namespace bolt::portable
