// Softmax of lines in shared memory (staged.h).
#pragma once

#include "bolt_portable/cuda/staged.h"
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
