// CUDA drivers of softmax.h: lines of neighbours in registers, of a few threads, a warp or a block each; longer ones a
// block each; any other a thread each.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Lines of at most `loads` times `threads` times `lanes` neighbours, each read once.
template <int loads, int threads, int lanes, typename In, typename Out>
void softmax_rows(const Run& r, const Softmax& p, const In* in, Out* out) {
  constexpr int together = block_threads / threads;
  const std::uint32_t many = counted(p.outer, "softmax"), count = static_cast<std::uint32_t>(p.axis);
  launch_blocks(
      r, (p.outer + together - 1) / together,
      [=] __device__(std::uint32_t block) {
        // Threads stay together for what they share: those behind the last line read it again, and store nothing.
        const std::uint32_t own = block * together + threadIdx.x / threads;
        const Index start = static_cast<Index>(own < many ? own : many - 1) * count;
        const auto first = [](int k) { return (k * threads + threadIdx.x % threads) * lanes; };
        const auto over = [](float value, const auto& step) {
          if constexpr (threads <= 32)
            return over_warp<threads>(value, step);
          else
            return over_block<threads>(value, step);
        };
        float x[loads][lanes], top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int k = 0; k < loads; ++k)
          if (first(k) < count) load_lanes<lanes>(in + start + first(k), x[k]);
#pragma unroll
        for (int k = 0; k < loads; ++k)
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first(k) < count) top = larger(top, x[k][i]);
        top = over(top, [](float a, float b) { return larger(a, b); });
#pragma unroll
        for (int k = 0; k < loads; ++k)
#pragma unroll
          for (int i = 0; i < lanes; ++i)
            if (first(k) < count) sum += x[k][i] = exponential(x[k][i] - top);
        const float scale = 1.0f / over(sum, [](float a, float b) { return a + b; });
        if (own >= many) return;
#pragma unroll
        for (int k = 0; k < loads; ++k) {
          if (first(k) >= count) continue;
#pragma unroll
          for (int i = 0; i < lanes; ++i) x[k][i] *= scale;
          store_lanes<lanes>(out + start + first(k), x[k]);
        }
      },
      "softmax");
}

/// `loads`: how many loads of `lanes` neighbours each of the `threads` threads of a line holds, 0 where lines are no
/// neighbours or too long.
template <int loads, int threads, int lanes, typename In, typename Out>
void softmax(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if constexpr (loads > 0) {
    if (lanes == 1 || aligned_to_16(in, out)) return softmax_rows<loads, threads, lanes>(r, p, in, out);
  }
  if (p.inner == 1 && p.axis >= 32) {
    launch_blocks(
        r, p.outer,
        [=] __device__(std::uint32_t line) {
          const Index at = static_cast<Index>(line) * p.axis;
          float top = -INFINITY, sum = 0.0f;
          for (Index i = threadIdx.x; i < p.axis; i += block_threads) top = larger(top, load(in + at + i));
          top = over_block(top, [](float a, float b) { return larger(a, b); });
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
