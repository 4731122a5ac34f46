// Elementwise stages of neighbours that one thread has: operands come in whole accesses, not one by one.
#pragma once

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/functions.h"

namespace bolt::portable {

/// Functions that four neighbours have in fewer instructions than four times one number.
template <typename Function>
struct OfFour {
  static constexpr bool there = false;
};
template <>
struct OfFour<Silu> {
  static constexpr bool there = true;
  static __device__ void apply(const Silu&, float (&x)[4]) { Approximate<SpecialFunctions>::silu_of_four(x); }
};
template <>
struct OfFour<GeluTanh> {
  static constexpr bool there = true;
  static __device__ void apply(const GeluTanh&, float (&x)[4]) { Approximate<SpecialFunctions>::gelu_tanh_of_four(x); }
};
template <>
struct OfFour<Mish> {
  static constexpr bool there = true;
  static __device__ void apply(const Mish&, float (&x)[4]) { Approximate<SpecialFunctions>::mish_of_four(x); }
};

/// Applies a function of one operand to `lanes` neighbours.
template <int lanes, typename Function>
__device__ inline void apply_lanes(const Function& function, float (&x)[lanes]) {
  if constexpr (OfFour<Function>::there && lanes % 4 == 0) {
#pragma unroll
    for (int i = 0; i < lanes; i += 4) OfFour<Function>::apply(function, *reinterpret_cast<float(*)[4]>(x + i));
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i) x[i] = function(x[i]);
  }
}

/// Applies a stage to `lanes` neighbours, the first of which is at `at`, a multiple of `lanes`; `along` if they are neighbours
/// along the channels. What has no form of its own is applied one by one.
template <int lanes, typename Stage>
__device__ inline void stage_lanes(const Stage& stage, float (&x)[lanes], Place at, bool along) {
#pragma unroll
  for (int i = 0; i < lanes; ++i) x[i] = stage(x[i], Place{at.element + i, along ? at.channel + i : at.channel});
}

template <int lanes, typename Function>
__device__ inline void stage_lanes(const Apply<Function>& stage, float (&x)[lanes], Place, bool) {
  apply_lanes<lanes>(stage.function, x);
}

template <bool operand_first, typename Function, int lanes>
__device__ inline void combine_lanes(float (&x)[lanes], const float (&y)[lanes]) {
#pragma unroll
  for (int i = 0; i < lanes; ++i) x[i] = operand_first ? Function{}(y[i], x[i]) : Function{}(x[i], y[i]);
}

template <int lanes, typename Function, typename T, bool operand_first>
__device__ inline void stage_lanes(const Combine<Function, Same<T>, operand_first>& stage, float (&x)[lanes], Place at, bool) {
  float y[lanes];
  load_lanes<lanes>(stage.operand.data + at.element, y);
  combine_lanes<operand_first, Function>(x, y);
}

template <int lanes, typename Function, typename T, bool operand_first>
__device__ inline void stage_lanes(const Combine<Function, ApartOperand<T>, operand_first>& stage, float (&x)[lanes], Place at,
                                   bool) {
  float y[lanes];
  load_lanes<lanes>(stage.operand.data + stage.operand.place(at.element), y);
  combine_lanes<operand_first, Function>(x, y);
}

template <int lanes, typename Function, typename T, bool operand_first>
__device__ inline void stage_lanes(const Combine<Function, Channel<T>, operand_first>& stage, float (&x)[lanes], Place at,
                                   bool along) {
  float y[lanes];
  if (along) {
    load_lanes<lanes>(stage.operand.data + at.channel, y);
  } else {
    const float all = load(stage.operand.data + at.channel);
#pragma unroll
    for (int i = 0; i < lanes; ++i) y[i] = all;
  }
  combine_lanes<operand_first, Function>(x, y);
}

template <int lanes>
__device__ inline void epilogue_lanes(const Chain<>&, float (&)[lanes], Place, bool) {}
template <int lanes, typename First, typename... Rest>
__device__ inline void epilogue_lanes(const Chain<First, Rest...>& chain, float (&x)[lanes], Place at, bool along) {
  stage_lanes<lanes>(chain.first, x, at, along);
  epilogue_lanes<lanes>(chain.rest, x, at, along);
}

/// The same of neighbours that may be of two rows: `channel` is that of each. `last` is the output's last element; unless `whole`
/// some of the neighbours are behind it.
template <int lanes, typename Stage>
__device__ inline void stage_flat(const Stage& stage, float (&x)[lanes], Index base, Index last, const Index (&channel)[lanes],
                                  bool) {
#pragma unroll
  for (int i = 0; i < lanes; ++i) x[i] = stage(x[i], Place{base + i < last ? base + i : last, channel[i]});
}
template <int lanes, typename Function>
__device__ inline void stage_flat(const Apply<Function>& stage, float (&x)[lanes], Index, Index, const Index (&)[lanes], bool) {
  apply_lanes<lanes>(stage.function, x);
}
template <int lanes, typename Function, typename T, bool operand_first>
__device__ inline void stage_flat(const Combine<Function, Same<T>, operand_first>& stage, float (&x)[lanes], Index base,
                                  Index last, const Index (&)[lanes], bool whole) {
  const T* const from = stage.operand.data;
  float y[lanes];
  if (whole && reinterpret_cast<std::uintptr_t>(from) % alignof(Lanes<T, lanes>) == 0) {
    load_lanes<lanes>(from + base, y);
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i) y[i] = load(from + (base + i < last ? base + i : last));
  }
  combine_lanes<operand_first, Function>(x, y);
}
template <int lanes>
__device__ inline void epilogue_flat(const Chain<>&, float (&)[lanes], Index, Index, const Index (&)[lanes], bool) {}
template <int lanes, typename First, typename... Rest>
__device__ inline void epilogue_flat(const Chain<First, Rest...>& chain, float (&x)[lanes], Index base, Index last,
                                     const Index (&channel)[lanes], bool whole) {
  stage_flat<lanes>(chain.first, x, base, last, channel, whole);
  epilogue_flat<lanes>(chain.rest, x, base, last, channel, whole);
}

/// What a stage of neighbours reads from memory, asked for before the stage is: a thread that stores one access after the other
/// would else wait for each, for the compiler brings no load in front of a store.
template <int lanes, typename Stage>
struct Fetched {
  static constexpr bool any = false;
  __device__ void fetch(const Stage&, Index) {}
  __device__ void fetch_flat(const Stage&, Index, Index, bool) {}
  __device__ void apply(const Stage& stage, float (&x)[lanes], Place at, bool along) const {
    stage_lanes<lanes>(stage, x, at, along);
  }
  __device__ void apply_flat(const Stage& stage, float (&x)[lanes], Index base, Index last, const Index (&channel)[lanes],
                             bool whole) const {
    stage_flat<lanes>(stage, x, base, last, channel, whole);
  }
};
template <int lanes, typename Function, typename T, bool operand_first>
struct Fetched<lanes, Combine<Function, Same<T>, operand_first>> {
  using Stage = Combine<Function, Same<T>, operand_first>;
  static constexpr bool any = true;
  static constexpr int words = sizeof(Lanes<T, lanes>) / 4;
  /// Words as they were loaded: a thread that took elements out of them would wait where it asks for them.
  std::uint32_t found[words];

  __device__ void fetch(const Stage& stage, Index at) {
    const T* const from = stage.operand.data + at;
    if constexpr (alignof(Words) < 16) {
      keep(*reinterpret_cast<const Words*>(from));
    } else {
      // Whole: the compiler would make four loads of it, where elements may come one by one as well.
#pragma unroll
      for (int i = 0; i < words; i += 4)
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(found[i]), "=r"(found[i + 1]), "=r"(found[i + 2]), "=r"(found[i + 3])
                     : "l"(__cvta_generic_to_global(reinterpret_cast<const std::uint32_t*>(from) + i)));
    }
  }
  __device__ void fetch_flat(const Stage& stage, Index base, Index last, bool whole) {
    const T* const from = stage.operand.data;
    if (whole && reinterpret_cast<std::uintptr_t>(from) % alignof(Words) == 0) return fetch(stage, base);
    Lanes<T, lanes> some;
#pragma unroll
    for (int i = 0; i < lanes; ++i) some.at[i] = from[base + i < last ? base + i : last];
    keep(*reinterpret_cast<const Words*>(&some));
  }
  __device__ void apply(const Stage&, float (&x)[lanes], Place, bool) const {
    float y[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) y[i] = load(reinterpret_cast<const T*>(found) + i);
    combine_lanes<operand_first, Function>(x, y);
  }
  __device__ void apply_flat(const Stage& stage, float (&x)[lanes], Index, Index, const Index (&)[lanes], bool) const {
    apply(stage, x, {}, false);
  }

 private:
  struct alignas(alignof(Lanes<T, lanes>)) Words {
    std::uint32_t at[words];
  };
  __device__ void keep(const Words& all) {
#pragma unroll
    for (int i = 0; i < words; ++i) found[i] = all.at[i];
  }
};
/// The same of all stages.
template <int lanes, typename Stages>
struct FetchedChain;
template <int lanes>
struct FetchedChain<lanes, Chain<>> {
  static constexpr bool any = false;
  __device__ void fetch(const Chain<>&, Index) {}
  __device__ void fetch_flat(const Chain<>&, Index, Index, bool) {}
  __device__ void apply(const Chain<>&, float (&)[lanes], Place, bool) const {}
  __device__ void apply_flat(const Chain<>&, float (&)[lanes], Index, Index, const Index (&)[lanes], bool) const {}
};
template <int lanes, typename First, typename... Rest>
struct FetchedChain<lanes, Chain<First, Rest...>> {
  Fetched<lanes, First> first;
  FetchedChain<lanes, Chain<Rest...>> rest;
  static constexpr bool any = Fetched<lanes, First>::any || FetchedChain<lanes, Chain<Rest...>>::any;

  __device__ void fetch(const Chain<First, Rest...>& chain, Index at) {
    first.fetch(chain.first, at);
    rest.fetch(chain.rest, at);
  }
  /// As stage_flat.
  __device__ void fetch_flat(const Chain<First, Rest...>& chain, Index base, Index last, bool whole) {
    first.fetch_flat(chain.first, base, last, whole);
    rest.fetch_flat(chain.rest, base, last, whole);
  }
  __device__ void apply(const Chain<First, Rest...>& chain, float (&x)[lanes], Place at, bool along) const {
    first.apply(chain.first, x, at, along);
    rest.apply(chain.rest, x, at, along);
  }
  __device__ void apply_flat(const Chain<First, Rest...>& chain, float (&x)[lanes], Index base, Index last,
                             const Index (&channel)[lanes], bool whole) const {
    first.apply_flat(chain.first, x, base, last, channel, whole);
    rest.apply_flat(chain.rest, x, base, last, channel, whole);
  }
};

/// Whether the operands of all stages begin where accesses of `lanes` neighbours may.
template <typename Stage>
bool stage_in_lanes(const Stage&, int) {
  return true;
}
template <typename Function, typename T, bool operand_first>
bool stage_in_lanes(const Combine<Function, Same<T>, operand_first>& stage, int lanes) {
  return in_lanes(stage.operand.data, lanes);
}
template <typename Function, typename T, bool operand_first>
bool stage_in_lanes(const Combine<Function, ApartOperand<T>, operand_first>& stage, int lanes) {
  const Spaced& place = stage.operand.place;
  return in_lanes(stage.operand.data, lanes) && place.row % lanes == 0 && place.pitch % lanes == 0;
}
template <typename Function, typename T, bool operand_first>
bool stage_in_lanes(const Combine<Function, Channel<T>, operand_first>& stage, int lanes) {
  return in_lanes(stage.operand.data, lanes);
}
inline bool epilogue_in_lanes(const Chain<>&, int) { return true; }
template <typename First, typename... Rest>
bool epilogue_in_lanes(const Chain<First, Rest...>& chain, int lanes) {
  return stage_in_lanes(chain.first, lanes) && epilogue_in_lanes(chain.rest, lanes);
}

}  // namespace bolt::portable
