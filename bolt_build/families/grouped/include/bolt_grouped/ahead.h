// The epilogue over neighbouring channels, whose tensors of the output's extents are loaded long before they are added: a
// thread that goes down an image asks for those of the next row when it has stored one.
#pragma once

#include "bolt_grouped/halves.h"

namespace bolt::grouped {

/// What one stage reads ahead for `count` neighbouring channels: nothing.
template <int count, typename Stage>
struct AheadOfStage {
  static constexpr bool any = false;
  __device__ void load(const Stage&, Place) {}
  __device__ void apply(const Stage& stage, float* x, Place at) const { Along<count, Stage>::apply(stage, x, at); }
};

template <int count, typename Function, typename T, bool first>
struct AheadOfStage<count, portable::Combine<Function, portable::Same<T>, first>> {
  using Stage = portable::Combine<Function, portable::Same<T>, first>;
  static constexpr bool any = true;
  portable::Lanes<T, count> held;

  __device__ void load(const Stage& stage, Place at) {
    held = *reinterpret_cast<const portable::Lanes<T, count>*>(stage.operand.data + at.element);
  }
  __device__ void apply(const Stage&, float* x, Place) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float other = portable::load(&held.at[i]);
      x[i] = first ? Function{}(other, x[i]) : Function{}(x[i], other);
    }
  }
};

/// The same of all stages.
template <int count, typename Epilogue>
struct Ahead;
template <int count>
struct Ahead<count, portable::Chain<>> {
  static constexpr bool any = false;
  __device__ void load(const portable::Chain<>&, Place) {}
  __device__ void apply(const portable::Chain<>&, float*, Place) const {}
};
template <int count, typename First, typename... Rest>
struct Ahead<count, portable::Chain<First, Rest...>> {
  using Stages = portable::Chain<First, Rest...>;
  AheadOfStage<count, First> own;
  Ahead<count, portable::Chain<Rest...>> rest;
  static constexpr bool any = AheadOfStage<count, First>::any || Ahead<count, portable::Chain<Rest...>>::any;

  /// Of results that there are.
  __device__ void load(const Stages& stages, Place at) {
    own.load(stages.first, at);
    rest.load(stages.rest, at);
  }
  __device__ void apply(const Stages& stages, float* x, Place at) const {
    own.apply(stages.first, x, at);
    rest.apply(stages.rest, x, at);
  }
};

/// Whether stages read no tensor but numbers of channels: where a result stands is of no matter then.
template <typename Stage>
struct OfChannel {
  static constexpr bool value = false;
};
template <typename Function>
struct OfChannel<portable::Apply<Function>> {
  static constexpr bool value = true;
};
template <typename Function, typename T, bool first>
struct OfChannel<portable::Combine<Function, portable::Channel<T>, first>> {
  static constexpr bool value = true;
};
template <typename... Stages>
struct OfChannel<portable::Chain<Stages...>> {
  static constexpr bool value = (... && OfChannel<Stages>::value);
};

}  // namespace bolt::grouped
