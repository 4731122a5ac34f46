// Functions of one to three tensors of any element types, element by element, with NumPy's broadcasting.
#pragma once

#include <cstddef>
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
#include "bolt_portable/cuda/pointwise.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

template <typename Out, typename... In, typename Function, std::size_t... I>
void pointwise_rows(const Run& r, const Pointwise<sizeof...(In)>& p, const Function& function, Out* out,
                    std::index_sequence<I...>, const In*... in) {
  constexpr int inputs = sizeof...(In);
  const int last = p.rank - 1;
  const Index inner = p.extent[last];
  Index rows = 1;
  for (int axis = 0; axis < last; ++axis) rows *= p.extent[axis];
  bool dense = true;
  for (int i = 0; i < inputs; ++i) dense = dense && p.step[i][last] == 1;
  const Index block = rows == 1 ? 4096 : inner;
  const Index blocks = (inner + block - 1) / block;
  parallel(r, rows * blocks, block, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index row = item / blocks, first = item % blocks * block, stop = std::min(first + block, inner);
      Index at[inputs] = {}, rest = row;
      for (int axis = last; axis-- > 0;) {
        const Index index = rest % p.extent[axis];
        rest /= p.extent[axis];
        for (int i = 0; i < inputs; ++i) at[i] += index * p.step[i][axis];
      }
      Out* to = out + row * inner;
      if (dense) {
        BOLT_SIMD
        for (Index i = first; i < stop; ++i) point(function, to + i, (in + at[I] + i)...);
      } else {
        for (Index i = first; i < stop; ++i) point(function, to + i, (in + at[I] + i * p.step[I][last])...);
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
