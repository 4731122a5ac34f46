// Rows of two outputs: what a product leaves, and what a function makes of it.
#pragma once

#include <cstdint>

#include "bolt_cutlass/warpgroups/band_kernel.h"
#include "bolt_cutlass/paired_stages.h"
#include "bolt_cutlass/warpgroups/store_boxes.h"
#include "bolt_cutlass/warpgroups/swizzle.h"

namespace bolt::cutlass_kernels {

/// Both outputs of a kernel. Threads store them, 16 bytes of a row at once: what is staged once is read for both.
template <typename Function, typename Element>
struct KeptResults {
  Half* y;
  Half* second;
  long long y_row, second_row;
  Function function;

  template <typename Arguments>
  static KeptResults of(const Arguments& a, int columns, const Function& function) {
    return {static_cast<Half*>(a.y), static_cast<Half*>(a.second), a.y_row == 0 ? columns : a.y_row,
            a.second_row == 0 ? columns : a.second_row, function};
  }
  CUTLASS_DEVICE void store(const Half* from, std::int64_t row, int column) const {
    uint4 words = *reinterpret_cast<const uint4*>(from);
    *reinterpret_cast<uint4*>(y + row * y_row + column) = words;
    std::uint32_t* const each = reinterpret_cast<std::uint32_t*>(&words);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      each[i] = paired_result<Element>(function, portable::unpaired<Element>(each[i]), make_float2(0.0f, 0.0f),
                                       column + i * 2);
    *reinterpret_cast<uint4*>(second + row * second_row + column) = words;
  }
};

/// Of a matrix.
template <typename Function, typename Element>
struct KeptRows : DenseRows {
  static constexpr bool by_threads = true;
  KeptResults<Function, Element> results;
  int rows;

  template <int box>
  CUTLASS_DEVICE void store(const Half* from, int thread, int columns, int column, int row) const {
    constexpr int chunks = box / 8, apart = 128 / chunks;
    const int chunk = thread % chunks, first = column + chunk * 8;
    if (first >= columns) return;
#pragma unroll
    for (int r = thread / chunks; r < 64; r += apart)
      if (row + r < rows) results.store(from + swizzled<box>(r, chunk), row + r, first);
  }
};

/// Of images as BandRows numbers them.
template <typename Function, typename Element>
struct KeptBandRows : BandRows {
  KeptResults<Function, Element> results;

  KeptBandRows() = default;
  KeptBandRows(const BandShape& numbered, const ConvArguments& a, const NoColumns&, const Function& function)
      : BandRows(numbered, a), results(KeptResults<Function, Element>::of(a, a.out_channels, function)) {}

  template <int box>
  CUTLASS_DEVICE void store(const Half* from, int thread, int columns, int column, int row) const {
    constexpr int chunks = box / 8, apart = 128 / chunks;
    const int chunk = thread % chunks, first = column + chunk * 8;
    if (first >= columns) return;
#pragma unroll
    for (int r = thread / chunks; r < 64; r += apart) {
      const auto at = static_cast<int>(image.quotient(static_cast<std::uint32_t>(row + r)));
      const int rest = row + r - at * shape.positions();
      const auto h = static_cast<int>(width.quotient(static_cast<std::uint32_t>(rest))), w = rest - h * shape.pitch_w;
      if (at >= batch || h >= out_h || w >= out_w) continue;
      results.store(from + swizzled<box>(r, chunk), (static_cast<std::int64_t>(at) * out_h + h) * out_w + w, first);
    }
  }
};

template <int m, int n, int k, bool cooperative, typename Stages, typename Function, int teams, typename Element>
using KeptStore = TileStore<m, n, cooperative, Stages, (m + n) * k * 2, 0, teams, Element, KeptRows<Function, Element>>;

}  // namespace bolt::cutlass_kernels
