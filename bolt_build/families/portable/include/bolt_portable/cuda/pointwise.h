// CUDA driver of pointwise.h.
#pragma once

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// Neighbours that one thread takes, where every input has them side by side or is one number for all of them.
constexpr int points = 4;

template <int lanes, typename Out, typename... In, typename Function, std::size_t... I>
void pointwise_lanes(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, Out* out,
                     std::index_sequence<I...>, const In*... in) {
  constexpr int inputs = sizeof...(In);
  Index items = 1;
  for (int axis = 0; axis < p.rank; ++axis) items *= p.extent[axis];
  launch_each(
      r, items / lanes,
      [=] __device__(std::uint32_t item) {
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
        for (int lane = 0; lane < lanes; ++lane) point(function, &made.at[lane], (in + at[I] + lane * p.step[I][last])...);
        *reinterpret_cast<Lanes<Out, lanes>*>(out + static_cast<Index>(item) * lanes) = made;
      },
      "pointwise");
}

template <typename Out, typename... In, typename Function, typename... Pointers>
void pointwise(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, void* output,
               Pointers... inputs) {
  Out* out = static_cast<Out*>(output);
  constexpr auto sequence = std::index_sequence_for<In...>{};
  if (p.extent[p.rank - 1] % points == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0) {
    pointwise_lanes<points, Out, In...>(r, p, function, out, sequence, static_cast<const In*>(inputs)...);
  } else {
    pointwise_lanes<1, Out, In...>(r, p, function, out, sequence, static_cast<const In*>(inputs)...);
  }
}

}  // namespace bolt::portable
