// Local response normalisation of lines in shared memory (staged.h).
#pragma once

#include "bolt_portable/cuda/lines/staged.h"
#include "bolt_portable/fast_math.h"

namespace bolt::portable {

/// A thread has neighbouring channels, and squares each that a window of theirs has once. Of half precision powers are the
/// special-function unit's, whose error rounding hides.
template <typename Shape, int size, bool half>
struct StagedLrn {
  static constexpr int floats = 0, before = (size - 1) / 2;
  static constexpr bool early = false, neighbours = true;

  Lrn p;

  __device__ void begin(float*) const {}

  template <typename Line>
  __device__ void operator()(const Line& line, float (&x)[Shape::loads], const float*) const {
    float squares[Shape::loads + size - 1];
#pragma unroll
    for (int j = 0; j < Shape::loads + size - 1; ++j) {
      const int k = j - before, channel = line.element(k);
      float value = 0.0f;
      if (k >= 0 && k < Shape::loads)
        value = x[k < 0 ? 0 : k < Shape::loads ? k : 0];
      else if (channel >= 0 && channel < Shape::count)
        value = line.read(channel);
      squares[j] = value * value;
    }
    const float factor = p.alpha / static_cast<float>(size);
#pragma unroll
    for (int k = 0; k < Shape::loads; ++k) {
      float sum = squares[k];
#pragma unroll
      for (int j = 1; j < size; ++j) sum += squares[k + j];
      const float scale = p.bias + factor * sum;
      if constexpr (half)
        x[k] *= SpecialFunctions::exp2(-p.beta * SpecialFunctions::log2(scale));
      else
        x[k] = lrn_scaled(p, x[k], scale);
    }
  }
};

/// Lines `Shape` of channels, whose windows have so many; or as lrn where memory is not as the planner expects it.
template <typename Shape, int size, typename In, typename Out>
void lrn_staged(const Run& r, const Lrn& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (!aligned_to_16(in, out)) return lrn<In, Out>(r, p, input, output);
  staged_lines<Shape>(r, "a normalisation kernel", p.outer, StagedLrn<Shape, size, sizeof(Out) == 2>{p}, in, out);
}

}  // namespace bolt::portable
