// Numbers as small integers and back. All of it is in fp32: a quotient is rounded to the nearest integer, halves to the even
// one, and ends at the limits of the integers' type.
#pragma once

#include "bolt_portable/pointwise.h"

namespace bolt::portable {

/// The integer of type Q next to `quotient`, moved by `zero`; of NaN the zero point.
template <typename Q>
BOLT_HD inline Q saturated(float quotient, float zero) {
  constexpr float low = static_cast<float>(std::numeric_limits<Q>::min());
  constexpr float high = static_cast<float>(std::numeric_limits<Q>::max());
  const float moved = (quotient == quotient ? std::rint(quotient) : 0.0f) + zero;
  const float above = moved < low ? low : moved;
  return static_cast<Q>(static_cast<std::int32_t>(above > high ? high : above));
}

/// Inputs x, scale, zero point.
template <typename Q>
struct Quantize {
  template <typename X>
  BOLT_HD Q operator()(X x, float scale, Q zero) const {
    return saturated<Q>(static_cast<float>(x) / scale, static_cast<float>(zero));
  }
};

/// Inputs q, scale, zero point.
struct Dequantize {
  template <typename Q>
  BOLT_HD float operator()(Q q, float scale, Q zero) const {
    using Wide = std::conditional_t<(sizeof(Q) < 4), std::int32_t, std::int64_t>;
    return static_cast<float>(static_cast<Wide>(q) - static_cast<Wide>(zero)) * scale;
  }
};

/// Both, one behind the other.
template <typename Q>
struct FakeQuantize {
  BOLT_HD float operator()(float x, float scale, Q zero) const {
    return Dequantize{}(Quantize<Q>{}(x, scale, zero), scale, zero);
  }
};

/// Inputs int32 sums, the scales of both factors and of the result, its zero point.
template <typename Q>
struct Requantize {
  BOLT_HD Q operator()(std::int32_t sum, float a, float b, float y, Q zero) const {
    return saturated<Q>(static_cast<float>(sum) * (a * b / y), static_cast<float>(zero));
  }
};

/// Inputs int32 sums, the scales of both factors, and a bias where there is one.
struct ScaleSums {
  BOLT_HD float operator()(std::int32_t sum, float a, float b) const { return static_cast<float>(sum) * (a * b); }
  BOLT_HD float operator()(std::int32_t sum, float a, float b, float bias) const {
    return (*this)(sum, a, b) + bias;
  }
};

#if !defined(__CUDACC__)
/// A part of what `by_table` looks up. Of bytes the compiler must be told that none is another's.
template <typename Out>
[[gnu::noinline]] void look_up(const Out* __restrict table, const std::uint8_t* __restrict in, Out* __restrict out,
                               Index count) {
  for (Index i = 0; i < count; ++i) out[i] = table[in[i]];
}

/// out = function(in), element by element, of a type that has 256 values: each is computed once.
template <typename Out, typename In, typename Function>
void by_table(const Run& r, Index count, const void* input, void* output, const Function& function) {
  static_assert(sizeof(In) == 1, "a table has 256 entries");
  Out table[256];
  for (int value = 0; value < 256; ++value) table[value] = function(static_cast<In>(value));
  const auto* const in = static_cast<const std::uint8_t*>(input);
  Out* const out = static_cast<Out*>(output);
  constexpr Index block = 4096;
  parallel(r, (count + block - 1) / block, block, [&](Index begin, Index end) {
    const Index first = begin * block, last = std::min(end * block, count);
    look_up(table, in + first, out + first, last - first);
  });
}
#endif

/// What lies between `least` and `most`, and zero, in the 255 steps of uint8.
struct ByteRange {
  float scale, zero;
  BOLT_HD ByteRange(float least, float most) {
    const float low = least < 0.0f ? least : 0.0f, high = most > 0.0f ? most : 0.0f;
    const float width = high - low;
    scale = width == 0.0f ? 1.0f : width / 255.0f;
    const float first = -low / scale;
    zero = std::rint(first > 255.0f ? 255.0f : first);
  }
};
struct RangeScale {
  BOLT_HD float operator()(float least, float most) const { return ByteRange(least, most).scale; }
};
struct RangeZero {
  BOLT_HD std::uint8_t operator()(float least, float most) const {
    return static_cast<std::uint8_t>(ByteRange(least, most).zero);
  }
};
struct RangeQuantize {
  BOLT_HD std::uint8_t operator()(float x, float least, float most) const {
    const ByteRange range(least, most);
    return saturated<std::uint8_t>(x / range.scale, range.zero);
  }
};

}  // namespace bolt::portable

#if defined(__CUDACC__)
#include "bolt_portable/cuda/quantised/quantize.h"
#endif
