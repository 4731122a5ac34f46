// CUDA driver of integer_conv.h: an implicit product in tiles, or where groups are narrow a thread an output cell.
#pragma once

#include "bolt_portable/cuda/products/conv.h"

namespace bolt::portable {

/// `WindowFactor` of integers less their zero point, which is what lies in the pads.
template <typename In>
struct IntegerWindows : WindowFactor<In> {
  using Base = WindowFactor<In>;
  std::int32_t zero;

  __device__ std::int32_t load(const typename Base::Line& line, const typename Base::Place& place) const {
    Index cell = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const int at = line.corner[axis] + place.tap[axis];
      if (at < 0 || at >= this->p.in[axis]) return 0;
      cell = cell * this->p.in[axis] + at;
    }
    const Index step = this->p.channels_last ? this->p.channels : 1;
    return static_cast<std::int32_t>(this->from[line.image + cell * step + place.channel]) - zero;
  }
};

/// `FilterFactor` of integers less their zero points.
template <typename Weight>
struct IntegerFilters {
  struct Line {
    Index at;
    std::int32_t zero;
  };
  const Weight* from;  // the group's first filter
  const Weight* zeros;
  Index zero_step;
  std::uint32_t channels, taps;
  bool along;

  __device__ Line line(std::uint32_t i) const {
    return {static_cast<Index>(i) * channels * taps, static_cast<std::int32_t>(zeros[i * zero_step])};
  }
  __device__ std::uint32_t place(std::uint32_t k) const { return k % channels * taps + k / channels; }
  __device__ std::int32_t load(const Line& line, std::uint32_t place) const {
    return static_cast<std::int32_t>(from[line.at + place]) - line.zero;
  }
};

template <typename In, typename Weight>
struct IntegerConvFactors {
  IntegerConv q;
  const In* in;
  const Weight* weights;
  const In* in_zero;
  const Weight* weight_zero;
  const std::int32_t* bias;
  std::int32_t* out;

  struct Finish {
    const Conv& p;
    Index first, cells;  // of all channels; and positions of an image
    const std::int32_t* bias;
    std::int32_t* out;
    __device__ void operator()(std::int32_t sum, std::uint32_t row, std::uint32_t column) const {
      const Index channel = first + column;
      const Index to = p.channels_last ? row * p.out_channels + channel
                                       : (row / cells * p.out_channels + channel) * cells + row % cells;
      out[to] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) +
                                          (bias ? static_cast<std::uint32_t>(bias[channel]) : 0u));
    }
  };
  struct Found {
    IntegerWindows<In> left;
    IntegerFilters<Weight> right;
    Finish finish;
  };
  __device__ Found operator()(std::uint32_t group) const {
    const Conv& p = q.of;
    const Index channels = p.channels / p.groups, filters = p.out_channels / p.groups;
    const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], cell = p.in[0] * p.in[1] * p.in[2];
    const std::uint32_t c = static_cast<std::uint32_t>(channels), t = static_cast<std::uint32_t>(taps);
    return {{{p, in + group * channels * (p.channels_last ? 1 : cell), c, p.channels_last},
             static_cast<std::int32_t>(*in_zero)},
            {weights + group * filters * channels * taps, weight_zero + group * filters * q.filter_zero, q.filter_zero, c,
             t, true},
            {p, group * filters, p.out[0] * p.out[1] * p.out[2], bias, out}};
  }
};

template <typename In, typename Weight>
void integer_conv(const Run& r, const IntegerConv& q, const void* input, const void* weights, const void* input_zero,
                  const void* weights_zero, const void* offset, void* output) {
  const Conv& p = q.of;
  const IntegerConvFactors<In, Weight> factors{q,
                                               static_cast<const In*>(input),
                                               static_cast<const Weight*>(weights),
                                               static_cast<const In*>(input_zero),
                                               static_cast<const Weight*>(weights_zero),
                                               static_cast<const std::int32_t*>(offset),
                                               static_cast<std::int32_t*>(output)};
  const Index cells = p.batch * p.out[0] * p.out[1] * p.out[2], of_group = p.out_channels / p.groups;
  if (cells >= least_tiled && of_group >= least_tiled) {
    const Index depth = p.channels / p.groups * p.kernel[0] * p.kernel[1] * p.kernel[2];
    launch_tiles<std::int32_t>(r, p.groups, cells, of_group, depth, factors, "integer convolution");
    return;
  }
  launch_each(
      r, p.batch * p.out_channels * p.out[0] * p.out[1] * p.out[2],
      [=] __device__(std::uint32_t item) {
        const OutputCell cell(q.of, item);
        factors.out[item] = integer_cell(q, cell.n, cell.k, cell.at[0], cell.at[1], cell.at[2], factors.in, factors.weights,
                                         factors.in_zero, factors.weight_zero, factors.bias);
      },
      "integer convolution");
}

}  // namespace bolt::portable
