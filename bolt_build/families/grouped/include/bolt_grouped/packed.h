// Sums in fp32 on their way through an epilogue to pairs of halves, in fewer instructions than one number at a time takes.
#pragma once

#include "bolt_grouped/halves.h"
#include "bolt_portable/cuda/halves.h"

namespace bolt::grouped {

#if __CUDA_ARCH__ >= 800
/// Of both halves the larger, NaN where either is.
template <typename Element>
__device__ inline std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  }
  return y;
}
template <typename Element>
__device__ inline std::uint32_t smaller_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  if constexpr (std::is_same_v<Element, portable::bf16>) {
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  } else {
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  }
  return y;
}
#endif

/// An epilogue whose stages read no place, applied to four sums at a time: two neighbouring channels of two positions.
template <typename Element, typename Epilogue>
struct Packed {
  const Epilogue& epilogue;
  std::uint32_t kept = ~0u;

  __device__ explicit Packed(const Epilogue& e) : epilogue(e) {}
  /// What leaves zeros where a position is not `there`.
  __device__ Packed where(bool there) const {
    Packed some = *this;
    some.kept = there ? ~0u : 0u;
    return some;
  }
  /// The positions of `x` are as `first` and `second` say.
  static __device__ void pack(const Packed& first, const Packed& second, const float (&x)[4], std::uint32_t (&to)[2]) {
    const Epilogue& of = first.epilogue;
    to[0] = portable::paired<Element>(of(x[0], Place{}), of(x[1], Place{})) & first.kept;
    to[1] = portable::paired<Element>(of(x[2], Place{}), of(x[3], Place{})) & second.kept;
  }
};

/// Rounding keeps order: what is bounded after it, two halves at once, is what is rounded after having been bounded.
template <typename Element>
struct PackedBounds {
  std::uint32_t low, high;

  __device__ PackedBounds(float least, float most)
      : low(portable::paired<Element>(least, least)), high(portable::paired<Element>(most, most)) {}
  __device__ std::uint32_t two(float a, float b) const {
#if __CUDA_ARCH__ >= 800
    return smaller_pair<Element>(high, larger_pair<Element>(low, portable::paired<Element>(a, b)));
#else
    const float2 least = portable::unpaired<Element>(low), most = portable::unpaired<Element>(high);
    return portable::paired<Element>(portable::smaller(most.x, portable::larger(least.x, a)),
                                     portable::smaller(most.y, portable::larger(least.y, b)));
#endif
  }
};

template <typename Element>
struct Packed<Element, portable::Chain<portable::Apply<portable::Clip>>> {
  using Epilogue = portable::Chain<portable::Apply<portable::Clip>>;
  PackedBounds<Element> bounds;

  __device__ explicit Packed(const Epilogue& e) : bounds(e.first.function.low, e.first.function.high) {}
  /// Between zero and zero everything is zero.
  __device__ Packed where(bool there) const {
    Packed some = *this;
    some.bounds.low = there ? bounds.low : 0u;
    some.bounds.high = there ? bounds.high : 0u;
    return some;
  }
  static __device__ void pack(const Packed& first, const Packed& second, const float (&x)[4], std::uint32_t (&to)[2]) {
    to[0] = first.bounds.two(x[0], x[1]);
    to[1] = second.bounds.two(x[2], x[3]);
  }
};

#if __CUDA_ARCH__ >= 800
template <typename Element>
struct Packed<Element, portable::Chain<portable::Apply<portable::Relu>>> {
  using Epilogue = portable::Chain<portable::Apply<portable::Relu>>;
  std::uint32_t kept = ~0u;

  __device__ explicit Packed(const Epilogue&) {}
  __device__ Packed where(bool there) const {
    Packed some = *this;
    some.kept = there ? ~0u : 0u;
    return some;
  }
  static __device__ void pack(const Packed& first, const Packed& second, const float (&x)[4], std::uint32_t (&to)[2]) {
    to[0] = larger_pair<Element>(portable::paired<Element>(x[0], x[1]), 0u) & first.kept;
    to[1] = larger_pair<Element>(portable::paired<Element>(x[2], x[3]), 0u) & second.kept;
  }
};
#endif

/// Special functions have 16 results a clock, and other instructions 128. From Hopper on x / (1 + e^-x) is h + h tanh(h) of
/// half of x: one special function and three instructions a number, within 1e-5 of the exact one on an H200. Before it four
/// numbers share one reciprocal.
template <typename Element>
struct Packed<Element, portable::Chain<portable::Apply<portable::Silu>>> {
  using Epilogue = portable::Chain<portable::Apply<portable::Silu>>;
  std::uint32_t kept = ~0u;

  __device__ explicit Packed(const Epilogue&) {}
  __device__ Packed where(bool there) const {
    Packed some = *this;
    some.kept = there ? ~0u : 0u;
    return some;
  }
  static __device__ void pack(const Packed& first, const Packed& second, const float (&x)[4], std::uint32_t (&to)[2]) {
    float y[4] = {x[0], x[1], x[2], x[3]};
#if __CUDA_ARCH__ >= 900
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float half = 0.5f * x[i];
      y[i] = std::fma(half, portable::SpecialFunctions::tanh(half), half);
    }
#else
    portable::Approximate<portable::SpecialFunctions>::silu_of_four(y);
#endif
    to[0] = portable::paired<Element>(y[0], y[1]) & first.kept;
    to[1] = portable::paired<Element>(y[2], y[3]) & second.kept;
  }
};

}  // namespace bolt::grouped
