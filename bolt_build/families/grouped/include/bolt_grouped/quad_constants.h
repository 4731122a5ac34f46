// Biases and weights that a lane of four has of its channels, in registers.
#pragma once

#include "bolt_grouped/chain_kernel.h"
#include "bolt_grouped/quads.h"

namespace bolt::grouped {

/// Constants of a lane's two channels: `channel` and the one eight behind it.
template <typename W, typename Element>
struct QuadConstants {
  static constexpr int high = W::taps_h;
  float first_bias[2], bias[2], weight[2][high][W::taps_w];

  /// Those of the product are `first_scale` times what they were, those of the convolution `scale` times.
  __device__ QuadConstants(const InvertedArguments& a, int channel, float first_scale, float scale) {
    constexpr int tall = high <= 2 ? 2 : high <= 4 ? 4 : (high + 7) / 8 * 8;
    const Arguments& conv = a.chain.conv;
    const auto* const from = static_cast<const Element*>(conv.weights);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int own = channel + 8 * h;
      first_bias[h] = a.first_bias == nullptr ? 0.0f : first_scale * a.first_bias[own];
      bias[h] = conv.bias == nullptr ? 0.0f : scale * conv.bias[own];
#pragma unroll
      for (int tap = 0; tap < W::taps_w; ++tap) {
        float column[tall];
        portable::load_lanes<tall>(from + (own * W::taps_w + tap) * tall, column);
#pragma unroll
        for (int row = 0; row < high; ++row) weight[h][row][tap] = scale * column[row];
      }
    }
  }
};

}  // namespace bolt::grouped
