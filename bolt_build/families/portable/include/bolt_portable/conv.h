// Direct convolution: every case, one output cell at a time. Slow; for what no library kernel takes.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Spatial arrays are depth, height, width; dimensions that a tensor lacks are 1 (pads 0). Weights are
/// [out_channels, channels / groups, kernel...].
struct Conv {
  Index batch, channels, out_channels, groups;
  Index in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3];
  bool channels_last;
};

/// Channels of a group, and elements from one to the next: of the input, and of a filter.
struct Steps {
  Index channels, channel, tap;
  BOLT_HD explicit Steps(const Conv& p)
      : channels(p.channels / p.groups), channel(p.channels_last ? 1 : p.in[0] * p.in[1] * p.in[2]),
        tap(p.kernel[0] * p.kernel[1] * p.kernel[2]) {}
};

/// Calls body(from, tap) for every tap of an output cell that lies inside of the image: the first of its group's channels in
/// the input, and in the filter.
template <typename In, typename Weight, typename Body>
BOLT_HD inline void taps_inside(const Conv& p, const Steps& steps, Index n, Index k, Index z, Index y, Index x,
                                const In* in, const Weight* weights, const Body& body) {
  const Index first = k / (p.out_channels / p.groups) * steps.channels, plane = p.in[0] * p.in[1] * p.in[2];
  const Index cell = p.channels_last ? p.channels : 1;
  const In* image = in + n * p.channels * plane + first * steps.channel;
  const Weight* filter = weights + k * steps.channels * steps.tap;
  for (Index i = 0; i < p.kernel[0]; ++i) {
    const Index sz = z * p.stride[0] - p.pad_begin[0] + i * p.dilation[0];
    if (sz < 0 || sz >= p.in[0]) continue;
    for (Index j = 0; j < p.kernel[1]; ++j) {
      const Index sy = y * p.stride[1] - p.pad_begin[1] + j * p.dilation[1];
      if (sy < 0 || sy >= p.in[1]) continue;
      for (Index l = 0; l < p.kernel[2]; ++l) {
        const Index sx = x * p.stride[2] - p.pad_begin[2] + l * p.dilation[2];
        if (sx < 0 || sx >= p.in[2]) continue;
        body(image + ((sz * p.in[1] + sy) * p.in[2] + sx) * cell, filter + (i * p.kernel[1] + j) * p.kernel[2] + l);
      }
    }
  }
}

template <typename In, typename Weight>
BOLT_HD inline float conv_cell(const Conv& p, Index n, Index k, Index z, Index y, Index x, const In* in,
                               const Weight* weights) {
  const Steps steps(p);
  float sum = 0.0f;
  taps_inside(p, steps, n, k, z, y, x, in, weights, [&](const In* from, const Weight* tap) {
    float part = 0.0f;
    for (Index c = 0; c < steps.channels; ++c) part += load(from + c * steps.channel) * load(tap + c * steps.tap);
    sum += part;
  });
  return sum;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/products/conv.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// Per-channel operands of the epilogue follow the output's channels; a bias is such a stage.
template <typename In, typename Weight, typename Out, typename Epilogue>
void conv(const Run& r, const Conv& p, const void* input, const void* weights, void* output,
          const Epilogue& epilogue) {
  const Index plane = p.out[0] * p.out[1] * p.out[2];
  const Index cost = p.channels / p.groups * p.kernel[0] * p.kernel[1] * p.kernel[2];
  parallel(r, p.batch * p.out_channels * p.out[0] * p.out[1], cost * p.out[2], [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      // Rows of the output in an order that is near the memory's: channels vary fastest when they are last.
      Index rest = row, k = 0;
      if (p.channels_last) {
        k = rest % p.out_channels;
        rest /= p.out_channels;
      }
      const Index y = rest % p.out[1], z = rest / p.out[1] % p.out[0];
      rest = rest / p.out[1] / p.out[0];
      if (!p.channels_last) {
        k = rest % p.out_channels;
        rest /= p.out_channels;
      }
      const Index n = rest;
      for (Index x = 0; x < p.out[2]; ++x) {
        const float sum = conv_cell(p, n, k, z, y, x, static_cast<const In*>(input),
                                    static_cast<const Weight*>(weights));
        const Index position = (z * p.out[1] + y) * p.out[2] + x;
        const Index to = n * p.out_channels * plane +
                         (p.channels_last ? position * p.out_channels + k : k * plane + position);
        store(static_cast<Out*>(output) + to, epilogue(sum, Place{to, k}));
      }
    }
  });
}

}  // namespace bolt::portable
#endif
