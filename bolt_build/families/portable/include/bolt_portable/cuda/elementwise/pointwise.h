// CUDA driver of pointwise.h.
#pragma once

#include <algorithm>

#include "bolt_portable/cuda/flat.h"

namespace bolt::portable {

/// Neighbours that one thread takes: of booleans and bytes alone sixteen, else as many as have one access or two of the
/// widest elements.
template <typename... T>
constexpr int points() {
  constexpr std::size_t widest = std::max({sizeof(T)...});
  return widest == 1 ? 16 : widest < 8 ? 8 : 4;
}

/// How an input's elements are found.
enum class Apart { dense, alike, any };

/// What one thread does. No lambda: those of devices cannot capture parts of a parameter pack.
template <int lanes, typename Function, typename Sequence, typename Out, typename... In>
struct Points;
template <int lanes, typename Function, std::size_t... I, typename Out, typename... In>
struct Points<lanes, Function, std::index_sequence<I...>, Out, In...> {
  static constexpr int inputs = sizeof...(In);
  FlatSide side[inputs];
  Apart apart[inputs];
  bool straight;  ///< all are dense
  Function function;
  Out* out;
  const void* in[inputs];

  template <typename T>
  __device__ static Lanes<T, lanes> load_whole(std::uint32_t base, const void* input) {
    return *reinterpret_cast<const Lanes<T, lanes>*>(static_cast<const T*>(input) + base);
  }
  template <typename T>
  __device__ static Lanes<T, lanes> load_side(const FlatSide& side, Apart apart, std::uint32_t base, const void* input) {
    const T* const from = static_cast<const T*>(input);
    if (apart == Apart::dense && base + lanes - 1 <= side.last) return load_whole<T>(base, input);
    Lanes<T, lanes> values;
    if (apart == Apart::alike) {
      const T all = from[side.begin(side.run.quotient(base))];
#pragma unroll
      for (int i = 0; i < lanes; ++i) values.at[i] = all;
    } else {
      side.template each<lanes>(base, [&](int i, Index at) { values.at[i] = from[at]; });
    }
    return values;
  }

  __device__ void finish(std::uint32_t base, const Lanes<In, lanes>&... values) const {
    Lanes<Out, lanes> made;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) point(function, &made.at[lane], &values.at[lane]...);
    store_flat<lanes>(out, base, side[0].last + 1, made);
  }

  /// Where all are dense a thread asks for all before it waits for one: it has no branch between them.
  __device__ void operator()(std::uint32_t base) const {
    if (straight && base + lanes - 1 <= side[0].last)
      finish(base, load_whole<In>(base, in[I])...);
    else
      finish(base, load_side<In>(side[I], apart[I], base, in[I])...);
  }
};

template <int lanes, typename Out, typename... In, typename Function, std::size_t... I, typename... Pointers>
void points_in(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, Out* out,
               std::index_sequence<I...>, Pointers... inputs) {
  Index elements = 1;
  for (int axis = 0; axis < p.rank; ++axis) elements *= p.extent[axis];
  if (elements == 0) return;
  const bool rows = p.extent[p.rank - 1] % lanes == 0;
  Points<lanes, Function, std::index_sequence<I...>, Out, In...> body{
      {FlatSide(p.rank, p.extent, p.step[I], "pointwise")...}, {}, true, function, out, {inputs...}};
  const bool aligned[] = {in_lanes(static_cast<const In*>(inputs), lanes)...};
  for (std::size_t i = 0; i < sizeof...(In); ++i) {
    const FlatSide& side = body.side[i];
    body.apart[i] = side.dense && aligned[i] ? Apart::dense : rows && side.inner == 0 ? Apart::alike : Apart::any;
    body.straight = body.straight && body.apart[i] == Apart::dense;
  }
  launch_flat<lanes>(r, elements, body, "pointwise");
}

template <typename Out, typename... In, typename Function, typename... Pointers>
void pointwise(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, void* output,
               Pointers... inputs) {
  constexpr int lanes = points<Out, In...>();
  points_in<lanes, Out, In...>(r, p, function, static_cast<Out*>(output), std::index_sequence_for<In...>{}, inputs...);
}

}  // namespace bolt::portable
