// Regions of images whose channels lie last: a thread has neighbouring channels of a cell, which it loads and stores at once.
#pragma once

#include "bolt_portable/cuda/wide.h"
#include "bolt_portable/divisor.h"
#include "bolt_portable/regions.h"

namespace bolt::portable {

/// Whether channels are so many whole words of both tensors.
template <int words, typename In, typename Out>
bool roi_in_words(const RoiAlign& p, const In* in, const Out* out) {
  const bool last = p.in_channel == 1 && p.out_channel == 1 && p.channels % (words * wide) == 0;
  return last && in_lanes(in, wide) && in_lanes(out, wide);
}

/// `words` words of channels of one cell. The cells of a region follow each other: neighbours of one find its pixels in the
/// cache.
template <bool maximum, int words, typename In, typename Region>
__device__ inline void roi_word(const RoiAlign& p, const In* in, const Region* region, Index row, Index column, float* made) {
  const RoiSamples down = roi_samples(load(region + 1), load(region + 3), p.scale, p.half, p.height, row, p.ratio, p.rows);
  const RoiSamples across = roi_samples(load(region), load(region + 2), p.scale, p.half, p.width, column, p.ratio, p.columns);
#pragma unroll
  for (int c = 0; c < words * wide; ++c) made[c] = maximum ? -INFINITY : 0.0f;
  Index seen = 0, y[2], x[2];
  float wy[2], wx[2];
  for (Index i = down.first; i < down.last; ++i) {
    if (!roi_neighbours(down[i], p.rows, y, wy)) continue;
    for (Index j = across.first; j < across.last; ++j) {
      if (!roi_neighbours(across[j], p.columns, x, wx)) continue;
      ++seen;
#pragma unroll
      for (int word = 0; word < words; ++word) {
        float corner[4][wide];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          load_wide(in + y[k / 2] * p.in_row + x[k % 2] * p.in_column + word * wide, corner[k]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float weight = wy[k / 2] * wx[k % 2];
#pragma unroll
          for (int c = 0; c < wide; ++c) {
            float& own = made[word * wide + c];
            own = maximum ? larger(own, weight * corner[k][c]) : own + weight * corner[k][c];
          }
        }
      }
    }
  }
  const float many = static_cast<float>(down.many) * static_cast<float>(across.many);
  const float part = 1.0f / (many > 1.0f ? many : 1.0f);
#pragma unroll
  for (int c = 0; c < words * wide; ++c) {
    if (!maximum)
      made[c] *= part;
    else if (seen == 0)
      made[c] = 0.0f;
    else if (static_cast<float>(seen) < many)  // a sample outside is 0 too
      made[c] = larger(made[c], 0.0f);
  }
}

/// Threads with `words` words each: places are computed once for all of them.
template <bool maximum, int words, typename In, typename Region, typename I, typename Out>
void roi_words(const Run& r, const RoiAlign& p, const In* in, const Region* from, const I* of, Out* out) {
  constexpr int own = words * wide;
  const Divisor each(p.channels / own), cells(p.height * p.width), width(p.width);
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  launch_each(
      r, p.regions * p.height * p.width * (p.channels / own),
      [=] __device__(std::uint32_t item) {
        const std::uint32_t place = each.quotient(item), region = cells.quotient(place);
        const std::uint32_t channel = (item - place * each.by) * own, cell = place - region * cells.by;
        const std::uint32_t row = width.quotient(cell), column = cell - row * width.by;
        const Index image = inside(static_cast<Index>(of[region]), p.images, fault, mark);
        float made[own];
        roi_word<maximum, words>(p, in + image * p.in_image + channel, from + Index{region} * 4, row, column, made);
        Out* const to = out + region * p.out_region + row * p.out_row + column * p.out_column + channel;
#pragma unroll
        for (int word = 0; word < words; ++word) store_wide(to + word * wide, made + word * wide);
      },
      "region");
}

}  // namespace bolt::portable
