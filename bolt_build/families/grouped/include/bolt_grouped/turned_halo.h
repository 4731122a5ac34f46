// The halo of a tile of products, in shared memory, and the way of their sums from there to the output.
#pragma once

#include "bolt_grouped/halo.h"

namespace bolt::grouped {

/// The halo of a tile: its pixels row by row, `pitch` elements each, of which a unit takes `padded` and copies `channels`.
/// Columns lie in turns: those that windows begin with come first, then those next to them, and so on. So neighbouring
/// results read neighbouring pixels, whatever windows step over.
template <typename Window, int rows, int columns, int units, int channels, int padded, int pitch, int load>
struct TurnedHalo {
  static constexpr int turns = Window::step_w, each = (Window::columns(columns) + turns - 1) / turns;
  static constexpr int height = Window::rows(rows), width = turns * each;
  static constexpr int halves = height * width * pitch;
  static constexpr int of_unit = channels / load, of_pixel = units * of_unit, of_line = width * of_pixel;
  static_assert(channels % load == 0 && padded % load == 0 && pitch >= units * padded && pitch % 8 == 0);

  /// Where a column lies.
  static constexpr __host__ __device__ int place(int column) { return column % turns * each + column / turns; }

  /// Begins the copies of `threads` threads, from channel `first` on. A thread goes down its columns: what it finds by
  /// division it finds once for all rows.
  template <int threads, typename Half>
  static __device__ void fill(Half* to, const Arguments& a, const Corner& corner, int first) {
    constexpr int lines = of_line < threads ? threads / of_line : 1;  // rows that are copied at once
    const Half* const x = static_cast<const Half*>(a.x);
    const int line = lines == 1 ? 0 : threadIdx.x / of_line;
    const int top = corner.y * Window::step_h - a.pad_h + line, left = corner.x * Window::step_w - a.pad_w;
    if (line >= lines) return;
    for (int i = threadIdx.x - line * of_line; i < of_line; i += threads) {
      const int pixel = i / of_pixel, part = i % of_pixel, unit = part / of_unit, from = part % of_unit * load;
      const int column = left + pixel % each * turns + pixel / each, channel = first + unit * channels + from;
      const bool inside = static_cast<unsigned>(column) < static_cast<unsigned>(a.width) && channel < a.channels;
      const Index apart = Index{lines} * a.width * x_pitch(a);
      const Half* at = x + ((Index{corner.image} * a.height + top) * a.width + column) * x_pitch(a) + channel;
      Half* copied = to + (line * width + pixel) * pitch + unit * padded + from;
#pragma unroll 4
      for (int row = 0; row < height - line; row += lines) {
        const bool there = inside && static_cast<unsigned>(top + row) < static_cast<unsigned>(a.height);
        copy<load>(copied, there ? at : x, there);
        at += apart;
        copied += lines * width * pitch;
      }
    }
  }
};

/// Adds the bias to sums and stores them, as `Half`s. Sums come in `batches` of so many `rows` of `runs` times `access`, which
/// `stage(batch)` leaves in shared memory, `pitch` floats apart. `threads` threads do it, of which this one is `thread`: each
/// has a column for all rows. `channel_of(column)` and `pixel_of(row)` say where sums belong, -1 for those that belong nowhere.
template <int access, int runs, int threads, int pitch, int batches, int rows, typename Half, typename Epilogue,
          typename Stage, typename Channel, typename Pixel>
__device__ inline void store_rows(const Arguments& a, const Epilogue& epilogue, const float* sums, int thread,
                                  const Stage& stage, const Channel& channel_of, const Pixel& pixel_of) {
  constexpr int lines = runs < threads ? threads / runs : 1;  // rows that are stored at once
  const int line = lines == 1 ? 0 : thread / runs;
#pragma unroll 1
  for (int first = 0; first < runs; first += threads) {
    const int run = first + thread - line * runs, channel = line < lines && run < runs ? channel_of(run * access) : -1;
    float bias[access] = {};
    if (a.bias != nullptr && channel >= 0) portable::load_lanes<access>(a.bias + channel, bias);
#pragma unroll
    for (int batch = 0; batch < batches; ++batch) {
      stage(batch);
#pragma unroll 2
      for (int row = line; channel >= 0 && row < rows; row += lines) {
        const int pixel = pixel_of(batch * rows + row);
        if (pixel < 0) continue;
        float value[access];
#pragma unroll
        for (int k = 0; k < access; ++k) value[k] = sums[row * pitch + run * access + k] + bias[k];
        put<access, access, Half>(a, epilogue, value, pixel, channel);
      }
      __syncwarp();  // the next batch is left where this one lies
    }
  }
}

}  // namespace bolt::grouped
