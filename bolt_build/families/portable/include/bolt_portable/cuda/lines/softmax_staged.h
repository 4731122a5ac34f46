// Softmax of lines in shared memory (staged.h).
#pragma once

#include "bolt_portable/cuda/lines/staged.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// An exponential: of what becomes half precision the special-function unit's, whose error rounding hides.
template <bool half>
__device__ inline float softmax_power(float x) {
  if constexpr (half)
    return SpecialFunctions::exp2(x * 1.44269504f);
  else
    return exponential(x);
}

/// Each element has one exponential.
template <typename Shape, typename Ending, bool half>
struct StagedSoftmax {
  static constexpr int floats = 0;
  static constexpr bool early = false, neighbours = false;

  __device__ void begin(float*) const {}

  template <typename Line>
  __device__ void operator()(const Line& line, float (&x)[Shape::loads], const float*) const {
    float top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k)
      if (line.has(k)) top = larger(top, x[k]);
    if constexpr (Shape::columns && Shape::in_registers && Shape::threads > 1) return meet_once(line, x, top);
    top = over_line<Shape>(top, 0, [](float a, float b) { return larger(a, b); });
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) {
      if (!line.has(k)) continue;
      const float own = softmax_power<half>(x[k] - top);
      sum += own;
      x[k] = Ending::of_power ? own : x[k] - top;
    }
    const float of = Ending::of(over_line<Shape>(sum, 1, [](float a, float b) { return a + b; }));
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) x[k] = Ending::end(x[k], of);
  }

 private:
  /// Threads of a line wait for each other once: each has powers below its own greatest element, `top`, and their sum. Of a
  /// thread whose elements are all minus infinity, or that has none, all powers are 0.
  template <typename Line>
  __device__ static void meet_once(const Line& line, float (&x)[Shape::loads], float top) {
    const float below = top == -INFINITY ? 0.0f : top;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) {
      if (!line.has(k)) continue;
      const float own = softmax_power<half>(x[k] - below);
      sum += own;
      if (Ending::of_power) x[k] = own;
    }
    constexpr int apart = Shape::across;
    const float2* const parts = all_of_line<Shape>(make_float2(top, sum));
    float most = parts[0].x;
#pragma unroll
    for (int other = 1; other < Shape::threads; ++other) most = larger(most, parts[other * apart].x);
    sum = 0.0f;
#pragma unroll 4
    for (int other = 0; other < Shape::threads; ++other) {
      const float2 part = parts[other * apart];
      sum += part.y * softmax_power<half>(part.x - most);
    }
    const float of = Ending::of(sum), times = Ending::of_power ? of * softmax_power<half>(top - most) : of;
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) x[k] = Ending::end(Ending::of_power ? x[k] : x[k] - most, times);
  }
};

/// Lines `Shape` of a softmax, or as softmax_lines where memory is not as the planner expects it.
template <typename Ending, typename Shape, typename In, typename Out>
void softmax_staged(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out)) return softmax_lines<Ending>(r, p, in, out);
  staged_lines<Shape>(r, "a softmax kernel", p.outer, StagedSoftmax<Shape, Ending, sizeof(Out) == 2>{}, in, out);
}

}  // namespace bolt::portable
