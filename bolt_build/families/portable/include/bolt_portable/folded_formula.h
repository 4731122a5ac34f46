// Reductions of elementwise functions of several tensors, of which nothing is stored but the results.
#pragma once

#include "bolt_portable/formula.h"
#include "bolt_portable/reduce.h"

namespace bolt::portable {

/// Kept axes in the order of the output's memory and folded ones, each outermost first and merged where all inputs allow.
/// `kept_step[i]` and `folded_step[i]` are those of input i in elements, 0 where it is broadcast. `channel_axis` is the kept axis
/// that per-channel operands of the epilogue follow, -1 for none.
template <int inputs>
struct FormulaFold {
  static constexpr int most = 8;
  int kept_rank;
  Index kept[most], kept_step[inputs][most];
  int folded_rank;
  Index folded[most], folded_step[inputs][most];
  int channel_axis;

  Index results() const { return counted_of(kept_rank, kept); }
  Index count() const { return counted_of(folded_rank, folded); }
  static Index counted_of(int rank, const Index (&extent)[most]) {
    Index all = 1;
    for (int axis = 0; axis < rank; ++axis) all *= extent[axis];
    return all;
  }
};

/// The last of the formula's terms, of elements at these places, not rounded.
template <typename... Terms, typename... In>
BOLT_HD inline float term_of(const Formula<Terms...>& formula, const In*... in) {
  float made[sizeof...(Terms)];
  formula.template run<0>(made, in...);
  return made[sizeof...(Terms) - 1];
}

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/reductions/formula_plain.h"
#else
#include "bolt_portable/parallel.h"

namespace bolt::portable {

/// `Mode` of `formula` of the inputs; `inputs` are as many pointers as there are types.
template <typename Mode, typename Out, typename... In, typename Function, std::size_t... I, typename Epilogue>
void fold_formula_of(const Run& r, const FormulaFold<sizeof...(In)>& p, const Function& formula, Out* out, const Epilogue& epilogue,
                     std::index_sequence<I...>, const In*... in) {
  constexpr int inputs = sizeof...(In);
  const int last = p.folded_rank - 1;
  const Index inner = p.folded_rank ? p.folded[last] : 1, count = p.count(), rows = count / std::max<Index>(inner, 1);
  parallel(r, p.results(), count, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      Index start[inputs] = {}, channel = 0, rest = item;
      for (int axis = p.kept_rank; axis-- > 0;) {
        const Index index = rest % p.kept[axis];
        rest /= p.kept[axis];
        for (int i = 0; i < inputs; ++i) start[i] += index * p.kept_step[i][axis];
        if (axis == p.channel_axis) channel = index;
      }
      typename Mode::Total total = Mode::start();
      for (Index row = 0; row < rows; ++row) {
        Index at[inputs];
        for (int i = 0; i < inputs; ++i) at[i] = start[i];
        rest = row;
        for (int axis = last; axis-- > 0;) {
          const Index index = rest % p.folded[axis];
          rest /= p.folded[axis];
          for (int i = 0; i < inputs; ++i) at[i] += index * p.folded_step[i][axis];
        }
        typename Mode::Total partial = Mode::start();
        for (Index k = 0; k < inner; ++k)
          partial = Mode::step(partial, term_of(formula, (in + at[I] + (last < 0 ? 0 : k * p.folded_step[I][last]))...));
        total = Mode::join(total, partial);
      }
      store(out + item, epilogue(Mode::finish(total, count), Place{item, channel}));
    }
  });
}

template <typename Mode, typename Out, typename... In, typename Function, typename Epilogue, typename... Pointers>
void fold_formula(const Run& r, const FormulaFold<sizeof...(In)>& p, const Function& formula, void* output,
                  const Epilogue& epilogue, Pointers... inputs) {
  fold_formula_of<Mode, Out, In...>(r, p, formula, static_cast<Out*>(output), epilogue, std::index_sequence_for<In...>{},
                                    static_cast<const In*>(inputs)...);
}

}  // namespace bolt::portable
#endif
