// CUDA drivers of elementwise.h.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

template <int lanes, bool apart, typename In, typename Out, typename Epilogue>
void elementwise_lanes(const Run& r, const Elementwise& p, const In* in, Out* out, const Epilogue& epilogue) {
  const std::uint32_t inner = static_cast<std::uint32_t>(p.inner == 1 ? p.channels / lanes : p.inner / lanes);
  const std::uint32_t channels = static_cast<std::uint32_t>(p.channels);
  const bool last = p.inner == 1;
  launch_each(
      r, p.outer * p.channels * p.inner / lanes,
      [=] __device__(std::uint32_t item) {
        const Index base = static_cast<Index>(item) * lanes;
        const Index channel = last ? item % inner * lanes : item / inner % channels;
        float x[lanes];
        load_lanes<lanes>(in + (apart ? item / inner * p.pitch + channel : base), x);
#pragma unroll
        for (int i = 0; i < lanes; ++i) x[i] = epilogue(x[i], Place{base + i, last ? channel + i : channel});
        store_lanes<lanes>(out + base, x);
      },
      "elementwise");
}

template <typename In, typename Out, typename Epilogue>
void elementwise(const Run& r, const Elementwise& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const Index run = p.inner == 1 ? p.channels : p.inner;
  const bool lanes = run % wide == 0 && p.pitch % wide == 0 && aligned_to_16(in, out);
  if (p.pitch) {
    if (lanes) return elementwise_lanes<wide, true>(r, p, in, out, epilogue);
    return elementwise_lanes<1, true>(r, p, in, out, epilogue);
  }
  if (lanes) return elementwise_lanes<wide, false>(r, p, in, out, epilogue);
  elementwise_lanes<1, false>(r, p, in, out, epilogue);
}

template <int lanes, typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast_lanes(const Run& r, const Broadcast& p, const A* a, const B* b, Out* out, const Epilogue& epilogue) {
  Index items = 1;
  for (int axis = 0; axis < p.rank; ++axis) items *= p.extent[axis];
  launch_each(
      r, items / lanes,
      [=] __device__(std::uint32_t item) {
        const int last = p.rank - 1;
        const Index base = static_cast<Index>(item) * lanes;
        std::uint32_t rest = item;
        Index at_a = 0, at_b = 0, channel = 0;
        for (int axis = last; axis >= 0; --axis) {
          const std::uint32_t extent = static_cast<std::uint32_t>(axis == last ? p.extent[axis] / lanes : p.extent[axis]);
          const Index index = static_cast<Index>(rest % extent) * (axis == last ? lanes : 1);
          rest /= extent;
          at_a += index * p.a[axis];
          at_b += index * p.b[axis];
          if (axis == p.channel_axis) channel = index;
        }
        float x[lanes], y[lanes];
        if (lanes > 1 && p.a[last] == 1) {
          load_lanes<lanes>(a + at_a, x);
        } else {
          for (int i = 0; i < lanes; ++i) x[i] = load(a + at_a + i * p.a[last]);
        }
        if (lanes > 1 && p.b[last] == 1) {
          load_lanes<lanes>(b + at_b, y);
        } else {
          for (int i = 0; i < lanes; ++i) y[i] = load(b + at_b + i * p.b[last]);
        }
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          x[i] = epilogue(Function{}(x[i], y[i]), Place{base + i, channel + (p.channel_axis == last ? i : 0)});
        store_lanes<lanes>(out + base, x);
      },
      "broadcast");
}

template <typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast(const Run& r, const Broadcast& p, const void* left, const void* right, void* output,
               const Epilogue& epilogue) {
  const A* a = static_cast<const A*>(left);
  const B* b = static_cast<const B*>(right);
  Out* out = static_cast<Out*>(output);
  bool lanes = p.extent[p.rank - 1] % wide == 0 && aligned_to_16(a, b, out);
  for (int axis = 0; axis < p.rank; ++axis) {
    const Index unit = axis == p.rank - 1 ? 1 : wide;
    lanes = lanes && p.a[axis] % unit == 0 && p.b[axis] % unit == 0;
  }
  const Index da = p.a[p.rank - 1], db = p.b[p.rank - 1];
  if (lanes && (da == 0 || da == 1) && (db == 0 || db == 1)) {
    broadcast_lanes<wide, Function>(r, p, a, b, out, epilogue);
  } else {
    broadcast_lanes<1, Function>(r, p, a, b, out, epilogue);
  }
}

}  // namespace bolt::portable
