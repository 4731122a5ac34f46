// More functions of one and two operands, for chains of elementwise stages. Included by epilogue.h.
#pragma once

#include "bolt_portable/epilogue.h"

namespace bolt::portable {

struct Log {
  BOLT_HD float operator()(float x) const { return std::log(x); }
};
struct Sin {
  BOLT_HD float operator()(float x) const { return std::sin(x); }
};
struct Cos {
  BOLT_HD float operator()(float x) const { return std::cos(x); }
};
struct Tan {
  BOLT_HD float operator()(float x) const { return std::tan(x); }
};
struct Asin {
  BOLT_HD float operator()(float x) const { return std::asin(x); }
};
struct Acos {
  BOLT_HD float operator()(float x) const { return std::acos(x); }
};
struct Atan {
  BOLT_HD float operator()(float x) const { return std::atan(x); }
};
struct Sinh {
  BOLT_HD float operator()(float x) const { return std::sinh(x); }
};
struct Cosh {
  BOLT_HD float operator()(float x) const { return std::cosh(x); }
};
struct Asinh {
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return Forms::asinh(x);
#else
    return std::asinh(x);
#endif
  }
};
struct Acosh {
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return Forms::acosh(x);
#else
    return std::acosh(x);
#endif
  }
};
struct Atanh {
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return Forms::atanh(x);
#else
    return std::atanh(x);
#endif
  }
};
struct Floor {
  BOLT_HD float operator()(float x) const { return std::floor(x); }
};
struct Ceil {
  BOLT_HD float operator()(float x) const { return std::ceil(x); }
};
/// To the nearest integer, halves to the even one.
struct Round {
  BOLT_HD float operator()(float x) const { return std::rint(x); }
};
/// e^x - 1 for x of at most 0.
BOLT_HD inline float shrinkage(float x) {
#if defined(__CUDA_ARCH__)
  return Forms::shrinkage(x);
#else
  return Exact::shrinkage(x);
#endif
}
struct Elu {
  float alpha;
  BOLT_HD float operator()(float x) const { return x > 0 ? x : alpha * shrinkage(x); }
};
struct Selu {
  float alpha, gamma;
  BOLT_HD float operator()(float x) const { return gamma * Elu{alpha}(x); }
};
struct Celu {
  float alpha;
  BOLT_HD float operator()(float x) const { return x > 0 ? x : alpha * shrinkage(x / alpha); }
};
/// x tanh(softplus(x)) = x n / (n + 2) with n = e^x (e^x + 2), without cancellation; x itself where e^x is large.
struct Mish {
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return Forms::mish(x);
#else
    const float e = exponential(x < 20.0f || x != x ? x : 20.0f), n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
#endif
  }
};
struct ThresholdedRelu {
  float alpha;
  BOLT_HD float operator()(float x) const { return x > alpha || x != x ? x : 0.0f; }
};
struct Softsign {
  BOLT_HD float operator()(float x) const { return x / (1.0f + std::fabs(x)); }
};
struct Shrink {
  float threshold, bias;
  BOLT_HD float operator()(float x) const {
    return x < -threshold ? x + bias : x > threshold ? x - bias : 0.0f * x;
  }
};

/// x^y for results of half precision: GPUs call no function for it. `tiny`: x may be below the least normal number of fp32.
template <bool tiny>
struct HalfPow {
  BOLT_HD float operator()(float x, float y) const {
#if defined(__CUDA_ARCH__)
    return Forms::power<tiny>(x, y);
#else
    return std::pow(x, y);
#endif
  }
};
struct PRelu {
  BOLT_HD float operator()(float x, float slope) const { return x < 0 ? slope * x : x; }
};

}  // namespace bolt::portable
