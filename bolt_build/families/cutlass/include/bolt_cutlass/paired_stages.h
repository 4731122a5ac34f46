// What follows a product, of two neighbouring columns at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_cutlass/epilogue.h"
#include "bolt_portable/cuda/half_functions.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::cutlass_kernels {

/// `x` behind the stages, as a word of two `Element`s. The columns are `channel` and the one behind it; `image` are the numbers
/// of their image, where stages read such.
template <typename Element, typename Stages>
__device__ std::uint32_t paired_result(const Stages& stages, float2 x, float2 residual, int channel, float2 image = {}) {
  return portable::paired<Element>(stages(x.x, residual.x, channel, image.x), stages(x.y, residual.y, channel + 1, image.y));
}

template <typename Element, typename Function>
__device__ std::uint32_t paired_result(const Epilogue<Map<Function>>& stages, float2 x, float2 residual, int channel,
                                       float2 = {}) {
  using Paired = portable::PairedFunction<Element, Function>;
  if constexpr (Paired::there)
    return Paired::of(portable::paired<Element>(x.x, x.y));
  else
    return portable::paired<Element>(stages(x.x, residual.x, channel), stages(x.y, residual.y, channel + 1));
}

/// Stages in front of the last one are those of fp32.
template <typename Element, typename First, typename Second, typename... Rest>
__device__ std::uint32_t paired_result(const Epilogue<First, Second, Rest...>& stages, float2 x, float2 residual,
                                       int channel, float2 image = {}) {
  const float2 next = make_float2(stages.first(x.x, residual.x, channel, image.x),
                                  stages.first(x.y, residual.y, channel + 1, image.y));
  return paired_result<Element>(stages.rest, next, residual, channel, image);
}

template <typename Element, typename Stages>
__device__ std::uint32_t paired_result(const OfImages<Stages>& of, float2 x, float2 residual, int channel, float2 image) {
  return paired_result<Element>(of.stages, x, residual, channel, image);
}

}  // namespace bolt::cutlass_kernels
