// Softmax over one axis of a dense tensor.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// The tensor in memory order seen as [outer, axis, inner].
struct Softmax {
  Index outer, axis, inner;
};

/// What becomes of an element `x`, the greatest of its line, and the sum of all exponentials of differences from that.
struct Shares {
  static BOLT_HD float of(float sum) { return 1.0f / sum; }
  static BOLT_HD float finish(float x, float top, float of) { return exponential(x - top) * of; }
  /// Whether `end` takes the exponential of the difference, or the difference.
  static constexpr bool of_power = true;
  static BOLT_HD float end(float power, float of) { return power * of; }
};
struct LogShares {
  static BOLT_HD float of(float sum) { return std::log(sum); }
  static BOLT_HD float finish(float x, float top, float of) { return x - top - of; }
  static constexpr bool of_power = false;
  static BOLT_HD float end(float below, float of) { return below - of; }
};

/// One line along the axis, `stride` elements between neighbours. The output may be the input.
template <typename Ending, typename In, typename Out>
BOLT_HD inline void softmax_line(const In* in, Out* out, Index count, Index stride) {
  float top = -INFINITY, sum = 0.0f;
  for (Index i = 0; i < count; ++i) {
    const float x = load(in + i * stride);
    top = x > top || x != x ? x : top;
  }
  for (Index i = 0; i < count; ++i) sum += exponential(load(in + i * stride) - top);
  const float of = Ending::of(sum);
  for (Index i = 0; i < count; ++i) store(out + i * stride, Ending::finish(load(in + i * stride), top, of));
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/lines/softmax.h"
#include "bolt_portable/cuda/lines/softmax_groups.h"
#include "bolt_portable/cuda/lines/softmax_paired.h"
#include "bolt_portable/cuda/lines/softmax_spread.h"
#include "bolt_portable/cuda/lines/softmax_staged.h"
#include "bolt_portable/cuda/lines/softmax_twice.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// `loads`, `threads` and `lanes` are a GPU's.
template <typename Ending, int loads, int threads, int lanes, typename In, typename Out>
void softmax(const Run& r, const Softmax& p, const void* input, void* output) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  parallel(r, p.outer * p.inner, p.axis * 16, [&](Index begin, Index end) {
    for (Index line = begin; line < end; ++line) {
      const Index at = line / p.inner * p.axis * p.inner + line % p.inner;
      softmax_line<Ending>(in + at, out + at, p.axis, p.inner);
    }
  });
}

/// The same, of lines whose elements are no neighbours.
template <typename Ending, int loads, int parts, int lanes, typename In, typename Out>
void softmax_across(const Run& r, const Softmax& p, const void* input, void* output) {
  softmax<Ending, loads, parts, lanes, In, Out>(r, p, input, output);
}

}  // namespace bolt::portable
#endif
