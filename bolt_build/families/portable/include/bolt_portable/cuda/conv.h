// CUDA driver of conv.h: a thread an output cell.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

template <typename In, typename Weight, typename Out, typename Epilogue>
void conv(const Run& r, const Conv& p, const void* input, const void* weights, void* output,
          const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  const Weight* filters = static_cast<const Weight*>(weights);
  Out* out = static_cast<Out*>(output);
  launch_each(
      r, p.batch * p.out_channels * p.out[0] * p.out[1] * p.out[2],
      [=] __device__(std::uint32_t item) {
        std::uint32_t rest = item, k = 0, at[3];
        const std::uint32_t channels = static_cast<std::uint32_t>(p.out_channels);
        if (p.channels_last) {
          k = rest % channels;
          rest /= channels;
        }
        for (int axis = 2; axis >= 0; --axis) {
          const std::uint32_t extent = static_cast<std::uint32_t>(p.out[axis]);
          at[axis] = rest % extent;
          rest /= extent;
        }
        if (!p.channels_last) {
          k = rest % channels;
          rest /= channels;
        }
        const float sum = conv_cell(p, rest, k, at[0], at[1], at[2], in, filters);
        store(out + item, epilogue(sum, Place{item, k}));
      },
      "convolution");
}

}  // namespace bolt::portable
