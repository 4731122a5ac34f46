// What atomic instructions of a GPU join updates of one element in: the same bits whichever update comes first.
#pragma once

#include <cstring>
#include <limits>
#include <type_traits>

#include "bolt_portable/cuda/scatter/scatter.h"

namespace bolt::portable {

/// Half precision as a whole number of the least that it has, 2^-24, which is up to 2^40. Sums of those are exact, so their order
/// does not matter.
struct FixedHalf {
  __device__ static bool is_finite(f16 value) { return (value.bits & 0x7c00u) != 0x7c00u; }
  __device__ static std::uint64_t magnitude(f16 value) {
    const std::uint32_t exponent = value.bits >> 10 & 31, mantissa = value.bits & 0x3ffu;
    return exponent == 0 ? mantissa : static_cast<std::uint64_t>(mantissa | 0x400u) << (exponent - 1);
  }
  __device__ static std::int64_t number(f16 value) {
    const auto of = static_cast<std::int64_t>(magnitude(value));
    return value.bits & 0x8000u ? -of : of;
  }
  __device__ static f16 rounded(std::int64_t sum) { return f16(static_cast<float>(sum) * 0x1p-24f); }
};

/// Sums of half precision in shared memory: a whole number of 64 bits an element, whose halves lie `apart` words from each other.
/// An instruction that adds to the lower one says what was there, and so whether one is carried to the upper one: two numbers are
/// carried alike whichever comes first. Numbers below 128 are those of the lower half alone, so the upper one is mostly left as it
/// is. What is no number cannot be a sum of whole ones, so it is marked.
struct SharedSum {
  using Value = f16;
  static constexpr int words = 2;
  static constexpr bool last_counts = false;
  static constexpr std::uint32_t marked = 0x80000000u;  ///< of the upper half: no sum of numbers that are there

  __device__ static bool counts(f16 value) { return FixedHalf::is_finite(value); }
  __device__ static void begin(std::uint32_t* at, std::uint32_t apart, f16 value) {
    const Halves number(value);
    at[0] = number.low;
    at[apart] = number.high;
  }
  __device__ static void join(std::uint32_t* at, std::uint32_t apart, f16 value) {
    const Halves number(value);
    const std::uint32_t before = atomicAdd(at, number.low), more = number.high + (before + number.low < before ? 1 : 0);
    if (more != 0) atomicAdd(at + apart, more);
  }
  /// Joins what is none of the numbers that count; by one thread alone.
  __device__ static void mark(std::uint32_t* at, std::uint32_t apart, f16 value) {
    float sum = static_cast<float>(value);
    if (at[apart] == marked) sum += __uint_as_float(*at);
    at[apart] = marked;
    *at = __float_as_uint(sum);
  }
  __device__ static f16 result(const std::uint32_t* at, std::uint32_t apart) {
    const std::uint32_t low = *at, high = at[apart];
    if (high == static_cast<std::uint32_t>(static_cast<std::int32_t>(low) >> 31))
      return f16(static_cast<float>(static_cast<std::int32_t>(low)) * 0x1p-24f);
    if (high == marked) return f16(__uint_as_float(low));
    return FixedHalf::rounded(static_cast<std::int64_t>(static_cast<std::uint64_t>(high) << 32 | low));
  }

 private:
  /// A number of half precision, without instructions for 64 bits.
  struct Halves {
    std::uint32_t low, high;

    __device__ explicit Halves(f16 value) {
      const std::uint32_t exponent = value.bits >> 10 & 31, shift = exponent == 0 ? 0 : exponent - 1;
      std::uint32_t mantissa = (value.bits & 0x3ffu) | (exponent == 0 ? 0 : 0x400u);
      mantissa = exponent == 31 ? 0 : mantissa;
      low = mantissa << shift;
      high = __funnelshift_l(mantissa, 0, shift);
      if (value.bits & 0x8000u) {
        low = 0u - low;
        high = ~high + (low == 0 ? 1 : 0);
      }
    }
  };
};

/// Sums of integers, which wrap, as those of up to 32 bits do in a word.
template <typename T>
struct SharedInteger {
  using Value = T;
  static constexpr int words = 1;
  static constexpr bool last_counts = false;
  static_assert(sizeof(T) <= 4);

  __device__ static bool counts(T) { return true; }
  __device__ static void begin(std::uint32_t* at, std::uint32_t, T value) { *at = static_cast<std::uint32_t>(value); }
  __device__ static void join(std::uint32_t* at, std::uint32_t, T value) { atomicAdd(at, static_cast<std::uint32_t>(value)); }
  __device__ static void mark(std::uint32_t*, std::uint32_t, T) {}
  __device__ static T result(const std::uint32_t* at, std::uint32_t) { return static_cast<T>(*at); }
};

/// A number whose order among others is that of the values, of 32 bits, or 64 where integers have as many: with `greatest` NaN is
/// above all, else below.
template <typename T, bool greatest>
struct OrderedBits {
  static constexpr bool integer = std::is_integral_v<T>;
  static_assert(sizeof(T) <= 4 || integer);
  static constexpr std::uint32_t nan = greatest ? 0xffffffffu : 0u;
  using Bits = std::conditional_t<(sizeof(T) > 4), unsigned long long, std::uint32_t>;
  static constexpr Bits sign = std::is_signed_v<T> ? Bits{1} << (8 * sizeof(Bits) - 1) : 0;

  __device__ static Bits of(T value) {
    if constexpr (integer) {
      return static_cast<Bits>(value) ^ sign;  // what is signed is widened first
    } else {
      const float wide = static_cast<float>(value);
      const std::uint32_t bits = __float_as_uint(wide);
      return wide != wide ? nan : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    }
  }
  __device__ static T value(Bits key) {
    if constexpr (integer) {
      return static_cast<T>(key ^ sign);
    } else {
      const std::uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
      return static_cast<T>(__uint_as_float(key == nan ? 0x7fc00000u : bits));
    }
  }
  __device__ static void join(Bits* at, Bits key) {
    if constexpr (greatest)
      atomicMax(at, key);
    else
      atomicMin(at, key);
  }
};

/// The last update counts: shared memory has the number of that one, from 1 on, and values stay where they are until it is known.
template <typename T>
struct SharedLast {
  using Value = T;
  static constexpr int words = 1;
  static constexpr bool last_counts = true;

  __device__ static bool counts(T) { return true; }
  __device__ static void begin(std::uint32_t* at) { *at = 0; }
  __device__ static void join(std::uint32_t* at, std::uint32_t number) { atomicMax(at, number); }
  __device__ static void mark(std::uint32_t*, std::uint32_t, T) {}
};

/// The greatest, or the least, in shared memory.
template <typename T, bool greatest>
struct SharedExtreme {
  using Value = T;
  using Bits = OrderedBits<T, greatest>;
  static constexpr int words = 1;
  static constexpr bool last_counts = false;

  __device__ static bool counts(T) { return true; }
  __device__ static void begin(std::uint32_t* at, std::uint32_t, T value) { *at = Bits::of(value); }
  __device__ static void join(std::uint32_t* at, std::uint32_t, T value) { Bits::join(at, Bits::of(value)); }
  __device__ static void mark(std::uint32_t*, std::uint32_t, T) {}
  __device__ static T result(const std::uint32_t* at, std::uint32_t) { return Bits::value(*at); }
};

/// What is joined in memory of which every value is a number.
template <typename T>
struct WithoutFlags {
  static constexpr bool flags = false;
  __device__ static std::uint32_t flag(T) { return 0; }
  __device__ static T flagged(std::uint32_t) { return T{}; }
};

/// The same, and sums of half precision, in memory: of each element `Held`, and of four a byte for what is no number.
template <typename T, bool greatest>
struct MemoryExtreme : WithoutFlags<T> {
  using Value = T;
  using Bits = OrderedBits<T, greatest>;
  using Held = typename Bits::Bits;

  __device__ static Held begin(T value) { return Bits::of(value); }
  __device__ static void join(Held* at, T value) { Bits::join(at, Bits::of(value)); }
  __device__ static T result(Held held) { return Bits::value(held); }
};
template <typename T>
struct MemoryInteger : WithoutFlags<T> {
  using Value = T;
  using Held = std::conditional_t<(sizeof(T) > 4), unsigned long long, std::uint32_t>;

  __device__ static Held begin(T value) { return static_cast<Held>(value); }
  __device__ static void join(Held* at, T value) { atomicAdd(at, static_cast<Held>(value)); }
  __device__ static T result(Held held) { return static_cast<T>(held); }
};
struct MemorySum {
  using Value = f16;
  using Held = unsigned long long;
  static constexpr bool flags = true;

  __device__ static Held begin(f16 value) { return static_cast<Held>(FixedHalf::is_finite(value) ? FixedHalf::number(value) : 0); }
  __device__ static void join(Held* at, f16 value) { atomicAdd(at, static_cast<Held>(FixedHalf::number(value))); }
  __device__ static f16 result(Held held) { return FixedHalf::rounded(static_cast<std::int64_t>(held)); }
  /// Two bits of an element: it is infinity, and it is minus infinity. Both: it is no number.
  __device__ static std::uint32_t flag(f16 value) {
    if (FixedHalf::is_finite(value)) return 0;
    return value.bits & 0x3ffu ? 3 : value.bits & 0x8000u ? 2 : 1;
  }
  __device__ static f16 flagged(std::uint32_t flag) {
    f16 value;
    value.bits = flag == 3 ? 0x7e00u : flag == 2 ? 0xfc00u : 0x7c00u;
    return value;
  }
};

}  // namespace bolt::portable
