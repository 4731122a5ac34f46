// Functions of whole lines along one axis of a dense tensor. A line's greatest element comes first; then a sum over it,
// and from both each result.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// The tensor in memory order seen as [outer, axis, inner].
struct Line {
  Index outer, axis, inner;
};

/// A line's greatest element and the first place where it is. NaN counts as greater than any number.
struct LineTop {
  float value;
  Index place;
};
BOLT_HD inline LineTop first_top(LineTop a, LineTop b) {
  const bool same = a.value == b.value || (a.value != a.value && b.value != b.value);
  if (same) return a.place < b.place ? a : b;
  return b.value > a.value || b.value != b.value ? (a.value != a.value ? a : b) : a;
}

struct Hardmax {
  static constexpr bool sums = false;
  static BOLT_HD float term(float, LineTop) { return 0.0f; }
  static BOLT_HD float finish(float, Index place, LineTop top, float) { return place == top.place ? 1.0f : 0.0f; }
};

/// One line, `stride` elements between neighbours. The output may be the input.
template <typename Function, typename In, typename Out>
BOLT_HD inline void one_line(const In* in, Out* out, Index count, Index stride) {
  LineTop top{load(in), 0};
  for (Index i = 1; i < count; ++i) top = first_top(top, {load(in + i * stride), i});
  float sum = 0.0f;
  if (Function::sums)
    for (Index i = 0; i < count; ++i) sum += Function::term(load(in + i * stride), top);
  for (Index i = 0; i < count; ++i) store(out + i * stride, Function::finish(load(in + i * stride), i, top, sum));
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/lines/line.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename Function, typename In, typename Out>
void line(const Run& r, const Line& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  parallel(r, p.outer * p.inner, p.axis * 16, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index at = item / p.inner * p.axis * p.inner + item % p.inner;
      one_line<Function>(in + at, out + at, p.axis, p.inner);
    }
  });
}

}  // namespace bolt::portable
#endif
