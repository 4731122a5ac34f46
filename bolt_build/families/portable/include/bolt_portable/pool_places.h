// Where the greatest element of each window lies. Tensors are row-major.
#pragma once

#include "bolt_portable/divisor.h"
#include "bolt_portable/each.h"
#include "bolt_portable/pool.h"
#include "bolt_portable/typed.h"

/// A GPU has what is indexed in registers only where loops are written out.
#if defined(__CUDACC__)
#define BOLT_WRITTEN_OUT _Pragma("unroll")
#else
#define BOLT_WRITTEN_OUT
#endif

namespace bolt::portable {

/// How often a number is held, and what is left.
struct Parts {
  Position whole;
  Extent rest;
};
BOLT_HD inline Parts split(Position count, const Divisor& by) {
#if defined(__CUDA_ARCH__)
  const Position whole = by.quotient(count);
#else
  const Position whole = count / by.by;
#endif
  return {whole, static_cast<Extent>(count - whole * by.by)};
}

/// Which cell of a window is the first greatest, in the order of its axes; -1 of a window that has none. Of windows of known sizes
/// all cells are asked for before any is compared.
template <typename T, int deep, int high, int wide>
struct GreatestCell {
  static constexpr bool known = deep > 0;
  Pool p;

  /// NaN is never greater, and anything else is greater than it.
  template <typename V>
  static BOLT_HD bool greater(V value, V than) {
    return value > than || (than != than && value == value);
  }
  BOLT_HD Extent start(int axis, Extent position) const { return position * p.stride[axis] - p.pad_begin[axis]; }
  BOLT_HD bool inside(int axis, Extent place) const { return place >= 0 && place < p.in[axis]; }

  BOLT_HD int operator()(const T* plane, Extent z, Extent y, Extent x) const {
    const Extent front = start(0, z), top = start(1, y), left = start(2, x);
    if constexpr (known) {
      constexpr int cells = deep * high * wide;
      decltype(read(plane)) values[cells];
      bool there[cells];
      BOLT_WRITTEN_OUT for (int cell = 0; cell < cells; ++cell) {
        const Extent sz = front + cell / (high * wide) * p.dilation[0], sy = top + cell / wide % high * p.dilation[1];
        const Extent sx = left + cell % wide * p.dilation[2];
        there[cell] = inside(0, sz) && inside(1, sy) && inside(2, sx);
        values[cell] = read(plane + (there[cell] ? (Index{sz} * p.in[1] + sy) * p.in[2] + sx : 0));
      }
      int best = -1;
      auto most = values[0];
      BOLT_WRITTEN_OUT for (int cell = 0; cell < cells; ++cell)
        if (there[cell] && (best < 0 || greater(values[cell], most))) best = cell, most = values[cell];
      return best;
    } else {
      const Window d = window(p, 0, z), h = window(p, 1, y), w = window(p, 2, x);
      int best = -1;
      auto most = read(plane);
      for (Extent i = d.first; i < d.last; ++i)
        for (Extent j = h.first; j < h.last; ++j) {
          const T* line = plane + (Index{front + i * p.dilation[0]} * p.in[1] + top + j * p.dilation[1]) * p.in[2] + left;
          for (Extent k = w.first; k < w.last; ++k) {
            const auto value = read(line + k * p.dilation[2]);
            if (best < 0 || greater(value, most)) best = (i * p.kernel[1] + j) * p.kernel[2] + k, most = value;
          }
        }
      return best;
    }
  }
};

/// The first greatest of each window, counted in the whole input; where `column_major`, the first spatial axis counts
/// fastest within a channel. `axes` are the spatial axes that there are, the last ones of three. Windows have `deep`, `high` and
/// `wide` cells along these, 0 where the compiler is not to know.
template <typename T, int deep, int high, int wide>
void pool_places(const Run& r, const Pool& p, int axes, bool column_major, const void* input, void* output) {
  const T* from = static_cast<const T*>(input);
  std::int64_t* to = static_cast<std::int64_t*>(output);
  const Index plane = Index{p.in[0]} * p.in[1] * p.in[2];
  Index steps[3] = {Index{p.in[1]} * p.in[2], p.in[2], 1};
  if (column_major) {
    Index step = 1;
    for (int axis = 3 - axes; axis < 3; ++axis) {
      steps[axis] = step;
      step *= p.in[axis];
    }
  }
  const Index depth = steps[0], row = steps[1], column = steps[2];
  const Divisor across(p.out[2]), down(p.out[1]), deeper(p.out[0]);
  const GreatestCell<T, deep, high, wide> greatest{p};
  for_each_item(
      r, p.batch * p.channels * p.out[0] * p.out[1] * p.out[2], Index{p.kernel[0]} * p.kernel[1] * p.kernel[2],
      [=] BOLT_BODY(Index item) {
        const auto [rows, x] = split(static_cast<Position>(item), across);
        const auto [planes, y] = split(rows, down);
        const auto [image, z] = split(planes, deeper);
        const int cell = greatest(from + Index{image} * plane, z, y, x);
        if (cell < 0) {  // a window of padding alone
          to[item] = Index{image} * plane;
          return;
        }
        const Extent of_plane = p.kernel[1] * p.kernel[2], i = cell / of_plane, j = (cell - i * of_plane) / p.kernel[2];
        const Extent k = cell - i * of_plane - j * p.kernel[2];
        const Index sz = greatest.start(0, z) + i * p.dilation[0], sy = greatest.start(1, y) + j * p.dilation[1];
        to[item] = Index{image} * plane + sz * depth + sy * row + (greatest.start(2, x) + k * p.dilation[2]) * column;
      },
      "places of a pooling");
}

}  // namespace bolt::portable

#undef BOLT_WRITTEN_OUT
