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
  if constexpr (std::is_floating_point_v<T>) return -a; else return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a)); } };
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
struct LeastOrNan { float operator()(float a, float b) const {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<float>::quiet_NaN() : Least()(a, b); } };
struct MostOrNan { float operator()(float a, float b) const {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<float>::quiet_NaN() : Most()(a, b); } };
struct Fused { template <typename T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); } };
struct MultiplyAdd { template <typename T> T operator()(T a, T b, T c) const { return Add()(Multiply()(a, b), c); } };
/// Computed twice as precisely, then rounded down or towards zero.
inline float down(double exact) {
  const float near = static_cast<float>(exact);
  return static_cast<double>(near) > exact ? std::nextafterf(near, -std::numeric_limits<float>::infinity()) : near;
}
struct FusedDown { float operator()(float a, float b, float c) const { return down(static_cast<double>(a) * b + c); } };
struct AddTowardsZero { float operator()(float a, float b) const {
  const double exact = static_cast<double>(a) + b;
  return exact < 0 ? -down(-exact) : down(exact); } };
struct CopySign { float operator()(float a, float b) const { return std::copysign(b, a); } };
struct Root { template <typename T> T operator()(T a) const { return std::sqrt(a); } };
struct Inverse { template <typename T> T operator()(T a) const { return T(1) / a; } };
struct InverseRoot { float operator()(float a) const { return static_cast<float>(1 / std::sqrt(static_cast<double>(a))); } };
struct Exponential2 { float operator()(float a) const { return static_cast<float>(std::exp2(static_cast<double>(a))); } };
struct Logarithm2 { float operator()(float a) const { return static_cast<float>(std::log2(static_cast<double>(a))); } };
struct HyperbolicTangent { float operator()(float a) const { return std::tanh(a); } };
/// Numbers below the least normal one are zero, of the operand and of the result.
inline float flushed(float a) { return std::fabs(a) < std::numeric_limits<float>::min() ? std::copysign(0.0f, a) : a; }
struct FlushedQuotient { float operator()(float a, float b) const { return flushed(flushed(a) / flushed(b)); } };
template <typename F> struct Flushed { float operator()(float a) const { return flushed(F()(flushed(a))); } };
struct Ones { u32 operator()(u32 a) const { return static_cast<u32>(std::popcount(a)); } };
struct LeadingZeros { u32 operator()(u32 a) const { return static_cast<u32>(std::countl_zero(a)); } };

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
