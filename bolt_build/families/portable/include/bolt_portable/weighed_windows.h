// Windows of images times filters that are data.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Extents are those of the result; `height` and `width` those of the input. Channel c has filter c / shared % sets. Steps
/// are elements from one image, channel (of filters: filter and tap), row and column to the next; those of filters are 0
/// where there is one.
struct WeighedWindows {
  Index images, channels, rows, columns, height, width;
  Index kernel_rows, kernel_columns, down, across, apart_rows, apart_columns, top, left, shared, sets;
  Index in_image, in_channel, in_row, in_column, filter_image, filter_set, filter_tap, filter_row, filter_column;
  Index out_image, out_channel, out_row, out_column;
};

/// `lanes` elements: neighbours, or `step` apart.
template <int lanes, bool neighbours, typename T>
BOLT_HD inline void read_channels(const T* from, Index step, float* values) {
#if defined(__CUDA_ARCH__)
  if constexpr (neighbours)
    load_lanes<lanes>(from, values);
  else
#endif
    for (int lane = 0; lane < lanes; ++lane) values[lane] = load(from + lane * (neighbours ? 1 : step));
}

template <int lanes, bool neighbours, typename T>
BOLT_HD inline void write_channels(T* to, Index step, const float* values) {
#if defined(__CUDA_ARCH__)
  if constexpr (neighbours)
    store_lanes<lanes>(to, values);
  else
#endif
    for (int lane = 0; lane < lanes; ++lane) store(to + lane * (neighbours ? 1 : step), values[lane]);
}

/// An item has `lanes` channels, which are `neighbours` in memory or each of a plane, of `each` neighbours of a row; these
/// channels have `one` filter, or each has its own; `words_of`: those of a tap lie side by side.
template <int lanes, int each, bool one, bool neighbours, bool words_of, typename In, typename Filter, typename Out,
          typename Epilogue>
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
        const Position inner = last ? at / of_words : at, outer = inner / of_runs, rest = outer / of_rows;
        const int column = static_cast<int>(inner - outer * of_runs) * each, row = static_cast<int>(outer - rest * of_rows);
        const int channel = static_cast<int>(last ? at - inner * of_words : rest % of_words) * lanes;
        const Index image = last ? rest : rest / of_words;
        // Within an image 32 bits do: 64 take several times the instructions.
        const int width = static_cast<int>(p.width), height = static_cast<int>(p.height), across = static_cast<int>(p.across);
        const int step = static_cast<int>(p.in_column), tap = static_cast<int>(p.filter_tap);
        const int sets = static_cast<int>(p.sets), shared = static_cast<int>(p.shared);
        const int rows_of = static_cast<int>(p.kernel_rows), columns_of = static_cast<int>(p.kernel_columns);
        const int apart = static_cast<int>(p.apart_columns), begin = column * across - static_cast<int>(p.left);
        const In* const own = in + image * p.in_image + channel * p.in_channel;
        const Filter* place = weights + image * p.filter_image + row * p.filter_row + column * p.filter_column;
        int first[lanes];
        int run = channel / shared, within = channel - run * shared, set = run % sets;
        for (int lane = 0; lane < (one || words_of ? 1 : lanes); ++lane) {
          first[lane] = set * static_cast<int>(p.filter_set);
          if (++within == shared) {
            within = 0;
            if (++set == sets) set = 0;
          }
        }
        float sums[each][lanes] = {};
        int y = row * static_cast<int>(p.down) - static_cast<int>(p.top);
        for (int i = 0; i < rows_of; ++i, y += static_cast<int>(p.apart_rows)) {
          if (y < 0 || y >= height) {
            place += columns_of * tap;
            continue;
          }
          const In* const line = own + y * p.in_row;
          for (int j = 0; j < columns_of; ++j, place += tap) {
            float factors[lanes];
            if constexpr (words_of) {
              read_channels<lanes, true>(place + first[0], 1, factors);
            } else {
              for (int lane = 0; lane < lanes; ++lane)
                factors[lane] = one && lane ? factors[0] : load(place + first[one ? 0 : lane]);
            }
            for (int e = 0; e < each; ++e) {
              const int x = begin + e * across + j * apart;
              if (x < 0 || x >= width) continue;
              float values[lanes];
              read_channels<lanes, neighbours>(line + x * step, p.in_channel, values);
              for (int lane = 0; lane < lanes; ++lane) sums[e][lane] += factors[lane] * values[lane];
            }
          }
        }
        const Index first_of = image * p.out_image + channel * p.out_channel + row * p.out_row;
        for (int e = 0; e < each; ++e) {
          if (column + e >= p.columns) continue;
          const Index to = first_of + (column + e) * p.out_column;
          for (int lane = 0; lane < lanes; ++lane)
            sums[e][lane] = epilogue(sums[e][lane], Place{to + lane * p.out_channel, channel + lane});
          write_channels<lanes, neighbours>(out + to, p.out_channel, sums[e]);
        }
      },
      "window");
}

}  // namespace bolt::portable
