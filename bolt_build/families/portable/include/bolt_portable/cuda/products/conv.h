// CUDA driver of conv.h: an implicit product in tiles, or where groups are narrow a thread an output cell.
#pragma once

#include "bolt_portable/cuda/products/tiles.h"

namespace bolt::portable {

/// Windows of the channels of a group: a line is a position of the output, the depth counts taps, and in each the channels.
template <typename In>
struct WindowFactor {
  /// The first position of a window, and its image.
  struct Line {
    Index image;
    int corner[3];
  };
  /// A tap's position in the window and its channel.
  struct Place {
    int tap[3];
    Index channel;
  };
  const Conv& p;
  const In* from;  // the group's first channel
  std::uint32_t channels;
  bool along;

  __device__ Line line(std::uint32_t i) const {
    Line found;
    for (int axis = 2; axis >= 0; --axis) {
      const std::uint32_t extent = static_cast<std::uint32_t>(p.out[axis]);
      found.corner[axis] = static_cast<int>(i % extent * p.stride[axis] - p.pad_begin[axis]);
      i /= extent;
    }
    found.image = i * p.channels * p.in[0] * p.in[1] * p.in[2];
    return found;
  }
  __device__ Place place(std::uint32_t k) const {
    Place found;
    const std::uint32_t channel = k % channels;
    found.channel = p.channels_last ? channel : channel * p.in[0] * p.in[1] * p.in[2];
    k /= channels;
    for (int axis = 2; axis >= 0; --axis) {
      const std::uint32_t extent = static_cast<std::uint32_t>(p.kernel[axis]);
      found.tap[axis] = static_cast<int>(k % extent * p.dilation[axis]);
      k /= extent;
    }
    return found;
  }
  __device__ float load(const Line& line, const Place& place) const {
    Index cell = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const int at = line.corner[axis] + place.tap[axis];
      if (at < 0 || at >= p.in[axis]) return 0.0f;
      cell = cell * p.in[axis] + at;
    }
    return portable::load(from + line.image + cell * (p.channels_last ? p.channels : 1) + place.channel);
  }
};

/// Filters [output, channel, tap], their depth in the order of a window's.
template <typename Weight>
struct FilterFactor {
  using Line = Index;
  const Weight* from;  // the group's first filter
  std::uint32_t channels, taps;
  bool along;

  __device__ Line line(std::uint32_t i) const { return static_cast<Index>(i) * channels * taps; }
  __device__ std::uint32_t place(std::uint32_t k) const { return k % channels * taps + k / channels; }
  __device__ float load(Line at, std::uint32_t place) const { return portable::load(from + at + place); }
};

/// One group's factors, and what becomes of its sums.
template <typename In, typename Weight, typename Out, typename Epilogue>
struct ConvFactors {
  Conv p;
  const In* in;
  const Weight* weights;
  Out* out;
  Epilogue epilogue;

  struct Finish {
    const Conv& p;
    Index first, cells;  // of all channels; and positions of an image
    Out* out;
    const Epilogue& epilogue;
    __device__ void operator()(float sum, std::uint32_t row, std::uint32_t column) const {
      const Index channel = first + column;
      const Index to = p.channels_last ? row * p.out_channels + channel
                                       : (row / cells * p.out_channels + channel) * cells + row % cells;
      store(out + to, epilogue(sum, Place{to, channel}));
    }
  };
  struct Found {
    WindowFactor<In> left;
    FilterFactor<Weight> right;
    Finish finish;
  };
  __device__ Found operator()(std::uint32_t group) const {
    const Index channels = p.channels / p.groups, filters = p.out_channels / p.groups;
    const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], cell = p.in[0] * p.in[1] * p.in[2];
    const std::uint32_t c = static_cast<std::uint32_t>(channels), t = static_cast<std::uint32_t>(taps);
    return {{p, in + group * channels * (p.channels_last ? 1 : cell), c, p.channels_last},
            {weights + group * filters * channels * taps, c, t, true},
            {p, group * filters, p.out[0] * p.out[1] * p.out[2], out, epilogue}};
  }
};

/// Where an output cell lies: cells follow each other in the order of memory.
struct OutputCell {
  std::uint32_t n, k = 0, at[3];
  __device__ OutputCell(const Conv& p, std::uint32_t item) {
    const std::uint32_t channels = static_cast<std::uint32_t>(p.out_channels);
    n = item;
    if (p.channels_last) {
      k = n % channels;
      n /= channels;
    }
    for (int axis = 2; axis >= 0; --axis) {
      const std::uint32_t extent = static_cast<std::uint32_t>(p.out[axis]);
      at[axis] = n % extent;
      n /= extent;
    }
    if (!p.channels_last) {
      k = n % channels;
      n /= channels;
    }
  }
};

template <typename In, typename Weight, typename Out, typename Epilogue>
void conv(const Run& r, const Conv& p, const void* input, const void* weights, void* output,
          const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  const Weight* filters = static_cast<const Weight*>(weights);
  Out* out = static_cast<Out*>(output);
  const Index cells = p.batch * p.out[0] * p.out[1] * p.out[2], of_group = p.out_channels / p.groups;
  if (cells >= least_tiled && of_group >= least_tiled) {
    const Index depth = p.channels / p.groups * p.kernel[0] * p.kernel[1] * p.kernel[2];
    launch_tiles(r, p.groups, cells, of_group, depth,
                 ConvFactors<In, Weight, Out, Epilogue>{p, in, filters, out, epilogue}, "convolution");
    return;
  }
  launch_each(
      r, p.batch * p.out_channels * p.out[0] * p.out[1] * p.out[2],
      [=] __device__(std::uint32_t item) {
        const OutputCell cell(p, item);
        const float sum = conv_cell(p, cell.n, cell.k, cell.at[0], cell.at[1], cell.at[2], in, filters);
        store(out + item, epilogue(sum, Place{item, cell.k}));
      },
      "convolution");
}

}  // namespace bolt::portable
