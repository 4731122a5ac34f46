// The largest elements of cells of regions.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/fast_math.h"
#include "bolt_portable/indices.h"
#include "bolt_portable/region_items.h"

namespace bolt::portable {

/// Steps are elements of the input and the output from one image (of the output: region), channel, row and column to the
/// next.
struct RoiPool {
  Index images, channels, rows, columns, regions, height, width;
  float scale;
  Index in_image, in_channel, in_row, in_column, out_region, out_channel, out_row, out_column;
};

/// Pixels of an axis: from `first` to the one in front of `last`.
struct RoiSpan {
  Index first, last;
};

/// A corner in whole pixels, halves away from zero; 0 for NaN, and at most as far as fp32 has halves.
BOLT_HD inline Index roi_corner(float at, float scale) {
  constexpr float far = 16777216.0f;
  const float pixel = std::round(at * scale);
  return pixel >= -far ? static_cast<Index>(pixel <= far ? pixel : far) : pixel < -far ? static_cast<Index>(-far) : 0;
}

BOLT_HD inline RoiSpan roi_span(Index begin, Index end, Index cells, Index cell, Index extent) {
  const Index size = end - begin + 1 > 1 ? end - begin + 1 : 1;
  const float each = static_cast<float>(size) / static_cast<float>(cells);
  const Index low = begin + static_cast<Index>(std::floor(static_cast<float>(cell) * each));
  const Index high = begin + static_cast<Index>(std::ceil(static_cast<float>(cell + 1) * each));
  return {low < 0 ? 0 : low < extent ? low : extent, high < 0 ? 0 : high < extent ? high : extent};
}

template <typename In, typename Region, typename I, typename Out>
void roi_pool(const Run& r, const RoiPool& p, const void* input, const void* regions, const void* images, void* output) {
  const In* in = static_cast<const In*>(input);
  const Region* from = static_cast<const Region*>(regions);
  const I* of = static_cast<const I*>(images);
  Out* out = static_cast<Out*>(output);
  check_indices(r, of, p.regions, Extents{1, {p.images}});
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
  const bool last = p.out_channel == 1;
  for_each_item(
      r, p.regions * p.height * p.width * p.channels, 16,
      [=] BOLT_BODY(Index item) {
        const RoiItem at = roi_item(p, last, item, of, fault, mark);
        Index corner[4];
        for (int i = 0; i < 4; ++i) corner[i] = roi_corner(load(from + at.region * 4 + i), p.scale);
        const RoiSpan down = roi_span(corner[1], corner[3], p.height, at.row, p.rows);
        const RoiSpan across = roi_span(corner[0], corner[2], p.width, at.column, p.columns);
        const In* const own = in + at.read(p);
        float top = down.first < down.last && across.first < across.last ? -INFINITY : 0.0f;
        for (Index y = down.first; y < down.last; ++y)
          for (Index x = across.first; x < across.last; ++x) top = larger(top, load(own + y * p.in_row + x * p.in_column));
        store(out + at.stored(p), top);
      },
      "region");
}

}  // namespace bolt::portable
