// A function of one or two tensors and the stages behind it as one function of all of their tensors, element by element.
#pragma once

#include "bolt_portable/epilogue.h"
#include "bolt_portable/pointwise.h"

namespace bolt::portable {

/// Element of tensor `side` of those that are given, as float.
template <int side, typename First, typename... In>
BOLT_HD inline float loaded(const First* first, const In*... in) {
  if constexpr (side == 0) {
    return load(first);
  } else {
    return loaded<side - 1>(in...);
  }
}

/// A stage: a function of the result and of tensor `side`, or of the result alone where `side` is -1.
template <typename Function, int side = -1, bool swapped = false>
struct PointStage {
  Function function;
  template <typename... In>
  BOLT_HD float operator()(float x, const In*... in) const {
    if constexpr (side < 0) {
      return function(x);
    } else {
      const float y = loaded<side>(in...);
      return swapped ? function(y, x) : function(x, y);
    }
  }
};

/// Stages one behind the other.
template <typename... Stages>
struct PointStages {
  template <typename... In>
  BOLT_HD float operator()(float x, const In*...) const {
    return x;
  }
};
template <typename First, typename... Rest>
struct PointStages<First, Rest...> {
  First first;
  PointStages<Rest...> rest;
  template <typename... In>
  BOLT_HD float operator()(float x, const In*... in) const {
    return rest(first(x, in...), in...);
  }
};

inline PointStages<> point_stages() { return {}; }
template <typename First, typename... Rest>
PointStages<First, Rest...> point_stages(const First& first, const Rest&... rest) {
  return {first, point_stages(rest...)};
}

/// `Function` of tensors `left` and `right`, and stages behind it; not rounded between them.
template <typename Function, int left, int right, typename Stages>
struct StagedPoint {
  Stages stages;
};
template <typename Function, int left, int right, typename... Stages>
StagedPoint<Function, left, right, PointStages<Stages...>> staged_point(const Stages&... stages) {
  return {point_stages(stages...)};
}

/// Stages of the first tensor.
template <typename Stages>
struct PointChain {
  Stages stages;
};
template <typename... Stages>
PointChain<PointStages<Stages...>> point_chain(const Stages&... stages) {
  return {point_stages(stages...)};
}

template <typename Stages, typename Out, typename First, typename... In>
BOLT_HD inline void point(const PointChain<Stages>& chain, Out* out, const First* first, const In*... in) {
  store(out, chain.stages(load(first), first, in...));
}

template <typename Function, int left, int right, typename Stages, typename Out, typename... In>
BOLT_HD inline void point(const StagedPoint<Function, left, right, Stages>& staged, Out* out, const In*... in) {
  store(out, staged.stages(Function{}(loaded<left>(in...), loaded<right>(in...)), in...));
}

}  // namespace bolt::portable
