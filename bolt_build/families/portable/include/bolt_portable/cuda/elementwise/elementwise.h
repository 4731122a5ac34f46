// CUDA drivers of elementwise.h.
#pragma once

#include "bolt_portable/cuda/epilogue_lanes.h"
#include "bolt_portable/cuda/flat.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Whether `lanes` neighbours of an output are one access.
template <typename T>
bool out_in_lanes(const T* out, int lanes) {
  return in_lanes(out, lanes);
}
template <typename T>
bool out_in_lanes(const ApartRows<T>& out, int lanes) {
  return in_lanes(out.data, lanes) && out.place.row % lanes == 0 && out.place.pitch % lanes == 0;
}

/// What `store_flat` does, where rows lie apart.
template <int lanes, typename T>
__device__ inline void store_flat(const ApartRows<T>& out, std::uint32_t base, std::uint32_t elements,
                                  const Lanes<T, lanes>& values) {
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    if (base + i < elements) *(out + (base + i)) = values.at[i];
}

template <int lanes, bool apart, typename In, typename Out, typename Epilogue>
void elementwise_lanes(const Run& r, const Elementwise& p, const In* in, Out out, const Epilogue& epilogue) {
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

/// Rows that no whole access divides, of neighbours of the output that may be of two of them.
template <typename T, typename In, typename Out, typename Epilogue>
void elementwise_flat(const Run& r, const Elementwise& p, const In* in, Out out, const Epilogue& epilogue) {
  constexpr int lanes = flat_lanes<T>;
  const Index pitch = p.pitch ? p.pitch : p.channels * p.inner;
  const Index extent[3] = {p.outer, p.channels, p.inner}, step[3] = {pitch, p.inner, 1}, along[3] = {0, 1, 0};
  const int rank = p.inner == 1 ? 2 : 3;
  FlatSide side(rank, extent, step, "elementwise");
  side.dense = side.dense && in_lanes(in, lanes);
  const FlatSide channels(rank, extent, along, "elementwise");
  launch_flat<lanes>(
      r, p.outer * p.channels * p.inner,
      [=] __device__(std::uint32_t base) {
        const bool whole = base + lanes - 1 <= side.last;
        float x[lanes];
        side.load_all<lanes>(base, whole, in, x);
        Index channel[lanes];
        channels.each<lanes>(base, [&](int i, Index at) { channel[i] = at; });
        epilogue_flat<lanes>(epilogue, x, base, side.last, channel, whole);
        Lanes<T, lanes> made;
#pragma unroll
        for (int i = 0; i < lanes; ++i) store(&made.at[i], x[i]);
        store_flat<lanes>(out, base, side.last + 1, made);
      },
      "elementwise");
}

/// To rows of `T` that are dense or lie apart.
template <typename T, typename In, typename Out, typename Epilogue>
void elementwise_to(const Run& r, const Elementwise& p, const In* in, Out out, const Epilogue& epilogue) {
  const Index run = p.inner == 1 ? p.channels : p.inner;
  const bool lanes = run % wide == 0 && p.pitch % wide == 0 && aligned_to_16(in) && out_in_lanes(out, wide) &&
                     epilogue_in_lanes(epilogue, wide);
  if (!lanes) return elementwise_flat<T>(r, p, in, out, epilogue);
  if (p.pitch) return elementwise_lanes<wide, true>(r, p, in, out, epilogue);
  elementwise_lanes<wide, false>(r, p, in, out, epilogue);
}

template <typename In, typename Out, typename Epilogue>
void elementwise(const Run& r, const Elementwise& p, const void* input, void* output, const Epilogue& epilogue) {
  elementwise_to<Out>(r, p, static_cast<const In*>(input), static_cast<Out*>(output), epilogue);
}
template <typename In, typename Out, typename Epilogue>
void elementwise(const Run& r, const Elementwise& p, const void* input, const ApartRows<Out>& output,
                 const Epilogue& epilogue) {
  elementwise_to<Out>(r, p, static_cast<const In*>(input), output, epilogue);
}

/// Steps of both sides and of the channel, in `lanes` of the innermost axis.
template <int lanes>
Walk<3> broadcast_walk(const Broadcast& p) {
  Walk<3> walk;
  const int last = p.rank - 1;
  for (int axis = last; axis >= 0; --axis) {
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
void broadcast_lanes(const Run& r, const Broadcast& p, const A* a, const B* b, Out out, const Epilogue& epilogue) {
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
template <typename Function, typename T, typename A, typename B, typename Out, typename Epilogue>
void broadcast_flat(const Run& r, const Broadcast& p, const A* a, const B* b, Out out, const Epilogue& epilogue) {
  constexpr int lanes = flat_lanes<T>;
  Index along[Broadcast::most] = {}, elements = 1;
  for (int axis = 0; axis < p.rank; ++axis) elements *= p.extent[axis];
  if (p.channel_axis >= 0) along[p.channel_axis] = 1;
  FlatSide left(p.rank, p.extent, p.a, "broadcast"), right(p.rank, p.extent, p.b, "broadcast");
  left.dense = left.dense && in_lanes(a, lanes);
  right.dense = right.dense && in_lanes(b, lanes);
  const FlatSide channels(p.rank, p.extent, along, "broadcast");
  launch_flat<lanes>(
      r, elements,
      [=] __device__(std::uint32_t base) {
        const bool whole = base + lanes - 1 <= left.last;
        float x[lanes], y[lanes];
        left.load_all<lanes>(base, whole, a, x);
        right.load_all<lanes>(base, whole, b, y);
        combine_lanes<false, Function>(x, y);
        Index channel[lanes];
        channels.each<lanes>(base, [&](int i, Index at) { channel[i] = at; });
        epilogue_flat<lanes>(epilogue, x, base, left.last, channel, whole);
        Lanes<T, lanes> made;
#pragma unroll
        for (int i = 0; i < lanes; ++i) store(&made.at[i], x[i]);
        store_flat<lanes>(out, base, left.last + 1, made);
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

/// To rows of `T` that are dense or lie apart.
template <typename Function, typename T, typename A, typename B, typename Out, typename Epilogue>
void broadcast_to(const Run& r, const Broadcast& p, const A* a, const B* b, Out out, const Epilogue& epilogue) {
  const auto fits = [&](int lanes) {
    return p.extent[p.rank - 1] % lanes == 0 && out_in_lanes(out, lanes) && side_in_lanes(p, p.a, a, lanes) &&
           side_in_lanes(p, p.b, b, lanes) && epilogue_in_lanes(epilogue, lanes);
  };
  if (fits(wide)) {
    broadcast_lanes<wide, Function>(r, p, a, b, out, epilogue);
  } else if (fits(narrow)) {
    broadcast_lanes<narrow, Function>(r, p, a, b, out, epilogue);
  } else {
    broadcast_flat<Function, T>(r, p, a, b, out, epilogue);
  }
}

template <typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast(const Run& r, const Broadcast& p, const void* left, const void* right, void* output,
               const Epilogue& epilogue) {
  broadcast_to<Function, Out>(r, p, static_cast<const A*>(left), static_cast<const B*>(right), static_cast<Out*>(output),
                              epilogue);
}
template <typename Function, typename A, typename B, typename Out, typename Epilogue>
void broadcast(const Run& r, const Broadcast& p, const void* left, const void* right, const ApartRows<Out>& output,
               const Epilogue& epilogue) {
  broadcast_to<Function, Out>(r, p, static_cast<const A*>(left), static_cast<const B*>(right), output, epilogue);
}

}  // namespace bolt::portable
