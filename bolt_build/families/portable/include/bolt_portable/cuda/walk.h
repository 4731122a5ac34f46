// Where a thread's elements stand in tensors of several axes, without a division by a number that the compiler does not know.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/divisor.h"

namespace bolt::portable {

/// Axes that items are counted along, and the steps of `sides` tensors. The innermost is the first.
template <int sides>
struct Walk {
  static constexpr int most = 8;
  int rank = 0;
  Divisor extent[most];
  Index step[sides][most];
  Index items = 1;

  /// One axis more, outside of those before.
  void add(Index many, const Index (&steps)[sides]) {
    extent[rank] = Divisor(many);
    for (int side = 0; side < sides; ++side) step[side][rank] = steps[side];
    items *= many;
    ++rank;
  }

  /// Calls with(axis, index) for every axis of an item.
  template <typename With>
  __device__ void each_index(std::uint32_t item, const With& with) const {
#pragma unroll
    for (int axis = 0; axis < most; ++axis) {
      if (axis >= rank) break;
      const std::uint32_t rest = axis + 1 < rank ? extent[axis].quotient(item) : 0u;
      with(axis, item - rest * extent[axis].by);
      item = rest;
    }
  }

  /// Adds where an item stands on every side.
  __device__ void go(std::uint32_t item, Index (&at)[sides]) const {
    each_index(item, [&](int axis, std::uint32_t index) {
#pragma unroll
      for (int side = 0; side < sides; ++side) at[side] += static_cast<Index>(index) * step[side][axis];
    });
  }
};

/// Elements of a row that a thread takes at most, one by one.
constexpr int row_elements = 8;

/// Part of a row: elements `first`, `first + apart` and so on, `many` of them, of at most `each`, which all threads have alike.
struct RowPart {
  std::uint32_t row, first, apart;
  int many, each;
};

/// Calls body(part) for `rows` rows of `run` neighbours, where no access takes several. Neighbouring threads take neighbouring
/// elements, so that a warp's accesses are few lines of memory, and find their row once for several elements.
template <typename Body>
void launch_rows(const Run& r, Index rows, Index run, const Body& body, const char* what) {
  if (rows == 0 || run == 0) return;
  const std::uint32_t length = counted(run, what);
  std::uint32_t apart = 1;
  while (apart * 2 <= length && apart < 32) apart *= 2;
  if (length > 32 * row_elements) apart = block_threads;
  const std::uint32_t pieces = (length - 1) / (apart * row_elements) + 1;
  const std::uint32_t each = (length - 1) / (apart * pieces) + 1;
  const Divisor threads(apart), parts(pieces);
  launch_each(
      r, rows * pieces * apart,
      [=] __device__(std::uint32_t item) {
        const std::uint32_t piece = threads.quotient(item), row = parts.quotient(piece);
        const std::uint32_t first = (piece - row * pieces) * each * apart + (item - piece * apart);
        if (first >= length) return;
        const std::uint32_t left = threads.quotient(length - 1 - first) + 1;
        body(RowPart{row, first, apart, static_cast<int>(left < each ? left : each), static_cast<int>(each)});
      },
      what);
}

/// Loads a part of the row that begins at `row` and whose elements lie `step` apart, as it is stored. No thread has a branch of its
/// own, so all loads are under way at once: behind its last element a thread reads that again.
template <typename T>
__device__ inline void load_part(const RowPart& part, const T* row, Index step, T (&values)[row_elements]) {
  const T* from = row + part.first * step;
  const Index apart = part.apart * step;
#pragma unroll
  for (int i = 0; i < row_elements; ++i) {
    if (i >= part.each) break;
    values[i] = *from;
    from += i + 1 < part.many ? apart : 0;
  }
}

/// Calls with(i, place) for the elements of a part.
template <typename With>
__device__ inline void each_of(const RowPart& part, const With& with) {
#pragma unroll
  for (int i = 0; i < row_elements; ++i)
    if (i < part.many) with(i, part.first + i * part.apart);
}

/// Calls with(i, place, where it is stored) for the elements of a part of the row that begins at `row`.
template <typename T, typename With>
__device__ inline void each_of(const RowPart& part, T* row, const With& with) {
  T* to = row + part.first;
#pragma unroll
  for (int i = 0; i < row_elements; ++i) {
    if (i < part.many) with(i, part.first + i * part.apart, to);
    to += part.apart;
  }
}

}  // namespace bolt::portable
