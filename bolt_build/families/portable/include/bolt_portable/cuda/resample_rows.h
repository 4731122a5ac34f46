// Resampling of planes where each result has one neighbour along either axis, as nearest pixels have: rows of a dense output
// (flat_rows.h).
#pragma once

#include "bolt_portable/cuda/flat_rows.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// `Extents`: rows of a plane, and of the result's; columns, and the result's; elements of a pixel. An axis has a table, or stays
/// (`taps` 0).
template <typename T, typename Extents, int taps_h, int taps_w>
struct NearestRows {
  using In = T;
  using Out = T;
  static constexpr std::uint32_t rows = Extents::at[0], rows_made = Extents::at[1], columns = Extents::at[2],
                                 inner = Extents::at[4];
  static constexpr Index width = Extents::at[3] * Extents::at[4];
  static_assert(taps_h <= 1 && taps_w <= 1);
  /// Where it stands from the beginning of a row, or of the tensor, and its weight.
  struct Named {
    std::uint32_t at;
    float weight;
  };
  using Column = Named;
  using Row = Named;
  const T* from;
  const std::int64_t *first_h, *first_w;
  const float *weights_h, *weights_w;

  __device__ Column column(std::uint32_t c) const {
    const std::uint32_t x = c / inner;
    const Named own = named<taps_w, columns>(first_w, weights_w, x);
    return {own.at * inner + (c - x * inner), own.weight};
  }
  __device__ Row row(std::uint32_t r) const {
    const std::uint32_t plane = r / rows_made;
    const Named own = named<taps_h, rows>(first_h, weights_h, r - plane * rows_made);
    return {(plane * rows + own.at) * (columns * inner), own.weight};
  }
  __device__ T load(const Row& row, const Column& column) const {
    T found;
    store(&found, row.weight * (column.weight * portable::load(from + row.at + column.at)));
    return found;
  }
  __device__ std::uint32_t to(std::uint32_t r) const { return r * static_cast<std::uint32_t>(width); }

 private:
  /// Places outside are the edge's.
  template <int taps, std::uint32_t extent>
  static __device__ Named named(const std::int64_t* first, const float* weights, std::uint32_t result) {
    if constexpr (taps == 0) return {result, 1.0f};
    const std::int32_t place = static_cast<std::int32_t>(first[result]);
    return {static_cast<std::uint32_t>(min(max(place, 0), static_cast<std::int32_t>(extent) - 1)), weights[result]};
  }
};

}  // namespace bolt::portable
