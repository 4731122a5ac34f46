// Elementwise stages: the functions of one and two operands, and chains of them applied to a result.
#pragma once

#include "bolt/exact_math.h"
#include "bolt_portable/fast_math.h"

namespace bolt::portable {

/// Where a result stands: index in the output's memory, and along the axis that per-channel operands follow.
struct Place {
  Index element;
  Index channel;
};

/// e^x to about one unit in the last place, in operations that vectorise: x = n ln 2 + r with a polynomial in r.
BOLT_HD inline float exponential(float x) {
#if defined(__CUDA_ARCH__)
  return expf(x);
#else
  const float bounded = x > 89.0f ? 89.0f : (x > -104.0f ? x : -104.0f);
  const float shifted = bounded * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to the nearest integer
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693145751953125f) - n * 1.42860677e-6f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // Two steps of scaling, because 2^n alone may be too large or too small for a float.
  const std::int32_t whole = static_cast<std::int32_t>(n), half = whole >> 1;
  const float low = float_of(static_cast<std::uint32_t>(half + 127) << 23);
  const float high = float_of(static_cast<std::uint32_t>(whole - half + 127) << 23);
  return x != x ? x : p * low * high;
#endif
}

/// Functions that GPUs have forms of their own for: within 1e-6 or so of the host's, which are as exact as fp32 is.
#if defined(__CUDA_ARCH__)
using Forms = Approximate<SpecialFunctions>;
#else
using Forms = Exact;
#endif

// Functions of one operand.
struct Relu {
  BOLT_HD float operator()(float x) const { return larger(0.0f, x); }
};
struct LeakyRelu {
  float slope;
  BOLT_HD float operator()(float x) const { return x >= 0 ? x : slope * x; }
};
struct Clip {
  float low, high;
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return smaller(high, larger(low, x));
#else
    const float above = x < low ? low : x;
    return above > high ? high : above;
#endif
  }
};
struct Sigmoid {
  BOLT_HD float operator()(float x) const { return Forms::sigmoid(x); }
};
struct HardSigmoid {
  float alpha, beta;
  BOLT_HD float operator()(float x) const { return Clip{0.0f, 1.0f}(alpha * x + beta); }
};
struct HardSwish {
  BOLT_HD float operator()(float x) const {
#if defined(__CUDA_ARCH__)
    return Forms::hard_swish(x);
#else
    return x * HardSigmoid{1.0f / 6.0f, 0.5f}(x);
#endif
  }
};
struct Tanh {
  BOLT_HD float operator()(float x) const { return Forms::tanh(x); }
};
struct Softplus {
  BOLT_HD float operator()(float x) const { return Forms::softplus(x); }
};
struct Gelu {
  BOLT_HD float operator()(float x) const { return Forms::gelu(x); }
};
struct GeluTanh {
  BOLT_HD float operator()(float x) const { return Forms::gelu_tanh(x); }
};
struct Erf {
  BOLT_HD float operator()(float x) const { return Forms::erf(x); }
};
struct Silu {
  BOLT_HD float operator()(float x) const { return Forms::silu(x); }
};
struct Swish {
  float alpha;
  BOLT_HD float operator()(float x) const { return x * Forms::sigmoid(alpha * x); }
};
struct Exp {
  BOLT_HD float operator()(float x) const { return exponential(x); }
};
struct Sqrt {
  BOLT_HD float operator()(float x) const { return std::sqrt(x); }
};
struct Square {
  BOLT_HD float operator()(float x) const { return x * x; }
};
struct Neg {
  BOLT_HD float operator()(float x) const { return -x; }
};
struct Abs {
  BOLT_HD float operator()(float x) const { return std::fabs(x); }
};
struct Reciprocal {
  BOLT_HD float operator()(float x) const { return 1.0f / x; }
};
struct Sign {
  BOLT_HD float operator()(float x) const { return x != x ? x : static_cast<float>((x > 0) - (x < 0)); }
};

// Functions of two operands. max and min give NaN where either side is NaN, as NumPy and ONNX do.
struct Add {
  BOLT_HD float operator()(float a, float b) const { return a + b; }
};
struct Sub {
  BOLT_HD float operator()(float a, float b) const { return a - b; }
};
struct Mul {
  BOLT_HD float operator()(float a, float b) const { return a * b; }
};
struct Div {
  BOLT_HD float operator()(float a, float b) const { return a / b; }
};
struct Pow {
  BOLT_HD float operator()(float a, float b) const { return std::pow(a, b); }
};
/// The remainder with the dividend's sign, and with the divisor's.
struct Fmod {
  BOLT_HD float operator()(float a, float b) const { return std::fmod(a, b); }
};
struct Mod {
  BOLT_HD float operator()(float a, float b) const {
    const float rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
struct Max {
  BOLT_HD float operator()(float a, float b) const { return a != a || a > b ? a : b; }
};
struct Min {
  BOLT_HD float operator()(float a, float b) const { return a != a || a < b ? a : b; }
};

/// function(first(x), y), or function(y, first(x)).
template <typename First, typename Function, bool swapped>
struct Behind {
  BOLT_HD float operator()(float x, float y) const {
    return swapped ? Function{}(y, First{}(x)) : Function{}(First{}(x), y);
  }
};

// Operands of a stage.
template <typename T>
struct Same {
  const T* data;
  BOLT_HD float operator()(Place at) const { return load(data + at.element); }
};
/// Elements of a tensor whose rows of `row` elements begin `pitch` apart: where that stands which is `element` in dense memory.
struct Spaced {
  Index row, pitch;
  BOLT_HD Index operator()(Index element) const {
    // GPUs divide 32 bits in a fraction of the time of 64.
    const Index above = element >> 32 ? element / row
                                      : static_cast<std::uint32_t>(element) / static_cast<std::uint32_t>(row);
    return element + above * (pitch - row);
  }
};
/// Same, of such a tensor.
template <typename T>
struct ApartOperand {
  const T* data;
  Spaced place;
  BOLT_HD float operator()(Place at) const { return load(data + place(at.element)); }
};
template <typename T>
struct Channel {
  const T* data;
  BOLT_HD float operator()(Place at) const { return load(data + at.channel); }
};
template <typename T>
struct Scalar {
  const T* data;
  BOLT_HD float operator()(Place) const { return load(data); }
};

template <typename Function>
struct Apply {
  Function function;
  BOLT_HD float operator()(float x, Place) const { return function(x); }
};
template <typename Function, typename Operand, bool operand_first>
struct Combine {
  Operand operand;
  BOLT_HD float operator()(float x, Place at) const {
    return operand_first ? Function{}(operand(at), x) : Function{}(x, operand(at));
  }
};
/// BatchNormalization with constants of one value a channel.
template <typename S, typename B, typename M, typename V>
struct Normalize {
  const S* scale;
  const B* bias;
  const M* mean;
  const V* variance;
  float epsilon;
  BOLT_HD float operator()(float x, Place at) const {
    const Index c = at.channel;
    return (x - load(mean + c)) * (load(scale + c) / std::sqrt(load(variance + c) + epsilon)) + load(bias + c);
  }
};

/// Stages in the order of application.
template <typename... Stages>
struct Chain;
template <>
struct Chain<> {
  BOLT_HD float operator()(float x, Place) const { return x; }
};
template <typename First, typename... Rest>
struct Chain<First, Rest...> {
  First first;
  Chain<Rest...> rest;
  BOLT_HD float operator()(float x, Place at) const { return rest(first(x, at), at); }
};

inline Chain<> chain() { return {}; }
template <typename First, typename... Rest>
Chain<First, Rest...> chain(First first, Rest... rest) {
  return {first, chain(rest...)};
}

template <typename Function>
Apply<Function> apply(Function function) {
  return {function};
}
/// function(x, operand)
template <typename Function, typename Operand>
Combine<Function, Operand, false> combine(Operand operand) {
  return {operand};
}
/// function(operand, x)
template <typename Function, typename Operand>
Combine<Function, Operand, true> combine_swapped(Operand operand) {
  return {operand};
}

template <typename T>
Same<T> same(const void* data) {
  return {static_cast<const T*>(data)};
}
template <typename T>
ApartOperand<T> apart(const void* data, Index row, Index pitch) {
  return {static_cast<const T*>(data), {row, pitch}};
}
template <typename T>
Channel<T> channel(const void* data) {
  return {static_cast<const T*>(data)};
}
template <typename T>
Scalar<T> scalar(const void* data) {
  return {static_cast<const T*>(data)};
}
template <typename S, typename B, typename M, typename V>
Normalize<S, B, M, V> normalize(const void* scale, const void* bias, const void* mean, const void* variance,
                                float epsilon) {
  return {static_cast<const S*>(scale), static_cast<const B*>(bias), static_cast<const M*>(mean),
          static_cast<const V*>(variance), epsilon};
}

}  // namespace bolt::portable

#include "bolt_portable/functions.h"
