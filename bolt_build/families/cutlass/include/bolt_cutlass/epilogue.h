// What follows a product before it is stored, as a type: units instantiate kernels for it, plans hold its values.
#pragma once

#include <memory>

#include "bolt_portable/epilogue.h"

namespace bolt::cutlass_kernels {

/// A function of the value alone: one of bolt::portable's.
template <typename Function>
struct Map {
  static constexpr bool reads_residual = false;
  static constexpr int channels = 0;
  Function function;
  BOLT_HD float operator()(float x, float, int) const { return function(x); }
};

/// A function of the value and the residual (the residual first where `swapped`).
template <typename Function, bool swapped>
struct Join {
  static constexpr bool reads_residual = true;
  static constexpr int channels = 0;
  BOLT_HD float operator()(float x, float residual, int) const {
    return swapped ? Function{}(residual, x) : Function{}(x, residual);
  }
};

/// A function of the value and a constant of its channel (the constant first where `swapped`). Behind `values` lie as many
/// zeros as a tile has columns.
template <typename Function, bool swapped>
struct Channel {
  static constexpr bool reads_residual = false;
  static constexpr int channels = 1;
  const float* values = nullptr;
  BOLT_HD float operator()(float x, float, int channel) const {
#ifdef __CUDA_ARCH__
    const float own = __ldg(values + channel);
#else
    const float own = values[channel];
#endif
    return swapped ? Function{}(own, x) : Function{}(x, own);
  }
};

/// Stages in the order of application, after the bias has been added. `channels` of them read constants, to which `bind` points.
template <typename... Stages>
struct Epilogue;
template <>
struct Epilogue<> {
  static constexpr bool reads_residual = false;
  static constexpr int channels = 0;
  BOLT_HD float operator()(float x, float, int = 0) const { return x; }
  void bind(const std::shared_ptr<const void>*) {}
};
template <typename First, typename... Rest>
struct Epilogue<First, Rest...> {
  static constexpr bool reads_residual = First::reads_residual || Epilogue<Rest...>::reads_residual;
  static constexpr int channels = First::channels + Epilogue<Rest...>::channels;
  First first;
  Epilogue<Rest...> rest;
  BOLT_HD float operator()(float x, float residual, int channel) const {
    return rest(first(x, residual, channel), residual, channel);
  }
  /// Of kernels whose stages never read a channel's constant.
  BOLT_HD float operator()(float x, float residual) const {
    static_assert(channels == 0, "the kernel does not say which channel it stores");
    return (*this)(x, residual, 0);
  }
  void bind(const std::shared_ptr<const void>* values) {
    if constexpr (First::channels == 1) first.values = static_cast<const float*>(values->get());
    rest.bind(values + First::channels);
  }
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
template <typename Function, bool swapped = false>
Channel<Function, swapped> channel() {
  return {};
}

}  // namespace bolt::cutlass_kernels
