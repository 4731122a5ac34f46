// CUDA drivers of reduce.h: 32 neighbouring results a block, with the sum of each shared by its warps; or a block a
// result where the reduced elements are the neighbours.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Where result `item` begins in the input, and its index along the channel axis.
__device__ inline Index reduce_start(const Reduce& p, std::uint32_t item, Index* channel) {
  Index at = 0;
  for (int axis = p.kept_rank; axis-- > 0;) {
    const std::uint32_t extent = static_cast<std::uint32_t>(p.kept[axis]);
    const Index index = item % extent;
    item /= extent;
    at += index * p.kept_stride[axis];
    if (axis == p.channel_axis) *channel = index;
  }
  return at;
}

/// Offset of reduced element `item`.
__device__ inline Index reduce_offset(const Reduce& p, std::uint32_t item) {
  if (p.reduced_rank == 1) return item * p.reduced_stride[0];
  Index at = 0;
  for (int axis = p.reduced_rank; axis-- > 0;) {
    const std::uint32_t extent = static_cast<std::uint32_t>(p.reduced[axis]);
    at += item % extent * p.reduced_stride[axis];
    item /= extent;
  }
  return at;
}

template <typename Mode, typename In, typename Out, typename Epilogue>
void reduce(const Run& r, const Reduce& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  Index results = 1, elements = 1;
  for (int axis = 0; axis < p.kept_rank; ++axis) results *= p.kept[axis];
  for (int axis = 0; axis < p.reduced_rank; ++axis) elements *= p.reduced[axis];
  const std::uint32_t count = counted(elements, "reduction"), many = counted(results, "reduction");
  const bool neighbours = p.reduced_rank > 0 && p.reduced_stride[p.reduced_rank - 1] == 1;
  if (neighbours) {
    launch_blocks(
        r, results,
        [=] __device__(std::uint32_t item) {
          Index channel = 0;
          const In* from = in + reduce_start(p, item, &channel);
          float sum = Mode::start();
          for (std::uint32_t i = threadIdx.x; i < count; i += block_threads)
            sum = Mode::step(sum, load(from + reduce_offset(p, i)));
          sum = over_block(sum, [](float a, float b) { return Mode::step(a, b); });
          if (threadIdx.x == 0) store(out + item, epilogue(Mode::finish(sum, count), Place{item, channel}));
        },
        "reduction");
    return;
  }
  launch_blocks(
      r, (results + 31) / 32,
      [=] __device__(std::uint32_t block) {
        constexpr int warps = block_threads / 32;
        __shared__ float partial[warps][32];
        const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, item = block * 32 + lane;
        float sum = Mode::start();
        Index channel = 0;
        if (item < many) {
          const In* from = in + reduce_start(p, item, &channel);
#pragma unroll 4
          for (std::uint32_t i = warp; i < count; i += warps) sum = Mode::step(sum, load(from + reduce_offset(p, i)));
        }
        partial[warp][lane] = sum;
        __syncthreads();
        if (warp != 0 || item >= many) return;
        for (int other = 1; other < warps; ++other) sum = Mode::step(sum, partial[other][lane]);
        store(out + item, epilogue(Mode::finish(sum, count), Place{item, channel}));
      },
      "reduction");
}

}  // namespace bolt::portable
