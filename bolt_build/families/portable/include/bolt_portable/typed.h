// Elements of every type as what they are computed in, conversions between them, and functions of one to three elements.
// Integers wrap around, and nothing traps: a quotient and a remainder by zero are zero.
#pragma once

#include <limits>
#include <type_traits>

#include "bolt_portable/element.h"

namespace bolt::portable {

/// A boolean as it is stored: any byte but zero is true.
struct boolean {
  std::uint8_t byte;
  boolean() = default;
  BOLT_HD explicit boolean(bool value) : byte(value ? 1 : 0) {}
  BOLT_HD explicit operator bool() const { return byte != 0; }
};

/// What an element is computed in: half precision in float, everything else in itself.
template <typename T>
struct Computed {
  using type = T;
};
template <>
struct Computed<f16> {
  using type = float;
};
template <>
struct Computed<bf16> {
  using type = float;
};
template <>
struct Computed<boolean> {
  using type = bool;
};

template <typename T>
BOLT_HD inline typename Computed<T>::type read(const T* at) {
  return static_cast<typename Computed<T>::type>(*at);
}

/// A value as another type holds it. Of integers the low bits are kept; a floating-point number is cut off towards zero,
/// and one beyond an integer's range becomes the nearest that it has, NaN zero; a boolean is what is not zero.
template <typename To, typename From>
BOLT_HD inline To cast(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    // 2^digits is the least number above all that To holds, and exact in any floating-point type.
    constexpr From above = static_cast<From>(Limits::max() / 2 + 1) * From{2};
    if (value != value) return To{0};
    if (value >= above) return Limits::max();
    if (value <= static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// The element of type T that holds a value of another, or an element itself.
template <typename T, typename Value>
BOLT_HD inline T element(Value value) {
  if constexpr (std::is_same_v<T, Value>)
    return value;
  else
    return static_cast<T>(cast<typename Computed<T>::type>(value));
}

namespace typed {

/// The unsigned type in which arithmetic of integers wraps; itself for all others. At least as wide as int, so that
/// nothing is promoted to a signed one.
template <typename T, bool = std::is_integral_v<T>>
struct Wrapping {
  using type = T;
};
template <typename T>
struct Wrapping<T, true> {
  using type = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;
};

template <typename T, typename Step>
BOLT_HD inline T wrapped(T a, T b, Step step) {
  using W = typename Wrapping<T>::type;
  return static_cast<T>(step(static_cast<W>(a), static_cast<W>(b)));
}

struct Convert {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return x;
  }
};

// Functions of two elements of one type.
struct Add {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x * y; });
  }
};
/// Of integers towards zero.
struct Div {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == T{0}) return T{0};
      if constexpr (std::is_signed_v<T>) {
        if (b == T{-1}) return wrapped(T{0}, a, [](auto x, auto y) { return x - y; });
      }
    }
    return static_cast<T>(a / b);
  }
};
/// The remainder with the dividend's sign.
struct Fmod {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == T{0}) return T{0};
      if constexpr (std::is_signed_v<T>) {
        if (b == T{-1}) return T{0};
      }
      return static_cast<T>(a % b);
    } else {
      return std::fmod(a, b);
    }
  }
};
/// The remainder with the divisor's sign.
struct Mod {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    const T rest = Fmod{}(a, b);
    return rest != T{0} && (rest < T{0}) != (b < T{0}) ? static_cast<T>(rest + b) : rest;
  }
};
/// Of integers by squaring; a negative exponent gives 1 of 1, 1 or -1 of -1, and 0 of all others.
struct Pow {
  template <typename T>
  BOLT_HD T operator()(T base, T exponent) const {
    if constexpr (std::is_integral_v<T>) {
      if (exponent < T{0}) {
        if (base == T{1}) return T{1};
        if constexpr (std::is_signed_v<T>) {
          if (base == T{-1}) return static_cast<T>(exponent % 2 == 0 ? 1 : -1);
        }
        return T{0};
      }
      T result = 1;
      while (exponent != T{0}) {
        if (exponent % 2 != 0) result = Mul{}(result, base);
        exponent = static_cast<T>(exponent / 2);
        base = Mul{}(base, base);
      }
      return result;
    } else {
      return std::pow(base, exponent);
    }
  }
};
struct Max {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct Min {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

// Functions of one element.
struct Neg {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) return Sub{}(T{0}, x);
    return -x;
  }
};
struct Abs {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) return std::fabs(x);
    return x < T{0} ? Neg{}(x) : x;
  }
};
struct Sign {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    if (x != x) return x;
    return static_cast<T>(static_cast<int>(x > T{0}) - static_cast<int>(x < T{0}));
  }
};
struct Relu {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return x < T{0} ? T{0} : x;
  }
};
/// Between bounds of the elements' own type.
template <typename Bound>
struct Clip {
  Bound low, high;
  template <typename T>
  BOLT_HD T operator()(T x) const {
    const T above = x < cast<T>(low) ? cast<T>(low) : x;
    return above > cast<T>(high) ? cast<T>(high) : above;
  }
};
struct Sqrt {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct Exp {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return std::exp(x);
  }
};
struct Erf {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return std::erf(x);
  }
};
struct Tanh {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return std::tanh(x);
  }
};
struct Sigmoid {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return T{1} / (T{1} + std::exp(-x));
  }
};
struct Reciprocal {
  template <typename T>
  BOLT_HD T operator()(T x) const {
    return T{1} / x;
  }
};

// Questions, and functions of booleans.
struct Equal {
  template <typename T>
  BOLT_HD bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Less {
  template <typename T>
  BOLT_HD bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <typename T>
  BOLT_HD bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <typename T>
  BOLT_HD bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <typename T>
  BOLT_HD bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct And {
  BOLT_HD bool operator()(bool a, bool b) const { return a && b; }
};
struct Or {
  BOLT_HD bool operator()(bool a, bool b) const { return a || b; }
};
struct Xor {
  BOLT_HD bool operator()(bool a, bool b) const { return a != b; }
};
struct Not {
  BOLT_HD bool operator()(bool x) const { return !x; }
};
struct IsNan {
  template <typename T>
  BOLT_HD bool operator()(T x) const {
    return x != x;
  }
};
/// Of the signs asked for.
template <bool positive, bool negative>
struct IsInf {
  template <typename T>
  BOLT_HD bool operator()(T x) const {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    return (positive && x == infinity) || (negative && x == -infinity);
  }
};
/// One of two elements that may be stored in different types.
struct Where {
  template <typename A, typename B>
  BOLT_HD auto operator()(bool condition, A a, B b) const {
    using Both = std::common_type_t<A, B>;
    return condition ? static_cast<Both>(a) : static_cast<Both>(b);
  }
};

// Bits of integers of one type.
struct BitAnd {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
/// By b bits, which C++ leaves open for a negative b and for all bits and more: no bit is left then.
struct BitShiftLeft {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    using Bits = std::make_unsigned_t<T>;
    if (static_cast<Bits>(b) >= 8 * sizeof(T)) return T{0};
    return static_cast<T>(static_cast<std::uint64_t>(static_cast<Bits>(a)) << b);
  }
};
/// Signed numbers are filled up with copies of their sign, and are nothing else where no bit is left.
struct BitShiftRight {
  template <typename T>
  BOLT_HD T operator()(T a, T b) const {
    if (static_cast<std::make_unsigned_t<T>>(b) < 8 * sizeof(T)) return static_cast<T>(a >> b);
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(a >> (8 * sizeof(T) - 1));
    } else {
      return T{0};
    }
  }
};

}  // namespace typed
}  // namespace bolt::portable
