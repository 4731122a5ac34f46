// Resampling of planes where each result has one neighbour along either axis, as nearest pixels have: rows of a dense output
// (flat_rows.h).
#pragma once

#include "bolt_portable/cuda/moves/flat_rows.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// `Extents`: rows of a plane, and of the result's; columns, and the result's; elements of a pixel, and from a pixel to the next,
/// of both sides. An axis has a table, or stays (`taps` 0).
template <typename T, typename Extents, int taps_h, int taps_w>
struct NearestRows {
  using In = T;
  using Out = T;
  static constexpr std::uint32_t rows = Extents::at[0], rows_made = Extents::at[1], columns = Extents::at[2],
                                 inner = Extents::at[4], cell = Extents::at[5], made_cell = Extents::at[6];
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
    return {own.at * cell + (c - x * inner), own.weight};
  }
  __device__ Row row(std::uint32_t r) const {
    const std::uint32_t plane = r / rows_made;
    const Named own = named<taps_h, rows>(first_h, weights_h, r - plane * rows_made);
    return {(plane * rows + own.at) * (columns * cell), own.weight};
  }
  __device__ T load(const Row& row, const Column& column) const { return from[row.at + column.at]; }
  static __device__ bool alone(const Named& named) { return named.weight == 1.0f; }
  __device__ T weighed(const T& element, const Row& row, const Column& column) const {
    T found;
    store(&found, row.weight * (column.weight * portable::load(&element)));
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

/// Of an output whose pixels lie apart: element by element.
template <int lanes, int turns, bool dense, typename Source>
void nearest_apart(const Run& r, Index rows, const Source& source, void* output, const char* what) {
  auto* const out = static_cast<typename Source::Out*>(output);
  constexpr std::uint32_t width = Source::width, inner = Source::inner, cell = Source::made_cell;
  launch_each(
      r, rows * Source::width,
      [=] BOLT_BODY(std::uint32_t item) {
        const std::uint32_t row = item / width, place = item - row * width, pixel = item / inner;
        const auto of_row = source.row(row);
        const auto of_column = source.column(place);
        out[Index{pixel} * cell + (item - pixel * inner)] = source.weighed(source.load(of_row, of_column), of_row, of_column);
      },
      what);
}

}  // namespace bolt::portable
