// Reductions of elementwise functions on a GPU: a thread has a result.
#pragma once

#include <cstddef>

#include "bolt_portable/cuda/reductions/fold.h"
#include "bolt_portable/folded_formula.h"

namespace bolt::portable {

/// Where a result's elements begin in each input, and its index along the epilogue's channels.
template <int inputs>
Walk<inputs + 1> kept_walk(const FormulaFold<inputs>& p, int inside) {
  Walk<inputs + 1> walk;
  for (int axis = p.kept_rank - inside; axis-- > 0;) {
    Index steps[inputs + 1];
    for (int i = 0; i < inputs; ++i) steps[i] = p.kept_step[i][axis];
    steps[inputs] = axis == p.channel_axis ? 1 : 0;
    walk.add(p.kept[axis], steps);
  }
  return walk;
}

/// Where folded elements of all axes but the innermost `inside` ones lie behind the first.
template <int inputs>
Walk<inputs> folded_places(const FormulaFold<inputs>& p, int inside) {
  Walk<inputs> walk;
  for (int axis = p.folded_rank - inside; axis-- > 0;) {
    Index steps[inputs];
    for (int i = 0; i < inputs; ++i) steps[i] = p.folded_step[i][axis];
    walk.add(p.folded[axis], steps);
  }
  return walk;
}

/// Where tensors begin.
template <typename... In>
struct FormulaInputs {
  template <int place, typename Function, int all, typename... Elements>
  __device__ float term(const Function& function, const Index (&)[all], const Elements*... elements) const {
    return term_of(function, elements...);
  }
};
template <typename First, typename... Rest>
struct FormulaInputs<First, Rest...> {
  const First* first;
  FormulaInputs<Rest...> rest;
  template <typename... Pointers>
  explicit FormulaInputs(const void* one, Pointers... others) : first(static_cast<const First*>(one)), rest(others...) {}
  /// The formula of elements at `at`.
  template <int place, typename Function, int all, typename... Elements>
  __device__ float term(const Function& function, const Index (&at)[all], const Elements*... elements) const {
    return rest.template term<place + 1>(function, at, elements..., first + at[place]);
  }
};

/// A thread has a result: it goes over all of its elements.
template <typename Mode, typename Out, typename Function, typename Epilogue, typename... In>
struct FormulaPlain {
  static constexpr int inputs = sizeof...(In);
  Function function;
  FormulaInputs<In...> from;
  Walk<inputs + 1> kept;
  Walk<inputs> rows;
  Lanes<Index, inputs> step;
  Index inner, count;
  Out* out;
  Epilogue epilogue;

  __device__ void operator()(std::uint32_t item) const {
    Index start[inputs + 1] = {};
    kept.go(item, start);
    typename Mode::Total total = Mode::start();
    for (std::uint32_t row = 0; row < rows.items; ++row) {
      Index at[inputs];
#pragma unroll
      for (int i = 0; i < inputs; ++i) at[i] = start[i];
      rows.go(row, at);
      typename Mode::Total partial = Mode::start();
#pragma unroll 4
      for (Index k = 0; k < inner; ++k) {
        partial = Mode::step(partial, from.template term<0>(function, at));
#pragma unroll
        for (int i = 0; i < inputs; ++i) at[i] += step.at[i];
      }
      total = Mode::join(total, partial);
    }
    store(out + item, epilogue(Mode::finish(total, count), Place{item, start[inputs]}));
  }
};

/// `Mode` of `formula` of the inputs; `inputs` are as many pointers as there are types. Raises std::runtime_error where there are
/// too many results, or the launch fails.
template <typename Mode, typename Out, typename... In, typename Function, typename Epilogue, typename... Pointers>
void fold_formula(const Run& r, const FormulaFold<sizeof...(In)>& p, const Function& formula, void* output,
                  const Epilogue& epilogue, Pointers... inputs) {
  Lanes<Index, sizeof...(In)> step;
  for (std::size_t i = 0; i < sizeof...(In); ++i) step.at[i] = p.folded_step[i][p.folded_rank - 1];
  const auto kept = kept_walk(p, 0);
  launch_each(r, kept.items,
              FormulaPlain<Mode, Out, Function, Epilogue, In...>{formula, FormulaInputs<In...>(inputs...), kept,
                                                                 folded_places(p, 1), step, p.folded[p.folded_rank - 1],
                                                                 p.count(), static_cast<Out*>(output), epilogue},
              "reduction");
}

}  // namespace bolt::portable
