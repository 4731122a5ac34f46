// What instructions do with the numbers of one lane.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace emulator {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

struct Move { template <typename T> T operator()(T a) const { return a; } };
struct Not { template <typename T> T operator()(T a) const { return static_cast<T>(~a); } };
struct Negate { template <typename T> T operator()(T a) const {
  if constexpr (std::is_floating_point_v<T>) return -a;
  else return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a)); } };
struct Absolute { template <typename T> T operator()(T a) const {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(a); else return a < 0 ? Negate()(a) : a; } };
// Whole numbers wrap around: signed ones are computed unsigned.
struct Add { template <typename T> T operator()(T a, T b) const {
  if constexpr (std::is_floating_point_v<T>) return a + b;
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b)); } };
struct Subtract { template <typename T> T operator()(T a, T b) const {
  if constexpr (std::is_floating_point_v<T>) return a - b;
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) - static_cast<std::make_unsigned_t<T>>(b)); } };
struct Multiply { template <typename T> T operator()(T a, T b) const {
  if constexpr (std::is_floating_point_v<T>) return a * b;
  else return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b)); } };
struct MultiplyHigh { template <typename T> T operator()(T a, T b) const {
  using Wide = std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                                  std::conditional_t<std::is_signed_v<T>, s64, u64>>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> 8 * sizeof(T)); } };
struct Divide { template <typename T> T operator()(T a, T b) const {
  if constexpr (std::is_floating_point_v<T>) return a / b;
  else { if (b == 0) return static_cast<T>(-1);
         if constexpr (std::is_signed_v<T>) if (b == -1) return Negate()(a);
         return a / b; } } };
struct Remainder { template <typename T> T operator()(T a, T b) const {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>) if (b == -1) return 0;
  return a % b; } };
struct And { template <typename T> T operator()(T a, T b) const { return static_cast<T>(a & b); } };
struct Or { template <typename T> T operator()(T a, T b) const { return static_cast<T>(a | b); } };
struct Xor { template <typename T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); } };
struct ShiftLeft { template <typename T> T operator()(T a, u32 b) const {
  return b >= 8 * sizeof(T) ? T(0) : static_cast<T>(a << b); } };
struct ShiftRight { template <typename T> T operator()(T a, u32 b) const {
  if (b < 8 * sizeof(T)) return static_cast<T>(a >> b);
  return a < 0 ? static_cast<T>(-1) : T(0); } };
struct Least { template <typename T> T operator()(T a, T b) const {
  if constexpr (std::is_floating_point_v<T>) return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
  else return std::min(a, b); } };
struct Most { template <typename T> T operator()(T a, T b) const {
  if constexpr (std::is_floating_point_v<T>) return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
  else return std::max(a, b); } };
/// NaN where either is, rather than the other.
template <typename F> struct OrNan { template <typename T> T operator()(T a, T b) const {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : F()(a, b); } };
/// Of the magnitudes, with the sign of the product.
template <typename F> struct XorSign { template <typename T> T operator()(T a, T b) const {
  return std::copysign(F()(std::fabs(a), std::fabs(b)), std::signbit(a) != std::signbit(b) ? T(-1) : T(1)); } };
struct Fused { template <typename T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); } };
struct MultiplyAdd { template <typename T> T operator()(T a, T b, T c) const { return Add()(Multiply()(a, b), c); } };
/// The sign of a, the rest of b.
struct CopySign { template <typename T> T operator()(T a, T b) const { return std::copysign(b, a); } };
struct Root { template <typename T> T operator()(T a) const { return std::sqrt(a); } };
struct Inverse { template <typename T> T operator()(T a) const { return T(1) / a; } };
struct InverseRoot { template <typename T> T operator()(T a) const {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(a))); } };
struct Exponential2 { template <typename T> T operator()(T a) const { return static_cast<T>(std::exp2(static_cast<double>(a))); } };
struct Logarithm2 { template <typename T> T operator()(T a) const { return static_cast<T>(std::log2(static_cast<double>(a))); } };
struct Sine { template <typename T> T operator()(T a) const { return static_cast<T>(std::sin(static_cast<double>(a))); } };
struct Cosine { template <typename T> T operator()(T a) const { return static_cast<T>(std::cos(static_cast<double>(a))); } };
struct HyperbolicTangent { template <typename T> T operator()(T a) const { return std::tanh(a); } };
/// Numbers below the least normal one are zero.
template <typename T> T flushed(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(a) < std::numeric_limits<T>::min() ? std::copysign(T(0), a) : a;
  else return a; }
/// They are zero of the operands and of the result.
template <typename F> struct Flushed {
  template <typename... T> auto operator()(T... a) const { return flushed(F()(flushed(a)...)); } };
/// Between zero and one, zero for NaN.
template <typename T> T saturated(T a) { return a > T(0) ? std::min(a, T(1)) : T(0); }
template <typename F> struct Saturated { template <typename... T> auto operator()(T... a) const { return saturated(F()(a...)); } };
/// Of fp64 as far as its upper word has it, operand and result.
template <typename F> struct UpperHalf { double operator()(double a) const {
  const auto upper = [](double x) { return std::bit_cast<double>(std::bit_cast<u64>(x) & 0xffffffff00000000ull); };
  return upper(flushed(F()(flushed(upper(a))))); } };

struct Equal { template <typename T> bool operator()(T a, T b) const { return a == b; } };
struct Unequal { template <typename T> bool operator()(T a, T b) const { return a < b || a > b; } };
struct Less { template <typename T> bool operator()(T a, T b) const { return a < b; } };
struct LessEqual { template <typename T> bool operator()(T a, T b) const { return a <= b; } };
struct Greater { template <typename T> bool operator()(T a, T b) const { return a > b; } };
struct GreaterEqual { template <typename T> bool operator()(T a, T b) const { return a >= b; } };
/// True of anything beside NaN too.
template <typename F> struct Unordered { template <typename T> bool operator()(T a, T b) const {
  return a != a || b != b || F()(a, b); } };
struct BothNumbers { template <typename T> bool operator()(T a, T b) const { return a == a && b == b; } };
struct SomeNan { template <typename T> bool operator()(T a, T b) const { return a != a || b != b; } };

}  // namespace emulator
