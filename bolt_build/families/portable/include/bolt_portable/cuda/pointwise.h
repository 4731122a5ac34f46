// CUDA driver of pointwise.h.
#pragma once

#include "bolt_portable/cuda/walk.h"

namespace bolt::portable {

/// Neighbours that one thread takes where rows are made of so many.
constexpr int points = 4;

/// What one thread does. No lambda: those of devices cannot capture parts of a parameter pack.
template <int lanes, typename Function, typename Sequence, typename Out, typename... In>
struct Points;
template <int lanes, typename Function, std::size_t... I, typename Out, typename... In>
struct Points<lanes, Function, std::index_sequence<I...>, Out, In...> {
  static constexpr int inputs = sizeof...(In);
  Walk<inputs> walk;
  Index beside[inputs];  ///< steps along the innermost axis
  Function function;
  Out* out;
  const void* in[inputs];

  __device__ void operator()(std::uint32_t item) const {
    Index at[inputs] = {};
    walk.go(item, at);
    Lanes<Out, lanes> made;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      point(function, &made.at[lane], (static_cast<const In*>(in[I]) + at[I] + lane * beside[I])...);
    *reinterpret_cast<Lanes<Out, lanes>*>(out + static_cast<Index>(item) * lanes) = made;
  }
};

template <int lanes, typename Out, typename... In, typename Function, typename... Pointers>
void points_in(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, Out* out, Pointers... inputs) {
  constexpr int count = sizeof...(In);
  Points<lanes, Function, std::index_sequence_for<In...>, Out, In...> body{{}, {}, function, out, {inputs...}};
  for (int axis = p.rank; axis-- > 0;) {
    const Index times = axis == p.rank - 1 ? lanes : 1;
    Index steps[count];
    for (int i = 0; i < count; ++i) steps[i] = p.step[i][axis] * times;
    body.walk.add(p.extent[axis] / times, steps);
  }
  for (int i = 0; i < count; ++i) body.beside[i] = p.step[i][p.rank - 1];
  launch_each(r, body.walk.items, body, "pointwise");
}

template <typename Out, typename... In, typename Function, typename... Pointers>
void pointwise(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, void* output,
               Pointers... inputs) {
  Out* out = static_cast<Out*>(output);
  if (p.extent[p.rank - 1] % points == 0 && in_lanes(out, points)) {
    points_in<points, Out, In...>(r, p, function, out, inputs...);
  } else {
    points_in<1, Out, In...>(r, p, function, out, inputs...);
  }
}

}  // namespace bolt::portable
