// CUDA driver of lrn.h: a thread an element; neighbours share what they read through the cache.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

template <typename In, typename Out>
void lrn(const Run& r, const Lrn& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  launch_each(
      r, p.outer * p.channels * p.inner,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t inner = static_cast<std::uint32_t>(p.inner), channels = static_cast<std::uint32_t>(p.channels);
        const std::uint32_t row = item / inner;
        lrn_cell(p, in, out, row / channels, row % channels, item % inner);
      },
      "normalisation");
}

}  // namespace bolt::portable
