// heads.h where both elements of each pair are one thread's: it has as many neighbours of the first half of a head as of the
// second. So nothing of a row is read twice. A thread does so with several heads that share cosines and sines, which it reads once.
#pragma once

#include "bolt_portable/heads.h"

namespace bolt::portable {

/// `threads` of a head, with `lanes` neighbours in each of its halves; `each` heads of a thread, whose cosines and sines are the
/// same.
template <int lanes, int threads, int each, typename Statistic, typename Turn, typename In, typename Out, typename Scale,
          typename Bias, typename Cos, typename Sin>
struct HeadPairsKernel {
  static constexpr int together = block_threads / threads, half = lanes * threads, depth = 2 * half;
  static constexpr float all = static_cast<float>(depth);

  Heads p;
  HeadLoop next;  ///< from a head of a thread to its next one
  Walk<6> walk;   ///< over the first heads of threads
  const In* in;
  Out* out;
  const Scale* scale;
  const Bias* bias;
  const Cos* cos;
  const Sin* sin;
  std::uint32_t many;

  using Loaded = Lanes<In, lanes>;

  __device__ void operator()(std::uint32_t block) const {
    // A warp's threads stay together for their sums: those behind the last heads read these again, and store nothing.
    const std::uint32_t own = block * together + threadIdx.x / threads;
    const bool there = own < many;
    Index begin[6] = {};
    walk.go(there ? own : many - 1, begin);
    const Index first = threadIdx.x % threads * lanes;
    Loaded loaded[each][2];
#pragma unroll
    for (int head = 0; head < each; ++head)
#pragma unroll
      for (int side = 0; side < 2; ++side)
        loaded[head][side] = *reinterpret_cast<const Loaded*>(in + begin[0] + head * next.x + side * half + first);
    float cosines[2][lanes], sines[2][lanes];
    if constexpr (Turn::turns)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        load_lanes<lanes>(cos + begin[4] + side * half + first, cosines[side]);
        load_lanes<lanes>(sin + begin[5] + side * half + first, sines[side]);
      }
#pragma unroll
    for (int head = 0; head < each; ++head) {
      float x[2][lanes];
#pragma unroll
      for (int side = 0; side < 2; ++side)
#pragma unroll
        for (int i = 0; i < lanes; ++i) x[side][i] = load(&loaded[head][side].at[i]);
      const float mean = Statistic::centred ? total(x, [](float value) { return value; }) / all : 0.0f;
      float factor = 1.0f;
      if constexpr (!std::is_same_v<Statistic, AsItIs>)
        factor = Statistic::factor(total(x, [&](float value) { return Statistic::term(value - mean); }), all, p.epsilon);
      if (!there) continue;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const Index at = side * half + first;
        float scales[lanes], biases[lanes];
        head_operand<lanes>(scale + (is_there<Scale> ? begin[2] + head * next.scale + at : 0), scales);
        head_operand<lanes>(bias + (is_there<Bias> ? begin[3] + head * next.bias + at : 0), biases);
#pragma unroll
        for (int i = 0; i < lanes; ++i) x[side][i] = (x[side][i] - mean) * factor * scales[i] + biases[i];
      }
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float y[lanes];
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          if constexpr (!Turn::turns)
            y[i] = x[side][i];
          else if constexpr (Turn::neighbours)
            y[i] = x[side][i] * cosines[side][i] + (i % 2 == 0 ? -x[side][i ^ 1] : x[side][i ^ 1]) * sines[side][i];
          else
            y[i] = x[side][i] * cosines[side][i] + (side == 0 ? -x[1][i] : x[0][i]) * sines[side][i];
        }
        store_lanes<lanes>(out + begin[1] + head * next.y + side * half + first, y);
      }
    }
  }

 private:
  /// The sum of what `term` makes of a head's elements, in each of its threads.
  template <typename Term>
  __device__ static float total(const float (&x)[2][lanes], const Term& term) {
    float sum = 0.0f;
#pragma unroll
    for (int side = 0; side < 2; ++side)
#pragma unroll
      for (int i = 0; i < lanes; ++i) sum += term(x[side][i]);
    return over_warp<threads>(sum, [](float a, float b) { return a + b; });
  }
  template <typename T>
  static constexpr bool is_there = !std::is_same_v<T, Ones> && !std::is_same_v<T, Zeros>;
};

template <int lanes, int threads, int each, typename Statistic, typename Turn, typename In, typename Out, typename Scale,
          typename Bias, typename Cos, typename Sin>
void head_pairs(const Run& r, const Heads& p, const void* input, void* output, const void* scales, const void* biases,
                const void* cosines, const void* sines) {
  Walk<6> walk;
  for (int axis = p.rank; axis-- > 0;) {
    const HeadLoop& loop = p.loops[axis];
    const Index by = axis == p.rank - 1 ? each : 1;
    walk.add(loop.extent / by,
             {by * loop.x, by * loop.y, by * loop.scale, by * loop.bias, by * loop.cos, by * loop.sin});
  }
  using Kernel = HeadPairsKernel<lanes, threads, each, Statistic, Turn, In, Out, Scale, Bias, Cos, Sin>;
  const std::uint32_t many = counted(walk.items, "heads");
  if (many == 0) return;
  const Kernel kernel{p,
                      p.loops[p.rank - 1],
                      walk,
                      static_cast<const In*>(input),
                      static_cast<Out*>(output),
                      static_cast<const Scale*>(scales),
                      static_cast<const Bias*>(biases),
                      static_cast<const Cos*>(cosines),
                      static_cast<const Sin*>(sines),
                      many};
  launch_blocks(r, (walk.items + Kernel::together - 1) / Kernel::together, kernel, "heads");
}

}  // namespace bolt::portable
