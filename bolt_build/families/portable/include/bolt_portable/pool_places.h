// Where the greatest element of each window lies. Tensors are row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/pool.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

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
  for_each_item(
      r, p.batch * p.channels * p.out[0] * p.out[1] * p.out[2], Index{p.kernel[0]} * p.kernel[1] * p.kernel[2],
      [=] BOLT_BODY(Index item) {
        const Extent x = static_cast<Extent>(item % p.out[2]);
        const Extent y = static_cast<Extent>(item / p.out[2] % p.out[1]);
        const Extent z = static_cast<Extent>(item / p.out[2] / p.out[1] % p.out[0]);
        const Index image = item / p.out[2] / p.out[1] / p.out[0];
        const Window d = window(p, 0, z), h = window(p, 1, y), w = window(p, 2, x);
        const T* source = from + image * plane;
        Index best = -1, place = 0;
        for (Extent i = d.first; i < d.last; ++i) {
          const Index sz = Index{z} * p.stride[0] - p.pad_begin[0] + Index{i} * p.dilation[0];
          for (Extent j = h.first; j < h.last; ++j) {
            const Index sy = Index{y} * p.stride[1] - p.pad_begin[1] + Index{j} * p.dilation[1];
            for (Extent k = w.first; k < w.last; ++k) {
              const Index sx = Index{x} * p.stride[2] - p.pad_begin[2] + Index{k} * p.dilation[2];
              const Index at = (sz * p.in[1] + sy) * p.in[2] + sx;
              if (best >= 0) {
                // NaN is never greater, and anything else is greater than it.
                const auto value = read(source + at), found = read(source + best);
                if (!(value > found) && !(found != found && value == value)) continue;
              }
              best = at;
              place = sz * depth + sy * row + sx * column;
            }
          }
        }
        to[item] = image * plane + place;
      },
      "places of a pooling");
}

}  // namespace bolt::portable
