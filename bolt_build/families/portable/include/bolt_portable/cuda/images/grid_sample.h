// CUDA driver of grid_sample.h: a thread finds a cell's neighbours once for several channels.
#pragma once

#include "bolt_portable/cuda/cells.h"
#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Channels of a thread.
constexpr int grid_channels = 8;

/// A thread has `each` channels of a cell. Neighbouring threads have neighbouring cells, or, where channels lie `beside` each
/// other, neighbouring channels. These are loaded and stored at once where they are `whole` accesses.
template <GridMode mode, GridPadding padding, int each, bool beside, bool whole, typename In, typename Grid, typename Out>
struct GridPoints {
  static constexpr int count = static_cast<int>(mode);
  GridSample p;
  const In* in;
  const Grid* grid;
  Out* out;
  Divisor groups, cells;  ///< groups of channels, and cells

  __device__ void operator()(std::uint32_t item) const {
    const Divisor &inner = beside ? groups : cells, &outer = beside ? cells : groups;
    const std::uint32_t rest = inner.quotient(item), image = outer.quotient(rest);
    const std::uint32_t own = item - rest * inner.by, other = rest - image * outer.by;
    const Index cell = beside ? other : own, channel = Index{beside ? own : other} * each;
    const Grid* const place = grid + (image * p.cells + cell) * p.axes;
    GridTaps taps[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      taps[axis] = axis < 3 - p.axes ? GridTaps{{0}, {1.0f}}
                                     : grid_taps<mode, padding>(load(place + 2 - axis), p.in[axis], p.align_corners);
    const In* const from = in + image * p.in_image + channel * p.in_channel;
    float sums[each] = {};
    const int depths = p.axes > 2 ? count : 1, rows = p.axes > 1 ? count : 1;
    // Rows of four are a loop: written out, compilers take long for them.
    constexpr int written_out = count <= 2 ? count : 1;
#pragma unroll 1
    for (int i = 0; i < depths; ++i)
#pragma unroll written_out
      for (int j = 0; j < count; ++j) {
        if (j >= rows) continue;
        const Tap above = of(taps[0], i), own_row = of(taps[1], j);
        const In* const row = from + above.at * p.in_step[0] + own_row.at * p.in_step[1];
#pragma unroll
        for (int k = 0; k < count; ++k) {
          const float weight = above.weight * own_row.weight * taps[2].weight[k];
          if (weight != 0.0f) add(sums, weight, row + taps[2].at[k] * p.in_step[2], channel);
        }
      }
    leave(sums, out + image * p.out_image + channel * p.out_channel + cell * p.out_cell, channel);
  }

 private:
  struct Tap {
    Index at;
    float weight;
  };
  /// Of a number that is known when the kernel runs alone.
  __device__ static Tap of(const GridTaps& taps, int which) {
    Tap found{taps.at[0], taps.weight[0]};
#pragma unroll
    for (int i = 1; i < count; ++i)
      if (which == i) found = {taps.at[i], taps.weight[i]};
    return found;
  }

  __device__ void add(float (&sums)[each], float weight, const In* from, Index channel) const {
    if constexpr (whole) {
      float values[each];
      reinterpret_cast<const Cells<In, each>*>(from)->values(values);
#pragma unroll
      for (int c = 0; c < each; ++c) sums[c] += weight * values[c];
    } else {
#pragma unroll
      for (int c = 0; c < each; ++c)
        if (each == 1 || channel + c < p.channels) sums[c] += weight * load(from + c * p.in_channel);
    }
  }

  __device__ void leave(const float (&sums)[each], Out* to, Index channel) const {
    if constexpr (whole) {
      *reinterpret_cast<Cells<Out, each>*>(to) = Cells<Out, each>::of(sums);
    } else {
#pragma unroll
      for (int c = 0; c < each; ++c)
        if (each == 1 || channel + c < p.channels) store(to + c * p.out_channel, sums[c]);
    }
  }
};

template <GridMode mode, GridPadding padding, int each, bool beside, bool whole, typename In, typename Grid, typename Out>
void grid_points(const Run& r, const GridSample& p, const In* in, const Grid* grid, Out* out) {
  const Index groups = (p.channels + each - 1) / each;
  if (p.batch * p.cells * groups == 0) return;
  launch_each(r, p.batch * p.cells * groups,
              GridPoints<mode, padding, each, beside, whole, In, Grid, Out>{p, in, grid, out, Divisor(groups), Divisor(p.cells)},
              "sampling of a grid");
}

/// Channels beside each other in whole accesses where both tensors have them; of planes some of a thread.
template <GridMode mode, GridPadding padding, typename In, typename Grid, typename Out>
void grid_by_points(const Run& r, const GridSample& p, const In* in, const Grid* grid, Out* out) {
  constexpr int each = grid_channels;
  const auto whole = [&](Index step) { return step % each == 0; };
  const bool beside = p.in_channel == 1 && p.out_channel == 1;
  if (beside && p.channels % each == 0 && in_lanes(in, each) && in_lanes(out, each) && whole(p.in_image) && whole(p.out_image) &&
      whole(p.out_cell) && whole(p.in_step[0]) && whole(p.in_step[1]) && whole(p.in_step[2]))
    grid_points<mode, padding, each, true, true>(r, p, in, grid, out);
  else if (beside)
    grid_points<mode, padding, 1, true, false>(r, p, in, grid, out);
  else if (p.channels > 1)
    grid_points<mode, padding, each / 2, false, false>(r, p, in, grid, out);
  else
    grid_points<mode, padding, 1, false, false>(r, p, in, grid, out);
}

}  // namespace bolt::portable
