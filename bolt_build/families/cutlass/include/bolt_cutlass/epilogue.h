// What follows a product before it is stored, as a type: units instantiate kernels for it, plans hold its values.
#pragma once

#include <memory>

#include "bolt_portable/divisor.h"
#include "bolt_portable/epilogue.h"

namespace bolt::cutlass_kernels {

/// Stages are called with the value, the residual, the channel, and the number of its image and channel, of which each takes
/// what it wants.
///
/// A function of the value alone: one of bolt::portable's.
template <typename Function>
struct Map {
  static constexpr bool reads_residual = false, reads_image = false;
  static constexpr int channels = 0;
  Function function;
  BOLT_HD float operator()(float x, float, int, float = 0.0f) const { return function(x); }
};

/// A function of the value and the residual (the residual first where `swapped`).
template <typename Function, bool swapped>
struct Join {
  static constexpr bool reads_residual = true, reads_image = false;
  static constexpr int channels = 0;
  BOLT_HD float operator()(float x, float residual, int, float = 0.0f) const {
    return swapped ? Function{}(residual, x) : Function{}(x, residual);
  }
};

/// A function of the value and a number that its image has for its channel, a gate for example (that first where `swapped`).
template <typename Function, bool swapped>
struct Image {
  static constexpr bool reads_residual = false, reads_image = true;
  static constexpr int channels = 0;
  BOLT_HD float operator()(float x, float, int, float image) const {
    return swapped ? Function{}(image, x) : Function{}(x, image);
  }
};

/// A function of the value and a constant of its channel (the constant first where `swapped`). Behind `values` lie as many
/// zeros as a tile has columns.
template <typename Function, bool swapped>
struct Channel {
  static constexpr bool reads_residual = false, reads_image = false;
  static constexpr int channels = 1;
  const float* values = nullptr;
  BOLT_HD float operator()(float x, float, int channel, float = 0.0f) const {
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
  static constexpr bool reads_residual = false, reads_image = false;
  static constexpr int channels = 0;
  BOLT_HD float operator()(float x, float, int = 0, float = 0.0f) const { return x; }
  void bind(const std::shared_ptr<const void>*) {}
};
template <typename First, typename... Rest>
struct Epilogue<First, Rest...> {
  static constexpr bool reads_residual = First::reads_residual || Epilogue<Rest...>::reads_residual;
  static constexpr bool reads_image = First::reads_image || Epilogue<Rest...>::reads_image;
  static constexpr int channels = First::channels + Epilogue<Rest...>::channels;
  First first;
  Epilogue<Rest...> rest;
  BOLT_HD float operator()(float x, float residual, int channel, float image) const {
    return rest(first(x, residual, channel, image), residual, channel, image);
  }
  /// Of kernels whose stages never read a number of an image.
  BOLT_HD float operator()(float x, float residual, int channel) const {
    static_assert(!reads_image, "the kernel does not say of which image it stores");
    return (*this)(x, residual, channel, 0.0f);
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
template <typename Function, bool swapped = false>
Image<Function, swapped> image() {
  return {};
}

/// Stages of which one reads a number of each image and channel: `numbers` [images, columns], in the type of the results. An image
/// has `pixels` rows of them. Kernels are told the numbers when they are launched.
template <typename Stages>
struct OfImages {
  static constexpr bool reads_residual = Stages::reads_residual;
  static constexpr int channels = Stages::channels;
  static_assert(Stages::reads_image);
  Stages stages;
  portable::Divisor pixels;
  const void* numbers = nullptr;

  void bind(const std::shared_ptr<const void>* values) { stages.bind(values); }
  OfImages with(const void* given) const { return {stages, pixels, given}; }
};
template <typename Stages>
OfImages<Stages> of_images(Stages stages, int pixels) {
  return {stages, portable::Divisor(pixels)};
}

/// Whether a kernel's stages read a number of each image and channel.
template <typename Stages>
inline constexpr bool reads_images = false;
template <typename Stages>
inline constexpr bool reads_images<OfImages<Stages>> = true;

/// The numbers, null of stages that read none.
template <typename Stages>
const void* numbers_of(const Stages&) {
  return nullptr;
}
template <typename Stages>
const void* numbers_of(const OfImages<Stages>& stages) {
  return stages.numbers;
}

}  // namespace bolt::cutlass_kernels
