// What follows a product before it is stored, as a type: units instantiate kernels for it, plans hold its values.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::cutlass_kernels {

/// A function of the value alone: one of bolt::portable's.
template <typename Function>
struct Map {
  static constexpr bool reads_residual = false;
  Function function;
  BOLT_HD float operator()(float x, float) const { return function(x); }
};

/// A function of the value and the residual (the residual first where `swapped`).
template <typename Function, bool swapped>
struct Join {
  static constexpr bool reads_residual = true;
  BOLT_HD float operator()(float x, float residual) const {
    return swapped ? Function{}(residual, x) : Function{}(x, residual);
  }
};

/// Stages in the order of application, after the bias has been added.
template <typename... Stages>
struct Epilogue;
template <>
struct Epilogue<> {
  static constexpr bool reads_residual = false;
  BOLT_HD float operator()(float x, float) const { return x; }
};
template <typename First, typename... Rest>
struct Epilogue<First, Rest...> {
  static constexpr bool reads_residual = First::reads_residual || Epilogue<Rest...>::reads_residual;
  First first;
  Epilogue<Rest...> rest;
  BOLT_HD float operator()(float x, float residual) const { return rest(first(x, residual), residual); }
};

inline Epilogue<> epilogue() { return {}; }
template <typename First, typename... Rest>
Epilogue<First, Rest...> epilogue(First first, Rest... rest) {
  return {first, epilogue(rest...)};
}

template <typename Function>
Map<Function> map(Function function) {
  return {function};
}
template <typename Function, bool swapped = false>
Join<Function, swapped> join() {
  return {};
}

}  // namespace bolt::cutlass_kernels
