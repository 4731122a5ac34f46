// Functions of a few tensors of any element types, element by element, with NumPy's broadcasting.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "bolt_portable/typed.h"

namespace bolt::portable {

/// Axes of the dense output in memory order, outermost first, merged where all inputs allow; `step[i]` are those of input
/// i in elements, 0 where it is broadcast.
template <int inputs>
struct Pointwise {
  static constexpr int most = 8;
  int rank;
  Index extent[most], step[inputs][most];
};

template <typename Out, typename Function, typename... In>
BOLT_HD inline void point(const Function& function, Out* out, const In*... in) {
  *out = element<Out>(function(read(in)...));
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/elementwise/pointwise.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// Elements that are computed at a time, and the row from which it pays to lay them side by side for that.
constexpr Index pointwise_chunk = 512, pointwise_least = 16;

/// An input's next elements side by side: where they lie, or copied.
template <typename T>
struct Neighbours {
  T copied[pointwise_chunk];
  const T* broadcast = nullptr;
  Index filled = 0;

  /// Those of the chunk at `from`, `step` apart. An element that is broadcast stays copied until there is another.
  const T* chunk(const T* from, Index step, Index count) {
    if (step == 1) return from;
    const bool kept = step == 0 && from == broadcast && count <= filled;
    if (!kept)
      for (Index i = 0; i < count; ++i) copied[i] = from[i * step];
    broadcast = step == 0 ? from : nullptr;
    filled = std::max(count, kept ? filled : 0);
    return copied;
  }
};

/// One chunk of which every input's elements are neighbours: the loop that vector units run.
template <typename Out, typename Function, typename... In>
void point_chunk(const Function& function, Index count, Out* out, const In*... in) {
  BOLT_SIMD
  for (Index i = 0; i < count; ++i) point(function, out + i, (in + i)...);
}

template <typename Out, typename... In, typename Function, std::size_t... I>
void pointwise_rows(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, Out* out,
                    std::index_sequence<I...>, const In*... in) {
  constexpr int inputs = sizeof...(In);
  const int last = p.rank - 1;
  const Index inner = p.extent[last];
  Index rows = 1;
  for (int axis = 0; axis < last; ++axis) rows *= p.extent[axis];
  const Index block = rows == 1 ? 4096 : inner;
  const Index blocks = (inner + block - 1) / block;
  parallel(r, rows * blocks, block, [&](Index begin, Index end) {
    std::tuple<Neighbours<In>...> near;
    for (Index item = begin; item < end; ++item) {
      const Index row = item / blocks, first = item % blocks * block, stop = std::min(first + block, inner);
      Index at[inputs] = {}, rest = row;
      for (int axis = last; axis-- > 0;) {
        const Index index = rest % p.extent[axis];
        rest /= p.extent[axis];
        for (int i = 0; i < inputs; ++i) at[i] += index * p.step[i][axis];
      }
      Out* to = out + row * inner;
      if (inner < pointwise_least) {
        for (Index i = first; i < stop; ++i) point(function, to + i, (in + at[I] + i * p.step[I][last])...);
        continue;
      }
      for (Index i = first; i < stop; i += pointwise_chunk) {
        const Index count = std::min(pointwise_chunk, stop - i);
        point_chunk(function, count, to + i,
                    std::get<I>(near).chunk(in + at[I] + i * p.step[I][last], p.step[I][last], count)...);
      }
    }
  });
}

/// `inputs` are as many pointers as there are types behind the first.
template <typename Out, typename... In, typename Function, typename... Pointers>
void pointwise(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, void* output,
               Pointers... inputs) {
  pointwise_rows<Out, In...>(r, p, function, static_cast<Out*>(output), std::index_sequence_for<In...>{},
                             static_cast<const In*>(inputs)...);
}

}  // namespace bolt::portable
#endif
