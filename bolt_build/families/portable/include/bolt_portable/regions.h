// Images read between their pixels: regions of them as images of one size, and windows whose taps lie where data say.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/fast_math.h"
#include "bolt_portable/indices.h"
#include "bolt_portable/region_items.h"

namespace bolt::portable {

/// Steps are elements of the input and the output from one image (of the output: region), channel, row and column to the
/// next.
struct RoiAlign {
  Index images, channels, rows, columns, regions, height, width, ratio;
  float scale;
  bool half;
  Index in_image, in_channel, in_row, in_column, out_region, out_channel, out_row, out_column;
};

/// Samples of a cell along one axis: `many` of them, of which those from `first` to `last` may lie inside.
struct RoiSamples {
  float begin, size;
  Index many, first, last;
  BOLT_HD float operator[](Index i) const {
    return begin + (static_cast<float>(i) + 0.5f) * size / static_cast<float>(many);
  }
};

/// `most`: more samples than any image's region has.
BOLT_HD inline RoiSamples roi_samples(float low, float high, float scale, bool half, Index cells, Index cell, Index ratio,
                                      Index extent) {
  constexpr float most = 1048576.0f;
  const float offset = half ? 0.5f : 0.0f, begin = low * scale - offset;
  float size = high * scale - offset - begin;
  if (!half && !(size >= 1.0f)) size = 1.0f;
  const float each = size / static_cast<float>(cells);
  const float wanted = ratio > 0 ? static_cast<float>(ratio) : std::ceil(each);
  RoiSamples found;
  found.many = wanted > 0.0f ? static_cast<Index>(wanted < most ? wanted : most) : 0;  // none of NaN
  found.size = each;
  found.begin = begin + static_cast<float>(cell) * each;
  found.first = 0;
  found.last = found.many;
  // Of a region much larger than the image only the samples near it are looked at: they are at most a pixel apart.
  if (found.many > 2 * extent + 8) {
    const float step = each / static_cast<float>(found.many);
    const float from = (-1.0f - found.begin) / step - 2.0f, to = (static_cast<float>(extent) - found.begin) / step + 2.0f;
    const float end = static_cast<float>(found.many);
    found.first = from > 0.0f ? static_cast<Index>(from < end ? from : end) : 0;
    found.last = to < end ? static_cast<Index>(to > 0.0f ? to : 0.0f) : found.many;
  }
  return found;
}

/// Both neighbours of a place along an axis and their weights; false more than a pixel outside of it.
BOLT_HD inline bool roi_neighbours(float place, Index extent, Index* at, float* weight) {
  if (!(place >= -1.0f && place <= static_cast<float>(extent))) return false;
  if (place < 0.0f) place = 0.0f;
  Index low = static_cast<Index>(place);
  if (low >= extent - 1) {
    low = extent - 1;
    place = static_cast<float>(low);
  }
  at[0] = low;
  at[1] = low + 1 < extent ? low + 1 : low;
  weight[1] = place - static_cast<float>(low);
  weight[0] = 1.0f - weight[1];
  return true;
}

/// One element of the output.
template <bool maximum, typename In, typename Region>
BOLT_HD inline float roi_cell(const RoiAlign& p, const In* in, const Region* region, Index row, Index column) {
  const RoiSamples down = roi_samples(load(region + 1), load(region + 3), p.scale, p.half, p.height, row, p.ratio, p.rows);
  const RoiSamples across = roi_samples(load(region), load(region + 2), p.scale, p.half, p.width, column, p.ratio, p.columns);
  float sum = 0.0f, top = -INFINITY;
  Index seen = 0, y[2], x[2];
  float wy[2], wx[2];
  for (Index i = down.first; i < down.last; ++i) {
    if (!roi_neighbours(down[i], p.rows, y, wy)) continue;
    for (Index j = across.first; j < across.last; ++j) {
      if (!roi_neighbours(across[j], p.columns, x, wx)) continue;
      ++seen;
      for (int a = 0; a < 2; ++a)
        for (int b = 0; b < 2; ++b) {
          const float value = wy[a] * wx[b] * load(in + y[a] * p.in_row + x[b] * p.in_column);
          if (maximum)
            top = larger(top, value);
          else
            sum += value;
        }
    }
  }
  const float many = static_cast<float>(down.many) * static_cast<float>(across.many);
  if (!maximum) return sum / (many > 1.0f ? many : 1.0f);
  // A sample outside is 0 too.
  if (seen == 0) return 0.0f;
  return static_cast<float>(seen) < many ? larger(top, 0.0f) : top;
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/images/region_words.h"
#endif

namespace bolt::portable {

/// On GPUs a thread has `words` words of channels where they lie last; 0: one element.
template <bool maximum, int words, typename In, typename Region, typename I, typename Out>
void roi_align(const Run& r, const RoiAlign& p, const void* input, const void* regions, const void* images, void* output) {
  const In* in = static_cast<const In*>(input);
  const Region* from = static_cast<const Region*>(regions);
  const I* of = static_cast<const I*>(images);
  Out* out = static_cast<Out*>(output);
  check_indices(r, of, p.regions, Extents{1, {p.images}});
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  const bool last = p.out_channel == 1;
#if defined(__CUDACC__)
  if constexpr (words > 0)
    if (roi_in_words<words>(p, in, out)) return roi_words<maximum, words>(r, p, in, from, of, out);
#endif
  for_each_item(
      r, p.regions * p.height * p.width * p.channels, 16,
      [=] BOLT_BODY(Index item) {
        const RoiItem at = roi_item(p, last, item, of, fault, mark);
        const float value = roi_cell<maximum>(p, in + at.read(p), from + at.region * 4, at.row, at.column);
        store(out + at.stored(p), value);
      },
      "region");
}

/// Steps are elements of the input. Places and taps count [height, width], the taps of a channel those of its group.
struct DeformedWindows {
  Index images, channels, groups, rows, columns, height, width, kernel[2], stride[2], begin[2], dilation[2];
  Index in_image, in_channel, in_row, in_column;
};

template <typename In, typename Offset, typename Mask, typename Out>
void deformed_windows(const Run& r, const DeformedWindows& p, const void* input, const void* offsets, const void* masks,
                      void* output) {
  const In* in = static_cast<const In*>(input);
  const Offset* by = static_cast<const Offset*>(offsets);
  const Mask* factors = static_cast<const Mask*>(masks);
  Out* out = static_cast<Out*>(output);
  for_each_item(
      r, p.images * p.height * p.width * p.channels * p.kernel[0] * p.kernel[1], 8,
      [=] BOLT_BODY(Index item) {
        // Neighbours of the output are taps of one channel, whose pixels mostly lie beside each other.
        const Position taps = static_cast<Position>(p.kernel[0] * p.kernel[1]), channels = static_cast<Position>(p.channels);
        const Position places = static_cast<Position>(p.height * p.width), width = static_cast<Position>(p.width);
        Position rest = static_cast<Position>(item);
        const Index tap = rest % taps;
        rest /= taps;
        const Index channel = rest % channels;
        rest /= channels;
        const Index place = rest % places, image = rest / places;
        const Index group = channel / (p.channels / p.groups), own = (image * p.groups + group) * taps + tap;
        const Index row = place / width, column = place % width;
        const Index all = static_cast<Index>(places);
        constexpr float far = 1073741824.0f;
        float at[2] = {load(by + 2 * own * all + place), load(by + (2 * own + 1) * all + place)};
        at[0] += static_cast<float>(row * p.stride[0] - p.begin[0] + tap / p.kernel[1] * p.dilation[0]);
        at[1] += static_cast<float>(column * p.stride[1] - p.begin[1] + tap % p.kernel[1] * p.dilation[1]);
        Index low[2];
        float part[2];
        for (int axis = 0; axis < 2; ++axis) {
          const float held = at[axis] > far ? far : at[axis] > -far ? at[axis] : -far;  // NaN too
          const float below = std::floor(held);
          low[axis] = static_cast<Index>(below);
          part[axis] = held - below;
        }
        const In* from = in + image * p.in_image + channel * p.in_channel;
        float sum = 0.0f;
        for (int a = 0; a < 2; ++a)
          for (int b = 0; b < 2; ++b) {
            const Index y = low[0] + a, x = low[1] + b;
            if (y < 0 || y >= p.rows || x < 0 || x >= p.columns) continue;
            const float weight = (a ? part[0] : 1.0f - part[0]) * (b ? part[1] : 1.0f - part[1]);
            sum += weight * load(from + y * p.in_row + x * p.in_column);
          }
        if (factors != nullptr) sum *= load(factors + own * all + place);
        store(out + item, sum);
      },
      "deformed window");
}

}  // namespace bolt::portable
