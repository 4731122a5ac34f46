// Images and volumes read at places of a grid.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

enum class GridMode { nearest = 1, linear = 2, cubic = 4 };
enum class GridPadding { zeros, border, reflection };

/// `in` are depth, height and width, 1 where there is no such axis, of which `axes` are. Steps are elements of the input
/// and the output from one image, channel and cell to the next.
struct GridSample {
  Index batch, channels, in[3], cells;
  int axes;
  bool align_corners;
  Index in_image, in_channel, in_step[3], out_image, out_channel, out_cell;
};

/// The neighbours of a place along one axis: which elements, and their weights.
struct GridTaps {
  Index at[4];
  float weight[4];
};

template <GridPadding padding>
BOLT_HD inline float grid_inside(float x, Index extent, bool align_corners) {
  const float last = static_cast<float>(extent - 1);
  if constexpr (padding == GridPadding::border) return x < 0.0f ? 0.0f : x > last ? last : x;
  if constexpr (padding == GridPadding::reflection) {
    const float low = align_corners ? 0.0f : -0.5f, high = last - low;
    if (high <= low) return 0.0f;
    if (x >= low && x <= high) return x;
    const float distance = x < low ? low - x : x - low, range = high - low;
    const float times = std::floor(distance / range), rest = distance - times * range;
    return std::floor(times * 0.5f) * 2.0f == times ? low + rest : high - rest;
  }
  return x;
}

/// `place` from -1 to 1.
template <GridMode mode, GridPadding padding>
BOLT_HD inline GridTaps grid_taps(float place, Index extent, bool align_corners) {
  const float length = static_cast<float>(extent);
  constexpr float far = 1048576.0f;
  // NaN too. Before the product: of one aligned element every place is this element, and 0 times infinity is NaN.
  place = place > far ? far : place > -far ? place : -far;
  float x = align_corners ? (place + 1.0f) * 0.5f * (length - 1.0f) : ((place + 1.0f) * length - 1.0f) * 0.5f;
  GridTaps taps{};
  float first;
  if constexpr (mode == GridMode::nearest) {
    first = std::rint(x);
    taps.weight[0] = 1.0f;
  } else if constexpr (mode == GridMode::linear) {
    x = grid_inside<padding>(x, extent, align_corners);
    first = std::floor(x);
    taps.weight[0] = 1.0f - (x - first);
    taps.weight[1] = x - first;
  } else {
    first = std::floor(x) - 1.0f;
    const float t = x - first - 1.0f, a = -0.75f;
    for (int i = 0; i < 4; ++i) {
      const float d = t + 1.0f - i < 0.0f ? i - 1.0f - t : t + 1.0f - i;
      taps.weight[i] =
          d <= 1.0f ? ((a + 2.0f) * d - (a + 3.0f)) * d * d + 1.0f : ((a * d - 5.0f * a) * d + 8.0f * a) * d - 4.0f * a;
    }
  }
  for (int i = 0; i < static_cast<int>(mode); ++i) {
    const float at = grid_inside<padding>(first + i, extent, align_corners);
    const bool outside = at < 0.0f || at > length - 1.0f;
    taps.at[i] = outside ? 0 : static_cast<Index>(at);
    if (outside) taps.weight[i] = 0.0f;
  }
  return taps;
}

/// Channels from `begin` to `end` of one cell of the output.
template <GridMode mode, GridPadding padding, typename In, typename Grid, typename Out>
BOLT_HD inline void grid_cell(const GridSample& p, const In* in, const Grid* grid, Out* out, Index image, Index cell,
                              Index begin, Index end) {
  constexpr int count = static_cast<int>(mode);
  const Grid* place = grid + (image * p.cells + cell) * p.axes;
  GridTaps taps[3];
  for (int axis = 0; axis < 3; ++axis) {
    if (axis < 3 - p.axes)
      taps[axis] = GridTaps{{0}, {1.0f}};
    else
      taps[axis] = grid_taps<mode, padding>(load(place + 2 - axis), p.in[axis], p.align_corners);
  }
  const int depths = p.axes > 2 ? count : 1, rows = p.axes > 1 ? count : 1;
  for (Index channel = begin; channel < end; ++channel) {
    const In* from = in + image * p.in_image + channel * p.in_channel;
    float sum = 0.0f;
    for (int i = 0; i < depths; ++i)
      for (int j = 0; j < rows; ++j)
        for (int k = 0; k < count; ++k) {
          const float weight = taps[0].weight[i] * taps[1].weight[j] * taps[2].weight[k];
          const Index at = taps[0].at[i] * p.in_step[0] + taps[1].at[j] * p.in_step[1] + taps[2].at[k] * p.in_step[2];
          if (weight != 0.0f) sum += weight * load(from + at);
        }
    store(out + image * p.out_image + channel * p.out_channel + cell * p.out_cell, sum);
  }
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/images/grid_sample.h"
#endif

namespace bolt::portable {

/// A host's item is a cell, a GPU's some channels of one.
template <GridMode mode, GridPadding padding, typename In, typename Grid, typename Out>
void grid_sample(const Run& r, const GridSample& p, const void* input, const void* places, void* output) {
  const In* in = static_cast<const In*>(input);
  const Grid* grid = static_cast<const Grid*>(places);
  Out* out = static_cast<Out*>(output);
#if defined(__CUDACC__)
  grid_by_points<mode, padding>(r, p, in, grid, out);
#else
  for_each_item(
      r, p.batch * p.cells, p.channels * 8,
      [=] BOLT_BODY(Index item) {
        grid_cell<mode, padding>(p, in, grid, out, item / p.cells, item % p.cells, 0, p.channels);
      },
      "grid sample");
#endif
}

}  // namespace bolt::portable
