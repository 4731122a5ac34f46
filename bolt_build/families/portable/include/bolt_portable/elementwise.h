// Chains of elementwise stages over one tensor, and functions of two tensors with NumPy's broadcasting.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// A tensor in memory order seen as [outer, channels, inner]; per-channel operands follow the middle axis. It is dense,
/// or rows of `channels` elements begin `pitch` apart in the input (`inner` is 1 then).
struct Elementwise {
  Index outer, channels, inner;
  Index pitch = 0;
};

/// Axes of the output in memory order, outermost first, merged where both operands allow; a stride of 0 broadcasts.
/// `channel_axis` is the axis that per-channel operands of the epilogue follow, counted among these axes, -1 for none.
struct Broadcast {
  static constexpr int most = 8;
  int rank;
  Index extent[most], a[most], b[most];
  int channel_axis;
};

/// An output whose rows lie apart, in the place of a pointer to a dense one. GPUs alone have it.
template <typename T>
struct ApartRows {
  T* data;
  Spaced place;
  BOLT_HD T* operator+(Index element) const { return data + place(element); }
};
template <typename T>
ApartRows<T> apart_rows(void* data, Index row, Index pitch) {
  return {static_cast<T*>(data), {row, pitch}};
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/elementwise/elementwise.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename In, typename Out, typename Epilogue>
void elementwise(const Run& r, const Elementwise& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  if (p.inner == 1) {
    const Index block = p.outer == 1 ? 4096 : p.channels;  // one long row is cut so that threads share it
    const Index blocks = (p.channels + block - 1) / block;
    parallel(r, p.outer * blocks, block, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const Index first = row % blocks * block, base = row / blocks * p.channels;
        const Index last = std::min(first + block, p.channels), from = p.pitch ? row / blocks * p.pitch : base;
#pragma omp simd
        for (Index c = first; c < last; ++c) store(out + base + c, epilogue(load(in + from + c), Place{base + c, c}));
      }
    });
    return;
  }
  parallel(r, p.outer * p.channels, p.inner, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index base = row * p.inner, c = row % p.channels;
#pragma omp simd
      for (Index i = 0; i < p.inner; ++i) store(out + base + i, epilogue(load(in + base + i), Place{base + i, c}));
    }
  });
}

template <typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast(const Run& r, const Broadcast& p, const void* left, const void* right, void* output,
               const Epilogue& epilogue) {
  const A* a = static_cast<const A*>(left);
  const B* b = static_cast<const B*>(right);
  Out* out = static_cast<Out*>(output);
  const int last = p.rank - 1;
  const Index inner = p.extent[last], da = p.a[last], db = p.b[last];
  Index rows = 1;
  for (int axis = 0; axis < last; ++axis) rows *= p.extent[axis];
  const bool channels_inner = p.channel_axis == last;
  const Index block = rows == 1 ? 4096 : inner;
  const Index blocks = (inner + block - 1) / block;
  parallel(r, rows * blocks, block, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index row = item / blocks, first = item % blocks * block, stop = std::min(first + block, inner);
      Index at_a = 0, at_b = 0, channel = 0, rest = row;
      for (int axis = last; axis-- > 0;) {
        const Index index = rest % p.extent[axis];
        rest /= p.extent[axis];
        at_a += index * p.a[axis];
        at_b += index * p.b[axis];
        if (axis == p.channel_axis) channel = index;
      }
      const Index base = row * inner;
      const auto cells = [&](auto step_a, auto step_b) {
#pragma omp simd
        for (Index i = first; i < stop; ++i) {
          const float x = Function{}(load(a + at_a + i * step_a()), load(b + at_b + i * step_b()));
          store(out + base + i, epilogue(x, Place{base + i, channels_inner ? i : channel}));
        }
      };
      const auto one = [] { return Index{1}; };
      const auto zero = [] { return Index{0}; };
      if (da == 1 && db == 1) {
        cells(one, one);
      } else if (da == 1 && db == 0) {
        cells(one, zero);
      } else if (da == 0 && db == 1) {
        cells(zero, one);
      } else {
        cells([da] { return da; }, [db] { return db; });
      }
    }
  });
}

}  // namespace bolt::portable
#endif
