// Images made larger and smaller, along one axis or two beside each other: weighted sums of neighbours, whose weights are known.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

/// One axis: what there is, and what is made of it. Result i is the sum over `taps` neighbours from first[i] on; behind the
/// edges the last element goes on. Of none it is element i.
struct ResampledAxis {
  Index extent, made;
  int taps;
  const std::int64_t* first = nullptr;
  const float* weights = nullptr;

  BOLT_HD int terms() const { return taps > 0 ? taps : 1; }
  BOLT_HD float weight(Index result, int tap) const { return taps > 0 ? weights[result * taps + tap] : 1.0f; }
  BOLT_HD Index place(Index result, int tap) const {
    if (taps == 0) return result;
    const Index at = first[result] + tap;  // never outside, whatever tables were loaded
    return at < 0 ? 0 : (at < extent ? at : extent - 1);
  }
};

/// [outer, rows.extent, columns.extent, inner] becomes [outer, rows.made, columns.made, inner]. Pixels of `inner` elements lie
/// `in_cell` apart, those of the result `out_cell`.
struct Resample {
  Index outer, inner, in_cell, out_cell;
};

/// Element `item` of the result, in the order of memory: all of its neighbours in one loop nest.
template <typename T, typename Out>
BOLT_HD void resample_one(const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, const T* from, Out* to,
                          Index item) {
  const Position element = static_cast<Position>(item), inner = static_cast<Position>(p.inner);
  const Position pixel = element / inner, line = pixel / static_cast<Position>(columns.made);
  const Index x = pixel - line * static_cast<Position>(columns.made), y = line % static_cast<Position>(rows.made);
  const Index image = line / static_cast<Position>(rows.made), c = element - pixel * inner;
  float sum = 0;
  for (int i = 0; i < rows.terms(); ++i) {
    const T* row = from + (image * rows.extent + rows.place(y, i)) * columns.extent * p.in_cell + c;
    float part = 0;
    for (int j = 0; j < columns.terms(); ++j)
      part += columns.weight(x, j) * cast<float>(read(row + columns.place(x, j) * p.in_cell));
    sum += rows.weight(y, i) * part;
  }
  to[static_cast<Index>(pixel) * p.out_cell + c] = portable::element<Out>(sum);
}

/// The plain kernel: each element by itself.
template <typename T, typename Out = T>
void resample(const Run& r, const Resample& p, const ResampledAxis& rows, const ResampledAxis& columns, const void* input,
              void* output) {
  const T* from = static_cast<const T*>(input);
  Out* to = static_cast<Out*>(output);
  for_each_item(
      r, p.outer * rows.made * columns.made * p.inner, rows.terms() * columns.terms(),
      [=] BOLT_BODY(Index item) { resample_one(p, rows, columns, from, to, item); }, "resampling");
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/images/resample.h"
#include "bolt_portable/cuda/images/resample_joined.h"
#include "bolt_portable/cuda/images/resample_staged.h"
#endif
