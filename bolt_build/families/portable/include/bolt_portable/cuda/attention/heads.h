// CUDA driver of heads.h: a few threads of a warp have a head in registers. The other of a pair comes from the same load,
// or from another one, which finds it in the L1 cache.
#pragma once

#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

/// `lanes` neighbours of an operand, or as many times what stands for one that is not there.
template <int lanes, typename T>
__device__ inline void head_operand(const T* from, float* values) {
  if constexpr (std::is_same_v<T, Ones> || std::is_same_v<T, Zeros>) {
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[i] = load(from);
  } else {
    load_lanes<lanes>(from, values);
  }
}

template <int lanes, int threads, int loads, typename Statistic, typename Turn, typename In, typename Out,
          typename Scale, typename Bias, typename Cos, typename Sin>
struct HeadsKernel {
  static constexpr int together = block_threads / threads;

  Heads p;
  Walk<6> walk;  ///< over the heads, with the steps of a `HeadAt`
  const In* in;
  Out* out;
  const Scale* scale;
  const Bias* bias;
  const Cos* cos;
  const Sin* sin;
  std::uint32_t many;

  __device__ void operator()(std::uint32_t block) const {
    // A warp's threads stay together for their sums: those behind the last head read it again, and store nothing.
    const std::uint32_t own = block * together + threadIdx.x / threads;
    const bool there = own < many;
    Index begin[6] = {};
    walk.go(there ? own : many - 1, begin);
    const HeadAt at{begin[0], begin[1], begin[2], begin[3], begin[4], begin[5]};
    const std::uint32_t depth = static_cast<std::uint32_t>(p.depth), turned = static_cast<std::uint32_t>(p.turned);
    const std::uint32_t passed = static_cast<std::uint32_t>(p.passed);
    float x[loads][lanes];
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < depth) load_lanes<lanes>(in + at.x + first(k), x[k]);
    const float all = static_cast<float>(depth);
    const float mean = Statistic::centred ? total(x, depth, [](float value) { return value; }) / all : 0.0f;
    float factor = 1.0f;
    if constexpr (!std::is_same_v<Statistic, AsItIs>)
      factor = Statistic::factor(total(x, depth, [&](float value) { return Statistic::term(value - mean); }), all,
                                 p.epsilon);
    if (!there) return;
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      if (first(k) >= depth) continue;
      finish(at, first(k), mean, factor, x[k]);
      // Unsigned: elements in front of the turned ones are far behind them.
      if (Turn::turns && first(k) - passed < turned) turn(at, first(k), passed, turned, mean, factor, x[k]);
      store_lanes<lanes>(out + at.y + first(k), x[k]);
    }
  }

 private:
  /// The element with which this thread's load `k` of a head begins.
  __device__ static std::uint32_t first(int k) { return (k * threads + threadIdx.x % threads) * lanes; }

  /// The sum of what `term` makes of a head's elements, in each of its threads.
  template <typename Term>
  __device__ float total(const float (&x)[loads][lanes], std::uint32_t depth, const Term& term) const {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < loads; ++k)
      if (first(k) < depth)
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum += term(x[k][i]);
    return over_warp<threads>(sum, [](float a, float b) { return a + b; });
  }

  /// Normalises, scales and shifts elements from `begin` on.
  __device__ void finish(const HeadAt& at, std::uint32_t begin, float mean, float factor, float* x) const {
    float scales[lanes], biases[lanes];
    head_operand<lanes>(scale + (is_there<Scale> ? at.scale + begin : 0), scales);
    head_operand<lanes>(bias + (is_there<Bias> ? at.bias + begin : 0), biases);
#pragma unroll
    for (int i = 0; i < lanes; ++i) x[i] = (x[i] - mean) * factor * scales[i] + biases[i];
  }

  __device__ void turn(const HeadAt& at, std::uint32_t element, std::uint32_t passed, std::uint32_t turned, float mean,
                       float factor, float* x) const {
    float cosines[lanes], sines[lanes], others[lanes];
    const std::uint32_t begin = element - passed;
    head_operand<lanes>(cos + at.cos + begin, cosines);
    head_operand<lanes>(sin + at.sin + begin, sines);
    if constexpr (Turn::neighbours && lanes > 1) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) others[i] = x[i ^ 1];
    } else {
      const std::uint32_t other = passed + static_cast<std::uint32_t>(other_of_pair<Turn>(begin, turned));
      load_lanes<lanes>(in + at.x + other, others);
      finish(at, other, mean, factor, others);
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      const float side = first_of_pair<Turn>(begin + i, turned) ? -others[i] : others[i];
      x[i] = x[i] * cosines[i] + side * sines[i];
    }
  }

  template <typename T>
  static constexpr bool is_there = !std::is_same_v<T, Ones> && !std::is_same_v<T, Zeros>;
};

template <int lanes, int threads, int loads, typename Statistic, typename Turn, typename In, typename Out,
          typename Scale, typename Bias, typename Cos, typename Sin>
void heads(const Run& r, const Heads& p, const void* input, void* output, const void* scales, const void* biases,
           const void* cosines, const void* sines) {
  Walk<6> walk;
  for (int axis = p.rank; axis-- > 0;) {
    const HeadLoop& loop = p.loops[axis];
    walk.add(loop.extent, {loop.x, loop.y, loop.scale, loop.bias, loop.cos, loop.sin});
  }
  using Kernel = HeadsKernel<lanes, threads, loads, Statistic, Turn, In, Out, Scale, Bias, Cos, Sin>;
  const std::uint32_t many = counted(walk.items, "heads");
  if (many == 0) return;
  const Kernel kernel{p,
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
