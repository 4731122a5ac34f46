// CUDA drivers of softmax.h: a block a line where its elements are neighbours, else a thread a line.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

template <typename In, typename Out>
void softmax(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (p.inner == 1 && p.axis >= 32) {
    launch_blocks(
        r, p.outer,
        [=] __device__(std::uint32_t line) {
          const Index at = static_cast<Index>(line) * p.axis;
          float top = -INFINITY, sum = 0.0f;
          const auto larger = [](float a, float b) { return b > a || b != b ? b : a; };
          for (Index i = threadIdx.x; i < p.axis; i += block_threads) top = larger(top, load(in + at + i));
          top = over_block(top, larger);
          for (Index i = threadIdx.x; i < p.axis; i += block_threads) sum += exponential(load(in + at + i) - top);
          const float scale = 1.0f / over_block(sum, [](float a, float b) { return a + b; });
          for (Index i = threadIdx.x; i < p.axis; i += block_threads)
            store(out + at + i, exponential(load(in + at + i) - top) * scale);
        },
        "softmax");
    return;
  }
  launch_each(
      r, p.outer * p.inner,
      [=] __device__(std::uint32_t line) {
        const std::uint32_t inner = static_cast<std::uint32_t>(p.inner);
        const Index at = static_cast<Index>(line / inner) * p.axis * p.inner + line % inner;
        softmax_line(in + at, out + at, p.axis, p.inner);
      },
      "softmax");
}

}  // namespace bolt::portable
