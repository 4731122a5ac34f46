// Values of a thread in half precision: loads, the epilogue over neighbours, stores.
#pragma once

#include "bolt_grouped/launch.h"
#include "bolt_portable/cuda/launch.h"

namespace bolt::grouped {

using portable::Index;
using portable::Place;
using Half = portable::f16;

/// One stage for `count` neighbouring channels.
template <int count, typename Stage>
struct Along {
  static __device__ void apply(const Stage& stage, float* x, Place at) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = stage(x[i], Place{at.element + i, at.channel + i});
  }
};

template <int count, typename Function, typename T, bool first>
struct Along<count, portable::Combine<Function, portable::Same<T>, first>> {
  static __device__ void apply(const portable::Combine<Function, portable::Same<T>, first>& stage, float* x, Place at) {
    float other[count];
    portable::load_lanes<count>(stage.operand.data + at.element, other);
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = first ? Function{}(other[i], x[i]) : Function{}(x[i], other[i]);
  }
};

template <int count, typename Function, typename T, bool first>
struct Along<count, portable::Combine<Function, portable::Channel<T>, first>> {
  static __device__ void apply(const portable::Combine<Function, portable::Channel<T>, first>& stage, float* x,
                               Place at) {
    float other[count];
    portable::load_lanes<count>(stage.operand.data + at.channel, other);
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = first ? Function{}(other[i], x[i]) : Function{}(x[i], other[i]);
  }
};

template <int count>
__device__ inline void along(const portable::Chain<>&, float*, Place) {}
template <int count, typename First, typename... Rest>
__device__ inline void along(const portable::Chain<First, Rest...>& chain, float* x, Place at) {
  Along<count, First>::apply(chain.first, x, at);
  along<count>(chain.rest, x, at);
}

/// Applies the epilogue to `count` results from `channel` of a pixel on, and stores those that there are as `Element`s.
template <int count, int access, typename Element = Half, typename Epilogue>
__device__ inline void put(const Arguments& a, const Epilogue& epilogue, float* x, int pixel, int channel) {
  constexpr int part = access < count ? access : count;
  const int row = a.y_row == 0 ? a.out_channels : a.y_row;
  Element* const y = static_cast<Element*>(a.y);
#pragma unroll
  for (int i = 0; i < count; i += part) {
    if (channel + i >= a.out_channels) continue;
    along<part>(epilogue, x + i, Place{Index{pixel} * a.out_channels + channel + i, channel + i});
    portable::store_lanes<part>(y + Index{pixel} * row + channel + i, x + i);
  }
}

}  // namespace bolt::grouped
