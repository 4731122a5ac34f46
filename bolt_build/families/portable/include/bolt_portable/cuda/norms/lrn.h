// CUDA drivers of lrn.h: a thread eight neighbouring channels where these are last, else a thread an element.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Channels that a thread reads on either side of its own at most.
constexpr int lrn_margin = 8;

/// Every thread squares what it and its neighbours need; the loads are what costs.
template <typename In, typename Out>
void lrn_wide(const Run& r, const Lrn& p, const In* in, Out* out) {
  launch_each(
      r, p.outer * p.channels / wide,
      [=] __device__(std::uint32_t item) {
        const int channels = static_cast<int>(p.channels), size = static_cast<int>(p.size);
        const int c = static_cast<int>(item % static_cast<std::uint32_t>(channels / wide)) * wide;
        const Index base = static_cast<Index>(item) * wide - c;
        const int before = (size - 1) / 2;
        float x[wide + 2 * lrn_margin], y[wide];
        load_lanes<wide>(in + base + c, x + lrn_margin);
#pragma unroll
        for (int i = 0; i < lrn_margin; ++i) {
          const int left = c - lrn_margin + i, right = c + wide + i;
          const bool used = i >= lrn_margin - before && left >= 0;
          x[i] = used ? load(in + base + left) : 0.0f;
          x[wide + lrn_margin + i] = i < size - 1 - before && right < channels ? load(in + base + right) : 0.0f;
        }
        const float factor = p.alpha / static_cast<float>(size);
#pragma unroll
        for (int i = 0; i < wide; ++i) {
          float squares = 0.0f;
#pragma unroll
          for (int k = -lrn_margin; k <= lrn_margin; ++k)
            if (k >= -before && k < size - before) squares += x[lrn_margin + i + k] * x[lrn_margin + i + k];
          y[i] = lrn_scaled(p, x[lrn_margin + i], p.bias + factor * squares);
        }
        store_lanes<wide>(out + base + c, y);
      },
      "normalisation");
}

template <typename In, typename Out>
void lrn(const Run& r, const Lrn& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (p.inner == 1 && p.channels % wide == 0 && p.size <= 2 * lrn_margin && aligned_to_16(in, out))
    return lrn_wide(r, p, in, out);
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
