// Windows of images times filters that are data.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Extents are those of the result; `height` and `width` those of the input. Channel c has filter c / shared % sets. Steps
/// are elements from one image, channel (of filters: element of a filter), row and column to the next; those of filters
/// are 0 where there is one.
struct WeighedWindows {
  Index images, channels, rows, columns, height, width;
  Index kernel_rows, kernel_columns, down, across, apart_rows, apart_columns, top, left, shared, sets;
  Index in_image, in_channel, in_row, in_column, filter_image, filter_element, filter_row, filter_column;
  Index out_image, out_channel, out_row, out_column;
};

/// `lanes` elements: neighbours, or `step` apart.
template <int lanes, bool neighbours, typename T>
BOLT_HD inline void read_channels(const T* from, Index step, float* values) {
#if defined(__CUDA_ARCH__)
  if constexpr (neighbours) return load_lanes<lanes>(from, values);
#endif
  for (int lane = 0; lane < lanes; ++lane) values[lane] = load(from + lane * (neighbours ? 1 : step));
}

template <int lanes, bool neighbours, typename T>
BOLT_HD inline void write_channels(T* to, Index step, const float* values) {
#if defined(__CUDA_ARCH__)
  if constexpr (neighbours) return store_lanes<lanes>(to, values);
#endif
  for (int lane = 0; lane < lanes; ++lane) store(to + lane * (neighbours ? 1 : step), values[lane]);
}

/// An item has `lanes` channels, which are `neighbours` in memory or each of a plane, of `each` neighbours of a row; these
/// channels have `one` filter, or each has its own.
template <int lanes, int each, bool one, bool neighbours, typename In, typename Filter, typename Out, typename Epilogue>
void weighed_windows(const Run& r, const WeighedWindows& p, const void* input, const void* filters, void* output,
                     const Epilogue& epilogue) {
  const In* const in = static_cast<const In*>(input);
  const Filter* const weights = static_cast<const Filter*>(filters);
  Out* const out = static_cast<Out*>(output);
  const Index words = p.channels / lanes, runs = (p.columns + each - 1) / each;
  const bool last = p.out_channel == 1;
  for_each_item(
      r, p.images * p.rows * runs * words, p.kernel_rows * p.kernel_columns * lanes * each,
      [=] BOLT_BODY(Index item) {
        const Position at = static_cast<Position>(item), of_words = static_cast<Position>(words);
        const Position of_runs = static_cast<Position>(runs), of_rows = static_cast<Position>(p.rows);
        const Position inner = last ? at / of_words : at, column_run = inner % of_runs, outer = inner / of_runs;
        const Position row = outer % of_rows, rest = outer / of_rows;
        const Index channel = Index{last ? at % of_words : rest % of_words} * lanes;
        const Index image = last ? rest : rest / of_words;
        const Index column = Index{column_run} * each, taps = p.kernel_rows * p.kernel_columns;
        const In* const own = in + image * p.in_image + channel * p.in_channel;
        const Filter* const place = weights + image * p.filter_image + row * p.filter_row + column * p.filter_column;
        Index first[lanes];
        for (int lane = 0; lane < (one ? 1 : lanes); ++lane)
          first[lane] = (channel + lane) / p.shared % p.sets * taps * p.filter_element;
        float sums[each][lanes] = {};
        for (Index i = 0; i < p.kernel_rows; ++i) {
          const Index y = row * p.down - p.top + i * p.apart_rows;
          if (y < 0 || y >= p.height) continue;
          for (Index j = 0; j < p.kernel_columns; ++j) {
            const Index tap = (i * p.kernel_columns + j) * p.filter_element;
            float factors[lanes];
            for (int lane = 0; lane < lanes; ++lane)
              factors[lane] = one && lane ? factors[0] : load(place + first[one ? 0 : lane] + tap);
            for (int e = 0; e < each; ++e) {
              const Index x = (column + e) * p.across - p.left + j * p.apart_columns;
              if (x < 0 || x >= p.width || column + e >= p.columns) continue;
              float values[lanes];
              read_channels<lanes, neighbours>(own + y * p.in_row + x * p.in_column, p.in_channel, values);
              for (int lane = 0; lane < lanes; ++lane) sums[e][lane] += factors[lane] * values[lane];
            }
          }
        }
        const Index begin = image * p.out_image + channel * p.out_channel + row * p.out_row;
        for (int e = 0; e < each; ++e) {
          if (column + e >= p.columns) continue;
          const Index to = begin + (column + e) * p.out_column;
          for (int lane = 0; lane < lanes; ++lane)
            sums[e][lane] = epilogue(sums[e][lane], Place{to + lane * p.out_channel, channel + lane});
          write_channels<lanes, neighbours>(out + to, p.out_channel, sums[e]);
        }
      },
      "window");
}

}  // namespace bolt::portable
