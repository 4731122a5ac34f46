// Several functions of several tensors and of each other's results as one function, element by element.
#pragma once

#include "bolt_portable/point_stages.h"
#include "bolt_portable/typed.h"

namespace bolt::portable {

// Booleans are 1 and 0 among the numbers of a formula.
BOLT_HD inline float load(const boolean* at) { return at->byte != 0 ? 1.0f : 0.0f; }
BOLT_HD inline void store(boolean* at, float value) { *at = boolean(value != 0.0f); }
/// A number that is one already, and whether it is another one than 0.
struct AsNumber {
  BOLT_HD float operator()(float x) const { return x; }
};
struct Holds {
  BOLT_HD float operator()(float x) const { return x != 0.0f ? 1.0f : 0.0f; }
};

/// Number `side`: of what is given, or of what is `made` behind that.
template <int side, typename... In>
BOLT_HD inline float number(const float* made, const In*... in) {
  constexpr int given = sizeof...(In);
  if constexpr (side < given) {
    return loaded<side>(in...);
  } else {
    return made[side - given];
  }
}

/// `Function` of numbers `sides`.
template <typename Function, int... sides>
struct Term {
  Function function;
  template <typename... In>
  BOLT_HD float operator()(const float* made, const In*... in) const {
    return function(number<sides>(made, in...)...);
  }
};

/// Input `side` of those that are given.
template <int side, typename First, typename... In>
BOLT_HD inline const auto* given(const First* first, const In*... in) {
  if constexpr (side == 0) {
    return first;
  } else {
    return given<side - 1>(in...);
  }
}

/// What `Function` asks of two inputs that are integers: floating point has not all of them.
template <typename Function, int left, int right>
struct IntegerTerm {
  Function function;
  template <typename... In>
  BOLT_HD float operator()(const float*, const In*... in) const {
    return function(read(given<left>(in...)), read(given<right>(in...))) ? 1.0f : 0.0f;
  }
};

/// Terms one behind the other, the last of which is the result; nothing is rounded between them.
template <typename... Terms>
struct Formula {
  static constexpr int count = 0;
  template <int place, typename... In>
  BOLT_HD void run(float*, const In*...) const {}
};
template <typename First, typename... Rest>
struct Formula<First, Rest...> {
  static constexpr int count = 1 + sizeof...(Rest);
  First first;
  Formula<Rest...> rest;
  template <int place, typename... In>
  BOLT_HD void run(float* made, const In*... in) const {
    made[place] = first(made, in...);
    rest.template run<place + 1>(made, in...);
  }
};

inline Formula<> formula() { return {}; }
template <typename First, typename... Rest>
Formula<First, Rest...> formula(const First& first, const Rest&... rest) {
  return {first, formula(rest...)};
}

template <typename... Terms, typename Out, typename... In>
BOLT_HD inline void point(const Formula<Terms...>& formula, Out* out, const In*... in) {
  float made[sizeof...(Terms)];
  formula.template run<0>(made, in...);
  store(out, made[sizeof...(Terms) - 1]);
}

}  // namespace bolt::portable
