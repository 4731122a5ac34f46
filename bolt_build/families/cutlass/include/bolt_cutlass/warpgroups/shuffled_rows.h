// Where results of a product lie that become pixels of a larger image.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "bolt_cutlass/warpgroups/band_kernel.h"
#include "bolt_cutlass/warpgroups/swizzle.h"

namespace bolt::cutlass_kernels {

/// Positions as BandRows numbers them, whose columns are pixels. TMA knows five axes, and this has more where tiles are of numbered
/// positions, so threads store them, 16 bytes of a pixel at once: a box has whole sectors of memory anyway.
struct ShuffledRows : BandRows {
  Shuffle shuffle;
  int down;

  ShuffledRows() = default;
  /// Of positions without anything between rows.
  ShuffledRows(const Shuffle& given, int images, int columns, void* to, int row) : shuffle(given) {
    shape = {given.width, given.height};
    batch = images, out_h = given.height, out_w = given.width;
    y = static_cast<Half*>(to);
    width = portable::Divisor(given.width), image = portable::Divisor(given.width * given.height);
    pixels(columns, row);
  }
  ShuffledRows(const BandShape& numbered, const ConvArguments& a, const NoColumns& = {})
      : BandRows(numbered, a), shuffle(a.shuffle) {
    pixels(a.out_channels, a.y_row);
  }

  /// No TMA stores it.
  template <int box>
  cute::TmaDescriptor view(const void*, int, int, int) const {
    return {};
  }
  template <int box>
  CUTLASS_DEVICE void store(const Half* from, int thread, int columns, int column, int row) const {
    constexpr int chunks = box / 8, apart = 128 / chunks;
    const int chunk = thread % chunks, first = column + chunk * 8;
    if (first >= columns) return;
    const int part = first / shuffle.channels, at_h = part / shuffle.across, at_w = part - at_h * shuffle.across;
    Half* const to = y + (first - part * shuffle.channels);
#pragma unroll
    for (int r = thread / chunks; r < 64; r += apart) {
      const auto position = static_cast<std::uint32_t>(row + r);
      const auto at = static_cast<int>(image.quotient(position));
      const int rest = row + r - at * shape.positions();
      const auto h = static_cast<int>(width.quotient(static_cast<std::uint32_t>(rest))), w = rest - h * shape.pitch_w;
      const int made_h = h * down + at_h - shuffle.first_h, made_w = w * shuffle.across + at_w - shuffle.first_w;
      const bool inside = made_h >= 0 && made_h < shuffle.made_h && made_w >= 0 && made_w < shuffle.made_w;
      if (at >= batch || h >= out_h || w >= out_w || !inside) continue;
      const std::int64_t pixel = (static_cast<std::int64_t>(at) * shuffle.made_h + made_h) * shuffle.made_w + made_w;
      *reinterpret_cast<uint4*>(to + pixel * y_row) = *reinterpret_cast<const uint4*>(from + swizzled<box>(r, chunk));
    }
  }

 private:
  /// What a row of so many columns is. Throws std::runtime_error.
  void pixels(int columns, int row) {
    if (shuffle.across < 1 || shuffle.channels < 8 || shuffle.channels % 8 != 0 ||
        columns % (shuffle.across * shuffle.channels) != 0 || shuffle.height != out_h || shuffle.width != out_w)
      throw std::runtime_error("could not launch a convolution: its results are no whole pixels");
    down = columns / (shuffle.across * shuffle.channels);
    y_row = row == 0 ? shuffle.channels : row;
  }
};

template <int m, int n, int k, bool cooperative, typename Stages, int teams, typename Element>
using ShuffledStore = TileStore<m, n, cooperative, Stages, (m + n) * k * 2, 0, teams, Element, ShuffledRows>;

}  // namespace bolt::cutlass_kernels
