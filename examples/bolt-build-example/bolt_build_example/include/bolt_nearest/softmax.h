// Softmax in two passes over a line: the first keeps its largest element and the sum of the powers below it.
#pragma once

#include <cmath>

#include "bolt_portable/element.h"

#if defined(__CUDACC__)
#include "bolt_portable/cuda/launch.h"
#else
#include "bolt_portable/parallel.h"
#endif

namespace bolt_nearest {

using bolt::portable::Index;

struct Softmax {
  Index lines, count;
};

/// The output may be the input.
template <typename In, typename Out>
BOLT_HD inline void softmax_line(const In* in, Out* out, Index count) {
  float top = bolt::portable::load(in), sum = 1.0f;
  for (Index i = 1; i < count; ++i) {
    const float x = bolt::portable::load(in + i);
    if (x > top) {
      sum = sum * expf(top - x) + 1.0f;
      top = x;
    } else {
      sum += x == top ? 1.0f : expf(x - top);
    }
  }
  for (Index i = 0; i < count; ++i) bolt::portable::store(out + i, expf(bolt::portable::load(in + i) - top) / sum);
}

template <typename In, typename Out>
void softmax(const bolt::Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
#if defined(__CUDACC__)
  bolt::portable::launch_each(
      r, p.lines, [=] __device__(std::uint32_t line) { softmax_line(in + line * p.count, out + line * p.count, p.count); },
      "softmax");
#else
  bolt::portable::parallel(r, p.lines, p.count * 16, [&](Index begin, Index end) {
    for (Index line = begin; line < end; ++line) softmax_line(in + line * p.count, out + line * p.count, p.count);
  });
#endif
}

}  // namespace bolt_nearest
