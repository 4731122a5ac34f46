// CUDA drivers of elementwise.h.
#pragma once

#include "bolt_portable/cuda/epilogue_lanes.h"
#include "bolt_portable/cuda/walk.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

template <int lanes, bool apart, typename In, typename Out, typename Epilogue>
void elementwise_lanes(const Run& r, const Elementwise& p, const In* in, Out* out, const Epilogue& epilogue) {
  const bool last = p.inner == 1;
  const Divisor inner(last ? p.channels / lanes : p.inner / lanes), channels(p.channels);
  launch_each(
      r, p.outer * p.channels * p.inner / lanes,
      [=] __device__(std::uint32_t item) {
        const Index base = static_cast<Index>(item) * lanes;
        const std::uint32_t row = inner.quotient(item);
        const Index channel = last ? (item - row * inner.by) * lanes : row - channels.quotient(row) * channels.by;
        float x[lanes];
        load_lanes<lanes>(in + (apart ? row * p.pitch + channel : base), x);
        epilogue_lanes<lanes>(epilogue, x, Place{base, channel}, last);
        store_lanes<lanes>(out + base, x);
      },
      "elementwise");
}

template <typename In, typename Out, typename Epilogue>
void elementwise(const Run& r, const Elementwise& p, const void* input, void* output, const Epilogue& epilogue) {
  const In* in = static_cast<const In*>(input);
  Out* out = static_cast<Out*>(output);
  const Index run = p.inner == 1 ? p.channels : p.inner;
  const bool lanes = run % wide == 0 && p.pitch % wide == 0 && aligned_to_16(in, out) && epilogue_in_lanes(epilogue, wide);
  if (p.pitch) {
    if (lanes) return elementwise_lanes<wide, true>(r, p, in, out, epilogue);
    return elementwise_lanes<1, true>(r, p, in, out, epilogue);
  }
  if (lanes) return elementwise_lanes<wide, false>(r, p, in, out, epilogue);
  elementwise_lanes<1, false>(r, p, in, out, epilogue);
}

/// Steps of both sides and of the channel, without the innermost axis or with it in `lanes`.
template <int lanes>
Walk<3> broadcast_walk(const Broadcast& p) {
  Walk<3> walk;
  const int last = p.rank - 1;
  for (int axis = lanes > 1 ? last : last - 1; axis >= 0; --axis) {
    const Index times = axis == last ? lanes : 1;
    walk.add(p.extent[axis] / times, {p.a[axis] * times, p.b[axis] * times, axis == p.channel_axis ? times : 0});
  }
  return walk;
}

/// `lanes` neighbours of a side, whose step is 1 or 0.
template <int lanes, typename T>
__device__ inline void load_side(const T* from, Index step, float* values) {
  if (step == 1) return load_lanes<lanes>(from, values);
  const float all = load(from);
#pragma unroll
  for (int i = 0; i < lanes; ++i) values[i] = all;
}

template <int lanes, typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast_lanes(const Run& r, const Broadcast& p, const A* a, const B* b, Out* out, const Epilogue& epilogue) {
  const Walk<3> walk = broadcast_walk<lanes>(p);
  const int last = p.rank - 1;
  const Index da = p.a[last], db = p.b[last];
  const bool along = p.channel_axis == last;
  launch_each(
      r, walk.items,
      [=] __device__(std::uint32_t item) {
        const Index base = static_cast<Index>(item) * lanes;
        Index at[3] = {};
        walk.go(item, at);
        float x[lanes], y[lanes];
        load_side<lanes>(a + at[0], da, x);
        load_side<lanes>(b + at[1], db, y);
        combine_lanes<false, Function>(x, y);
        epilogue_lanes<lanes>(epilogue, x, Place{base, at[2]}, along);
        store_lanes<lanes>(out + base, x);
      },
      "broadcast");
}

/// Rows that are no whole accesses, or whose elements are no neighbours.
template <typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast_rows(const Run& r, const Broadcast& p, const A* a, const B* b, Out* out, const Epilogue& epilogue) {
  const Walk<3> walk = broadcast_walk<1>(p);
  const int last = p.rank - 1;
  const Index run = p.extent[last], da = p.a[last], db = p.b[last];
  const bool along = p.channel_axis == last;
  launch_rows(
      r, walk.items, run,
      [=] __device__(const RowPart& part) {
        Index at[3] = {};
        walk.go(part.row, at);
        const Index base = part.row * run;
        A x[row_elements];
        B y[row_elements];
        load_part(part, a + at[0], da, x);
        load_part(part, b + at[1], db, y);
        each_of(part, out + base, [&](int i, std::uint32_t place, Out* to) {
          const Place here{base + place, at[2] + (along ? place : 0)};
          store(to, epilogue(Function{}(load(&x[i]), load(&y[i])), here));
        });
      },
      "broadcast");
}

/// Whether `lanes` neighbours of a side are one access, or all the same element.
template <typename T>
bool side_in_lanes(const Broadcast& p, const Index (&steps)[Broadcast::most], const T* from, int lanes) {
  const int last = p.rank - 1;
  if (steps[last] == 0) return true;
  bool fits = steps[last] == 1 && in_lanes(from, lanes);
  for (int axis = 0; axis < last; ++axis) fits = fits && steps[axis] % lanes == 0;
  return fits;
}

template <typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast(const Run& r, const Broadcast& p, const void* left, const void* right, void* output,
               const Epilogue& epilogue) {
  const A* a = static_cast<const A*>(left);
  const B* b = static_cast<const B*>(right);
  Out* out = static_cast<Out*>(output);
  const auto fits = [&](int lanes) {
    return p.extent[p.rank - 1] % lanes == 0 && in_lanes(out, lanes) && side_in_lanes(p, p.a, a, lanes) &&
           side_in_lanes(p, p.b, b, lanes) && epilogue_in_lanes(epilogue, lanes);
  };
  if (fits(wide)) {
    broadcast_lanes<wide, Function>(r, p, a, b, out, epilogue);
  } else if (fits(narrow)) {
    broadcast_lanes<narrow, Function>(r, p, a, b, out, epilogue);
  } else {
    broadcast_rows<Function>(r, p, a, b, out, epilogue);
  }
}

}  // namespace bolt::portable
