// Exponentials and what is made of them as exact as fp32 is, in operations that vectorise and without branches: for
// hosts, where a call of the C library for every element takes longer than a convolution that the element came from.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define BOLT_ANYWHERE __host__ __device__
#else
#define BOLT_ANYWHERE
#endif

namespace bolt {

/// e^x is `power` (`rest` + 1): with the integer n nearest to x / ln 2 and what is left r, they are 2^n, infinity for an n
/// of 128, and e^r - 1. Only for x between -87.3 and 88.8; NaN gives NaN.
struct Exponent {
  float power, rest;
};

BOLT_ANYWHERE inline Exponent exponent(float x) {
  const float shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to the nearest integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693145751953125f) - n * 1.42860677e-6f;
  float p = 1.39447593e-3f;
  p = p * r + 8.33349768e-3f;
  p = p * r + 4.16662954e-2f;
  p = p * r + 1.66666657e-1f;
  p = p * r + 0.5f;
  // The lowest bits of `shifted` are n: those above leave on the left.
  std::uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000u;
  float power;
  memcpy(&power, &bits, sizeof power);
  return {power, p * r * r + r};
}

/// Each result y is within 1e-7 (1 + |y|) of the exact one, and but for GELU's tail and softplus within a few units in
/// the last place. NaN gives NaN.
struct Exact {
  static BOLT_ANYWHERE float bounded(float x, float low, float high) {
    const float above = low > x ? low : x;
    return high < above ? high : above;
  }

  /// e^x, and infinity from 88.4 on, for what is divided by or added to one.
  static BOLT_ANYWHERE float growth(float x) {
    const Exponent e = exponent(bounded(x, -87.3f, 88.8f));
    return (e.rest + 1.0f) * e.power;  // no sum of products: infinity less infinity is none
  }

  /// e^x - 1 for x of at most 0.
  static BOLT_ANYWHERE float shrinkage(float x) {
    const Exponent e = exponent(bounded(x, -87.3f, 0.0f));
    return e.power * e.rest + (e.power - 1.0f);
  }

  static BOLT_ANYWHERE float sigmoid(float x) { return 1.0f / (1.0f + growth(-x)); }

  static BOLT_ANYWHERE float silu(float x) { return x / (1.0f + growth(-x)); }

  /// 1 - 2 / (1 + e^2|x|), and near 0, where that cancels, x + x^3 times a polynomial of x^2.
  static BOLT_ANYWHERE float tanh(float x) {
    const float far = std::copysign(1.0f - 2.0f / (1.0f + growth(2.0f * std::fabs(x))), x);
    const float s = x * x;
    float p = -5.89516200e-3f;
    p = p * s + 2.07959749e-2f;
    p = p * s - 5.37838303e-2f;
    p = p * s + 1.33319244e-1f;
    p = p * s - 3.33332986e-1f;
    const float near = p * s * x + x;
    return std::fabs(x) > 0.6f ? far : near;
  }

  /// max(x, 0) + log(1 + e^-|x|): the logarithm is a polynomial of what is between 0 and 1.
  static BOLT_ANYWHERE float softplus(float x) {
    const float e = growth(-std::fabs(x));
    float p = -3.24398093e-3f;
    p = p * e + 1.98512636e-2f;
    p = p * e - 5.69591597e-2f;
    p = p * e + 1.06036171e-1f;
    p = p * e - 1.53055698e-1f;
    p = p * e + 1.96759313e-1f;
    p = p * e - 2.49541327e-1f;
    p = p * e + 3.33299637e-1f;
    p = p * e - 4.99999017e-1f;
    p = p * e + 1.0f;
    return p * e + (0.0f > x ? 0.0f : x);
  }

  /// max(x, 0) - |x| Q(|x|), Q the normal distribution's upper tail: its logarithm is smooth enough for a polynomial.
  /// Below -6, where the exact one is less than 6e-9, it stays what it is there.
  static BOLT_ANYWHERE float gelu(float x) {
    const float size = std::fabs(x), a = 6.0f < size ? 6.0f : size;
    float p = 1.18004607e-7f;
    p = p * a - 2.83340637e-6f;
    p = p * a + 2.69964094e-5f;
    p = p * a - 1.09293404e-4f;
    p = p * a - 1.68039041e-4f;
    p = p * a + 5.01577370e-3f;
    p = p * a - 3.64849679e-2f;
    p = p * a - 3.18261892e-1f;
    p = p * a - 7.97890544e-1f;
    p = p * a - 6.93147063e-1f;
    const Exponent e = exponent(p);
    return (0.0f > x ? 0.0f : x) - a * (e.rest * e.power + e.power);
  }

  /// x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
  static BOLT_ANYWHERE float gelu_tanh(float x) {
    constexpr float scale = -2.0f * 0.79788456080286536f;
    return x / (1.0f + growth(x * (x * x * (scale * 0.044715f) + scale)));
  }

  /// 1 - e^p for positive x, p the logarithm of erfc; near 0, where that cancels, x times a polynomial of x^2.
  static BOLT_ANYWHERE float erf(float x) {
    const float size = std::fabs(x), a = 4.0f < size ? 4.0f : size;
    float p = 2.15657768e-4f;
    p = p * a - 3.22835892e-3f;
    p = p * a + 2.29311008e-2f;
    p = p * a - 1.05321266e-1f;
    p = p * a - 6.35680258e-1f;
    p = p * a - 1.12851942f;
    p = p * a - 2.91017682e-6f;
    const Exponent e = exponent(p);
    const float far = std::copysign((1.0f - e.power) - e.rest * e.power, x);
    const float s = x * x;
    float q = -6.96602161e-4f;
    q = q * s + 5.14019420e-3f;
    q = q * s - 2.68453360e-2f;
    q = q * s + 1.12835556e-1f;
    q = q * s - 3.76126289e-1f;
    q = q * s + 1.12837923f;
    return size > 0.7f ? far : q * x;
  }
};

}  // namespace bolt
