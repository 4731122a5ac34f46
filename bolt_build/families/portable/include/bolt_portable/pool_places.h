// Where the greatest element of each window lies. Tensors are row-major.
#pragma once

#include "bolt_portable/divisor.h"
#include "bolt_portable/each.h"
#include "bolt_portable/pool.h"
#include "bolt_portable/typed.h"

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

/// The first greatest of each window, counted in the whole input; where `column_major`, the first spatial axis counts
/// fastest within a channel. `axes` are the spatial axes that there are, the last ones of three.
template <typename T>
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
  const Divisor across(p.out[2]), down(p.out[1]), deep(p.out[0]);
  for_each_item(
      r, p.batch * p.channels * p.out[0] * p.out[1] * p.out[2], Index{p.kernel[0]} * p.kernel[1] * p.kernel[2],
      [=] BOLT_BODY(Index item) {
        const auto [rows, x] = split(static_cast<Position>(item), across);
        const auto [planes, y] = split(rows, down);
        const auto [image, z] = split(planes, deep);
        const Window d = window(p, 0, z), h = window(p, 1, y), w = window(p, 2, x);
        const T* source = from + Index{image} * plane;
        bool none = true;
        Extent place[3] = {};
        auto most = read(source);
        for (Extent i = d.first; i < d.last; ++i) {
          const Extent sz = z * p.stride[0] - p.pad_begin[0] + i * p.dilation[0];
          for (Extent j = h.first; j < h.last; ++j) {
            const Extent sy = y * p.stride[1] - p.pad_begin[1] + j * p.dilation[1];
            const T* line = source + (Index{sz} * p.in[1] + sy) * p.in[2];
            for (Extent k = w.first; k < w.last; ++k) {
              const Extent sx = x * p.stride[2] - p.pad_begin[2] + k * p.dilation[2];
              const auto value = read(line + sx);
              // NaN is never greater, and anything else is greater than it.
              if (!none && !(value > most) && !(most != most && value == value)) continue;
              none = false, most = value;
              place[0] = sz, place[1] = sy, place[2] = sx;
            }
          }
        }
        to[item] = Index{image} * plane + place[0] * depth + place[1] * row + place[2] * column;
      },
      "places of a pooling");
}

}  // namespace bolt::portable
