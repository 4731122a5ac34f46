// Activations in few instructions and no branches, for GPUs: exact exponentials, divisions and error functions of every
// output take longer than storing it.
#pragma once

#include <limits>

#include "bolt_portable/element.h"

#if defined(__CUDACC__)
#define BOLT_DEVICE __device__
#else
#define BOLT_DEVICE
#endif

namespace bolt::portable {

/// The larger, NaN where either is.
BOLT_HD inline float larger(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return b > a || b != b ? b : a;
#endif
}

/// The smaller, NaN where either is.
BOLT_HD inline float smaller(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return b < a || b != b ? b : a;
#endif
}

#if defined(__CUDACC__)
/// What the multiprocessor's unit of special functions has: 16 results a clock, where other instructions have 128.
/// Numbers below the least normal one are zero here, before and after.
struct SpecialFunctions {
  /// 2^x to 2 units in the last place.
  static __device__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// The logarithm to base 2, to 2^-22 of the larger of itself and 1.
  static __device__ float log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// The same of numbers below the least normal one too.
  static __device__ float log2_of_any(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// What the compiler is to compute once for all elements, not anew where it is used.
  static __device__ std::uint32_t once(std::uint32_t value) {
    asm("" : "+r"(value));
    return value;
  }
  /// 1 / x to 1 unit in the last place.
  static __device__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// The square root to 2 units in the last place.
  static __device__ float sqrt(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// The hyperbolic tangent, from Turing on: to 2^-11 of itself by its text, and to 1e-5 on an H200.
  static __device__ float tanh(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// x between 0 and 1, 0 where it is NaN. Part of the instruction that makes x.
  static __device__ float saturate(float x) { return __saturatef(x); }
};
#endif

/// Each result y is within 1e-6 (1 + |y|) of the exact one, and within 2^-15 of itself down to half precision's least
/// normal number: what falls to zero on one side is never the difference of two large numbers. NaN gives NaN.
///
/// `Arithmetic` is SpecialFunctions, or a model of it that errs as much as it may. Constants are minimax fits, weighted
/// by what these limits allow. Products that are added to are written as fma, so that every compiler rounds alike.
template <typename Arithmetic>
struct Approximate {
  static constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f, infinity = std::numeric_limits<float>::infinity();

  static BOLT_DEVICE float sigmoid(float x) { return Arithmetic::reciprocal(1.0f + Arithmetic::exp2(-log2_e * x)); }

  /// NaN at minus infinity, as x / (1 + e^-x) is.
  static BOLT_DEVICE float silu(float x) { return x * sigmoid(x); }

  /// Near -3, where x / 6 + 1/2 cancels, as inexact as on hosts.
  static BOLT_DEVICE float hard_swish(float x) { return x * Arithmetic::saturate(std::fma(x, 1.0f / 6.0f, 0.5f)); }

  /// 1 - 2 / (1 + e^2x), and near 0, where that cancels, x - x^3/3.
  static BOLT_DEVICE float tanh(float x) {
    const float far = std::fma(-2.0f, Arithmetic::reciprocal(1.0f + Arithmetic::exp2(2.0f * log2_e * x)), 1.0f);
    const float near = x * std::fma(x * x, -0.332232833f, 1.0f);
    return std::fabs(x) < 0.1f ? near : far;
  }

  /// e^x - 1 for x of at most 0; near 0, where that cancels, x + x^2/2 + x^3/6.
  static BOLT_DEVICE float shrinkage(float x) {
    const float far = Arithmetic::exp2(log2_e * x) - 1.0f;
    const float near = x * std::fma(std::fma(x, 1.0f / 6.0f, 0.5f), x, 1.0f);
    return x > -0.05f ? near : far;
  }
  static BOLT_DEVICE float elu(float x) { return x > 0.0f ? x : shrinkage(x); }

  /// max(x, 0) + log(1 + e^-|x|): the logarithm is a polynomial of what is between 0 and 1.
  static BOLT_DEVICE float softplus(float x) {
    const float e = Arithmetic::exp2(-log2_e * std::fabs(x));
    float p = 0.0125476802f;
    p = std::fma(p, e, -0.0613930263f);
    p = std::fma(p, e, 0.14327158f);
    p = std::fma(p, e, -0.231756344f);
    p = std::fma(p, e, 0.330282748f);
    p = std::fma(p, e, -0.499805033f);
    p = std::fma(p, e, 1.0f);
    return std::fma(e, p, std::fmax(x, 0.0f));
  }

  /// max(x, 0) - |x| Q(|x|), Q the normal distribution's upper tail, 2^p: its logarithm p is smooth enough for a
  /// polynomial. At minus infinity less than 1e-30.
  static BOLT_DEVICE float gelu(float x) {
    const float a = std::fmin(std::fabs(x), 13.5f);  // p is least there, and infinity times 2^p would be none
    float p = 3.34904144e-5f;
    p = std::fma(p, a, -7.62584910e-4f);
    p = std::fma(p, a, 8.01380537e-3f);
    p = std::fma(p, a, -5.32158390e-2f);
    p = std::fma(p, a, -0.459007591f);
    p = std::fma(p, a, -1.15108633f);
    p = std::fma(p, a, -1.00001013f);
    return std::fma(-a, Arithmetic::exp2(p), larger(0.0f, x));
  }

  /// x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)). NaN at minus infinity, as the definition is.
  static BOLT_DEVICE float gelu_tanh(float x) {
    return x * Arithmetic::reciprocal(1.0f + Arithmetic::exp2(gelu_exponent(x)));
  }

  /// 1 - 2^p for positive x, p the logarithm of erfc; near 0, where that cancels, x times a polynomial of x^2.
  static BOLT_DEVICE float erf(float x) {
    const float a = std::fmin(std::fabs(x), 10.0f);
    float p = -2.58579385e-3f;
    p = std::fma(p, a, 2.77677104e-2f);
    p = std::fma(p, a, -0.145265371f);
    p = std::fma(p, a, -0.92139715f);
    p = std::fma(p, a, -1.62677908f);
    p = std::fma(p, a, -1.54451045e-4f);
    const float far = std::copysign(1.0f - Arithmetic::exp2(p), x);
    const float s = x * x;
    const float near = x * std::fma(std::fma(s, 0.108024426f, -0.375906438f), s, 1.12837768f);
    return std::fabs(x) >= 0.35f ? far : near;  // near where x is NaN
  }

  /// log(|x| + sqrt(x^2 + 1)), and near 0, where that is next to nothing, x times a polynomial of x^2. Of large numbers log(2 |x|).
  static BOLT_DEVICE float asinh(float x) {
    const float a = std::fabs(x), s = x * x;
    const bool large = a > 1e9f;
    const float far = ln_2 * Arithmetic::log2(large ? a : a + Arithmetic::sqrt(s + 1.0f)) + (large ? ln_2 : 0.0f);
    float p = 0.0198730845f;
    p = std::fma(p, s, -0.0425629728f);
    p = std::fma(p, s, 0.0748229772f);
    p = std::fma(p, s, -0.166661277f);
    p = std::fma(p, s, 1.0f);
    return a < 0.5f ? x * p : std::copysign(far, x);
  }

  /// log(x + sqrt(x^2 - 1)), and where x is t above 1 and t is small, the root of 2 t times a polynomial of t: one root for both.
  static BOLT_DEVICE float acosh(float x) {
    const float t = x - 1.0f;
    const bool near = t < 0.5f, large = x > 1e9f;
    const float root = Arithmetic::sqrt(near ? 2.0f * t : std::fma(x, x, -1.0f));
    const float far = ln_2 * Arithmetic::log2(large ? x : x + root) + (large ? ln_2 : 0.0f);
    float p = 0.00124206778f;
    p = std::fma(p, t, -0.00532037159f);
    p = std::fma(p, t, 0.0187057443f);
    p = std::fma(p, t, -0.0833306387f);
    p = std::fma(p, t, 1.0f);
    return near ? root * p : far;
  }

  /// Half of log((1 + x) / (1 - x)), and near 0 x times a polynomial of x^2.
  static BOLT_DEVICE float atanh(float x) {
    const float a = std::fabs(x), s = x * x;
    // The reciprocal of a large number is zero.
    const float ratio = a > 2.0f ? -1.0f : (1.0f + a) * Arithmetic::reciprocal(1.0f - a);
    const float far = 0.5f * ln_2 * Arithmetic::log2(ratio);
    float p = 0.183242425f;
    p = std::fma(p, s, 0.0813675597f);
    p = std::fma(p, s, 0.146969587f);
    p = std::fma(p, s, 0.199750364f);
    p = std::fma(p, s, 0.333338797f);
    p = std::fma(p, s, 1.0f);
    return a < 0.5f ? x * p : std::copysign(far, x);
  }

  /// x tanh(softplus(x)) = x n / (n + 2) with n = e^x (e^x + 2). NaN at minus infinity, as the definition is.
  static BOLT_DEVICE float mish(float x) {
    const float n = mish_growth(x);
    return x * (n * Arithmetic::reciprocal(n + 2.0f));
  }

  // Four neighbours with one reciprocal instead of four: special functions have 16 results a clock, and other
  // instructions 128. Results have the limits of the functions of one number, and at minus infinity that of the function.
  // NaN is bounded like a number where it would spoil its neighbours, and comes back with x.

  /// 1 / d of numbers between 1 and 2^31: 1 / a is b c d / (a b c d).
  static BOLT_DEVICE void inverses(const float (&d)[4], float (&r)[4]) {
    const float front = d[0] * d[1], back = d[2] * d[3], all = Arithmetic::reciprocal(front * back);
    const float of_front = all * back, of_back = all * front;
    r[0] = of_front * d[1];
    r[1] = of_front * d[0];
    r[2] = of_back * d[3];
    r[3] = of_back * d[2];
  }

  /// Below -22 it is less than halves tell from zero.
  static BOLT_DEVICE void silu_of_four(float (&x)[4]) {
    float d[4], r[4];
    for (int i = 0; i < 4; ++i) d[i] = 1.0f + Arithmetic::exp2(std::fmin(-log2_e * x[i], 31.0f));
    inverses(d, r);
    for (int i = 0; i < 4; ++i) x[i] = larger(x[i], -22.0f) * r[i];
  }

  /// Below -6 it is less than halves tell from zero.
  static BOLT_DEVICE void gelu_tanh_of_four(float (&x)[4]) {
    float d[4], r[4];
    for (int i = 0; i < 4; ++i) d[i] = 1.0f + Arithmetic::exp2(std::fmin(gelu_exponent(x[i]), 31.0f));
    inverses(d, r);
    for (int i = 0; i < 4; ++i) x[i] = larger(x[i], -6.0f) * r[i];
  }

  static BOLT_DEVICE void mish_of_four(float (&x)[4]) {
    float n[4], d[4], r[4];
    for (int i = 0; i < 4; ++i) {
      n[i] = mish_growth(x[i]);
      d[i] = n[i] + 2.0f;
    }
    inverses(d, r);
    for (int i = 0; i < 4; ++i) x[i] *= n[i] * r[i];
  }

  /// The logarithm to base 2 of a positive number, 0 or infinity, to 2^-20 of itself: near 1, where it is next to nothing,
  /// f times a polynomial of f, by which the number is above 1. `tiny`: it may be below the least normal one.
  template <bool tiny>
  static BOLT_DEVICE float log2(float x) {
    const float far = tiny ? Arithmetic::log2_of_any(x) : Arithmetic::log2(x), f = x - 1.0f;
    float p = 0.227331683f;
    p = std::fma(p, f, -0.261521041f);
    p = std::fma(p, f, 0.287707776f);
    p = std::fma(p, f, -0.360000819f);
    p = std::fma(p, f, 0.480908513f);
    p = std::fma(p, f, -0.721352816f);
    p = std::fma(p, f, 1.44269502f);
    return std::fabs(f) < 0.25f ? f * p : far;
  }

  /// x^y as 2^(y log2 |x|), with C's answers where either is zero, infinite or NaN: within 2^-16 of itself for results of
  /// half precision, and within 2^-13 as far as bf16 has normal numbers. What is less is zero.
  template <bool tiny>
  static BOLT_DEVICE float power(float x, float y) {
    const float size = std::fabs(x), half = 0.5f * y;
    const bool whole = std::trunc(y) == y, odd = whole & (std::trunc(half) != half);  // &: no branch
    // What y alone says: threads that have one y for all elements ask it once.
    const std::uint32_t sign = Arithmetic::once(odd ? 0x80000000u : 0u);
    const float least = float_of(Arithmetic::once(bits_of(whole ? -infinity : 0.0f)));
    const float positive = Arithmetic::exp2(y * log2<tiny>(size));
    if (y == 0.0f || !(std::fabs(y) < infinity))
      return y == 0.0f || x == 1.0f || (size == 1.0f && y == y) ? 1.0f : positive;
    const float r = float_of(bits_of(positive) | (bits_of(x) & sign));
    return x < least && x > -infinity ? float_of(0x7fc00000u) : r;
  }

 private:
  /// The power of two in gelu_tanh.
  static BOLT_DEVICE float gelu_exponent(float x) {
    constexpr float scale = -2.0f * 0.79788456f * log2_e;
    return x * std::fma(x * x, scale * 0.044715f, scale);
  }
  /// e^x (e^x + 2), bounded where it over two more is 1.
  static BOLT_DEVICE float mish_growth(float x) {
    const float e = Arithmetic::exp2(std::fmin(log2_e * x, 15.0f));
    return e * (e + 2.0f);
  }
};

}  // namespace bolt::portable
