// CUDA driver of pointwise.h.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Neighbours that one thread takes where rows are made of so many.
constexpr int points = 4;

/// What one thread does. No lambda: those of devices cannot capture parts of a parameter pack.
template <int lanes, typename Function, typename Sequence, typename Out, typename... In>
struct Points;
template <int lanes, typename Function, std::size_t... I, typename Out, typename... In>
struct Points<lanes, Function, std::index_sequence<I...>, Out, In...> {
  static constexpr int inputs = sizeof...(In);
  Pointwise<inputs> p;
  Function function;
  Out* out;
  const void* in[inputs];

  __device__ void operator()(std::uint32_t item) const {
    const int last = p.rank - 1;
    Index at[inputs] = {};
    std::uint32_t rest = item;
    for (int axis = last; axis >= 0; --axis) {
      const std::uint32_t extent = static_cast<std::uint32_t>(axis == last ? p.extent[axis] / lanes : p.extent[axis]);
      const Index index = static_cast<Index>(rest % extent) * (axis == last ? lanes : 1);
      rest /= extent;
      for (int i = 0; i < inputs; ++i) at[i] += index * p.step[i][axis];
    }
    Lanes<Out, lanes> made;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      point(function, &made.at[lane], (static_cast<const In*>(in[I]) + at[I] + lane * p.step[I][last])...);
    *reinterpret_cast<Lanes<Out, lanes>*>(out + static_cast<Index>(item) * lanes) = made;
  }
};

template <typename Out, typename... In, typename Function, typename... Pointers>
void pointwise(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, void* output,
               Pointers... inputs) {
  using Sequence = std::index_sequence_for<In...>;
  Out* out = static_cast<Out*>(output);
  Index items = 1;
  for (int axis = 0; axis < p.rank; ++axis) items *= p.extent[axis];
  if (p.extent[p.rank - 1] % points == 0 && aligned_to_16(out)) {
    const Points<points, Function, Sequence, Out, In...> body{p, function, out, {inputs...}};
    launch_each(r, items / points, body, "pointwise");
  } else {
    const Points<1, Function, Sequence, Out, In...> body{p, function, out, {inputs...}};
    launch_each(r, items, body, "pointwise");
  }
}

}  // namespace bolt::portable
