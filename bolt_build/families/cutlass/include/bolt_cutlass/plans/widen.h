// Brings an image into the form that the kernels read: f16 or bf16, channels last, channels and width padded.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::cutlass_kernels {

/// x as [batch, height, width, channels] with strides in elements, to dense [batch, height, to_width, to_channels]: the
/// columns begin with `left` of zeros, and what x has not is zero. `to_channels` is 4 or a multiple of 8.
struct Widen {
  int batch, height, width, channels;
  long long image, row, column, channel;
  int to_width, to_channels, left;

  std::size_t bytes() const {
    return static_cast<std::size_t>(batch) * height * to_width * to_channels * 2;
  }
};

/// `lanes` channels of one pixel, stored at once.
template <int lanes, typename In, typename Out>
__device__ inline void widen_cell(const Widen& p, const In* x, Out* to, portable::Index item) {
  struct alignas(lanes * 2) Lanes {
    Out at[lanes];
  };
  const int groups = p.to_channels / lanes;
  const int first = static_cast<int>(item % groups) * lanes;
  const portable::Index pixel = item / groups, line = pixel / p.to_width;
  const int column = static_cast<int>(pixel % p.to_width) - p.left, row = static_cast<int>(line % p.height);
  const In* from = x + line / p.height * p.image + row * p.row + column * p.column;
  const bool inside = column >= 0 && column < p.width;
  Lanes out;
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const int channel = first + lane;
    const bool there = inside && channel < p.channels;
    out.at[lane] = Out(there ? portable::load(from + channel * p.channel) : 0.0f);
  }
  *reinterpret_cast<Lanes*>(to + item * lanes) = out;
}

template <typename In, typename Out>
void widen(const Run& r, const Widen& p, const void* x, void* to) {
  const In* in = static_cast<const In*>(x);
  Out* out = static_cast<Out*>(to);
  const portable::Index pixels = static_cast<portable::Index>(p.batch) * p.height * p.to_width;
  if (p.to_channels == 4) {
    portable::launch_each(r, pixels, [=] __device__(std::uint32_t item) { widen_cell<4>(p, in, out, item); }, "widening");
  } else {
    portable::launch_each(r, pixels * (p.to_channels / 8),
                          [=] __device__(std::uint32_t item) { widen_cell<8>(p, in, out, item); }, "widening");
  }
}

}  // namespace bolt::cutlass_kernels
