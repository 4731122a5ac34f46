// Instructions by name, and what the host says that they compute.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cfenv>
#include <limits>

#include "comparison_probe.h"

/// What the host computes while it rounds as an instruction's words say. The numbers pass through memory that the
/// compiler may not foresee.
template <typename T, typename F>
static T rounded_by(int mode, T a, T b, T c, F f) {
  volatile T x = a, y = b, z = c;
  std::fesetround(mode);
  volatile T found = f(x, y, z);
  std::fesetround(FE_TONEAREST);
  return found;
}

// of(a, b, c) of a type: one instruction on the device, an expression on the host.
#if defined(__CUDA_ARCH__)
#define BODY(T, R, letter, result, words, host) \
  R found; \
  asm("{" words ";}" : "=" result(found) : letter(a), letter(b), letter(c)); \
  return found;
#else
#define BODY(T, R, letter, result, words, host) return host;
#endif
#define CASE(name, T, R, letter, result, words, host) \
  struct name { __host__ __device__ static R of(T a, T b, T c) { (void)a, (void)b, (void)c; BODY(T, R, letter, result, words, host) } };
// In fp32 and fp64: two cases, name<float> and name<double>.
#define REAL(name, words, rest, host) \
  template <typename T> struct name; \
  template <> CASE(name<float>, float, float, "f", "f", words ".f32 " rest, host) \
  template <> CASE(name<double>, double, double, "d", "d", words ".f64 " rest, host)
#define DIRECTED(name, word, mode) \
  REAL(Add##name, "add." word, "%0, %1, %2", rounded_by(mode, a, b, c, [](auto x, auto y, auto) { return x + y; })) \
  REAL(Subtract##name, "sub." word, "%0, %1, %2", rounded_by(mode, a, b, c, [](auto x, auto y, auto) { return x - y; })) \
  REAL(Multiply##name, "mul." word, "%0, %1, %2", rounded_by(mode, a, b, c, [](auto x, auto y, auto) { return x * y; })) \
  REAL(Divide##name, "div." word, "%0, %1, %2", rounded_by(mode, a, b, c, [](auto x, auto y, auto) { return x / y; })) \
  REAL(Fused##name, "fma." word, "%0, %1, %2, %3", rounded_by(mode, a, b, c, [](auto x, auto y, auto z) { return std::fma(x, y, z); })) \
  REAL(Root##name, "sqrt." word, "%0, %1", rounded_by(mode, a, b, c, [](auto x, auto, auto) { return std::sqrt(x); })) \
  REAL(Inverse##name, "rcp." word, "%0, %1", rounded_by(mode, a, b, c, [](auto x, auto, auto) { return decltype(x + 0)(1) / x; }))

DIRECTED(ToNearest, "rn", FE_TONEAREST)
DIRECTED(ToZero, "rz", FE_TOWARDZERO)
DIRECTED(Down, "rm", FE_DOWNWARD)
DIRECTED(Up, "rp", FE_UPWARD)
REAL(Sign, "copysign", "%0, %1, %2", std::copysign(b, a))
REAL(Opposite, "neg", "%0, %1", -a)
REAL(Magnitude, "abs", "%0, %1", std::fabs(a))
REAL(Smaller, "min", "%0, %1, %2", a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b))
REAL(Larger, "max", "%0, %1, %2", a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b))

CASE(LargerOrNan, float, float, "f", "f", "max.NaN.f32 %0, %1, %2", a != a || b != b ? NAN : Larger<float>::of(a, b, c))
CASE(SmallerOfMagnitudes, float, float, "f", "f", "min.xorsign.abs.f32 %0, %1, %2",
     std::copysign(Smaller<float>::of(std::fabs(a), std::fabs(b), c), std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f))
CASE(Within, float, float, "f", "f", "fma.rn.sat.f32 %0, %1, %2, %3", std::fma(a, b, c) > 0 ? std::fmin(std::fma(a, b, c), 1.0f) : 0.0f)
CASE(WithoutSubnormals, float, float, "f", "f", "mul.rz.ftz.f32 %0, %1, %2",
     rounded_by(FE_TOWARDZERO, a, b, c, [](float x, float y, float) {
       const auto plain = [](float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; };
       return plain(plain(x) * plain(y)); }))

// What is asked of one number, and of two: all answers side by side.
#define ASKED(name, what) "testp." name ".f" what " p, %1; selp.b32 one, 1, 0, p; shl.b32 %0, %0, 1; or.b32 %0, %0, one;\n"
#define QUESTIONS(what) \
  ".reg .pred p; .reg .b32 one; mov.u32 %0, 0;\n" ASKED("finite", what) ASKED("infinite", what) ASKED("number", what) \
  ASKED("notanumber", what) ASKED("normal", what) ASKED("subnormal", what) "mov.b32 %0, %0"
template <typename T>
static unsigned answers(T a) {
  const int kind = std::fpclassify(a);
  const bool all[] = {kind != FP_NAN && kind != FP_INFINITE, kind == FP_INFINITE, kind != FP_NAN, kind == FP_NAN,
                      kind == FP_NORMAL, kind == FP_SUBNORMAL};
  unsigned found = 0;
  for (const bool one : all) found = found << 1 | (one ? 1 : 0);
  return found;
}
template <typename T> struct Kind;
template <> CASE(Kind<float>, float, unsigned, "f", "=r", QUESTIONS("32"), answers(a))
template <> CASE(Kind<double>, double, unsigned, "d", "=r", QUESTIONS("64"), answers(a))

#define BOTH(boolean) "setp.lt." boolean ".f32 p|q, %1, %2, !r; selp.b32 one, 1, 0, p; selp.b32 two, 2, 0, q; shl.b32 %0, %0, 2; or.b32 %0, %0, one; or.b32 %0, %0, two;\n"
static unsigned both_ways(float a, float b, float c) {
  const bool p = a < b, r = !(c >= 0);
  const bool all[] = {!p && r, p && r, !p || r, p || r, !p != r, p != r};
  unsigned found = 0;
  for (const bool one : all) found = found << 1 | (one ? 1 : 0);
  return found;
}
CASE(WithPredicate, float, unsigned, "f", "=r",
     ".reg .pred p, q, r; .reg .b32 one, two; mov.u32 %0, 0; setp.ge.f32 r, %3, 0f00000000;\n" BOTH("and") BOTH("or") BOTH("xor") "mov.b32 %0, %0",
     both_ways(a, b, c))
CASE(NotLess, float, unsigned, "f", "=r", ".reg .pred p; setp.lt.f32 p, %1, %2; xor.pred p, p, -1; selp.b32 %0, 1, 0, p", !(a < b))
CASE(AsNumber, float, float, "f", "f", "set.leu.f32.f32 %0, %1, %2", !(a > b) ? 1.0f : 0.0f)
CASE(BySign, float, float, "f", "f", "slct.f32.f32 %0, %1, %2, %3", c >= 0 ? a : b)

#define WHOLE(name, words, host) CASE(name, unsigned, unsigned, "r", "=r", words, host)
#define WIDE(name, words, host) CASE(name, unsigned long long, unsigned long long, "l", "=l", words, host)
// A word's bits and bytes on the host.
static unsigned reversed(unsigned long long a, int bits) {
  unsigned long long found = 0;
  for (int i = 0; i < bits; ++i) found |= (a >> i & 1) << (bits - 1 - i);
  return static_cast<unsigned>(bits == 64 ? found >> 32 ^ found : found);
}
static unsigned bytes_times(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<unsigned>(static_cast<signed char>(a >> i) * static_cast<unsigned char>(b >> i));
  return c;
}
static unsigned halves_times(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 2; ++i) c += static_cast<unsigned>(static_cast<short>(a >> 16 * i) * static_cast<signed char>(b >> (16 + 8 * i)));
  return c;
}
static unsigned nth_set(unsigned a, unsigned from, int nth) {
  for (int i = static_cast<int>(from & 31); i < 32; ++i)
    if (a >> i & 1 && --nth == 0) return static_cast<unsigned>(i);
  return ~0u;
}
WHOLE(Reverse, "brev.b32 %0, %1", reversed(a, 32))
WHOLE(Ones, "popc.b32 %0, %1", static_cast<unsigned>(__builtin_popcount(a)))
WHOLE(Zeros, "clz.b32 %0, %1", a == 0 ? 32u : static_cast<unsigned>(__builtin_clz(a)))
WHOLE(Highest, "bfind.u32 %0, %1", a == 0 ? ~0u : 31u - static_cast<unsigned>(__builtin_clz(a)))
WHOLE(HighestOfSigned, "bfind.shiftamt.s32 %0, %1",
      a + 1 <= 1 ? ~0u : static_cast<unsigned>(__builtin_clz(a >> 31 ? ~a : a)))
WHOLE(FunnelLeft, "shf.l.wrap.b32 %0, %1, %2, %3", static_cast<unsigned>(((std::uint64_t{b} << 32 | a) << (c & 31)) >> 32))
WHOLE(FunnelRight, "shf.r.clamp.b32 %0, %1, %2, %3", static_cast<unsigned>((std::uint64_t{b} << 32 | a) >> std::min(c, 32u)))
WHOLE(Difference, "sad.s32 %0, %1, %2, %3", c + (static_cast<int>(a) < static_cast<int>(b) ? b - a : a - b))
WHOLE(Dot4, "dp4a.s32.u32 %0, %1, %2, %3", bytes_times(a, b, c))
WHOLE(Dot2, "dp2a.hi.s32.s32 %0, %1, %2, %3", halves_times(a, b, c))
WHOLE(Field, ".reg .b32 n, m; and.b32 n, %2, 31; and.b32 m, %3, 31; bfe.u32 %0, %1, n, m", (a >> (b & 31)) & ((1u << (c & 31)) - 1))
WHOLE(FieldPut, ".reg .b32 n; and.b32 n, %3, 31; bfi.b32 %0, %1, %2, n, 7",
      (b & ~static_cast<unsigned>(127ull << (c & 31))) | static_cast<unsigned>((a & 127ull) << (c & 31)))
WHOLE(Table, "lop3.b32 %0, %1, %2, %3, 0xe8", (a & b) | (a & c) | (b & c))
WHOLE(Bytes, "prmt.b32 %0, %1, %2, 0x2714", a >> 16 << 24 >> 0 & 0xff000000u | b >> 24 << 16 | (a >> 8 & 255) << 8 | (b & 255))
WHOLE(Nth, ".reg .b32 n; and.b32 n, %3, 7; add.u32 n, n, 1; fns.b32 %0, %1, %2, n", nth_set(a, b, static_cast<int>(c & 7) + 1))
WHOLE(NoBit, "cnot.b32 %0, %1", a == 0 ? 1u : 0u)
WHOLE(Mask, "bmsk.wrap.b32 %0, %1, %2", static_cast<unsigned>(((1ull << (b & 31)) - 1) << (a & 31)))
WHOLE(ToLimit, "add.sat.s32 %0, %1, %2", static_cast<unsigned>(std::clamp<long long>(
      static_cast<long long>(static_cast<int>(a)) + static_cast<int>(b), std::numeric_limits<int>::min(), std::numeric_limits<int>::max())))
WHOLE(Upper, "mad.hi.u32 %0, %1, %2, %3", static_cast<unsigned>(std::uint64_t{a} * b >> 32) + c)
WHOLE(Pairs, "min.s16x2 %0, %1, %2", static_cast<unsigned short>(std::min<short>(a, b)) |
      static_cast<unsigned>(static_cast<unsigned short>(std::min<short>(a >> 16, b >> 16))) << 16)
WIDE(WideReverse, ".reg .b64 r; .reg .b32 h, l; brev.b64 r, %1; mov.b64 {l, h}, r; xor.b32 l, l, h; cvt.u64.u32 %0, l", reversed(a, 64))
WIDE(WideZeros, ".reg .b32 n; clz.b64 n, %1; cvt.u64.u32 %0, n", a == 0 ? 64ull : static_cast<unsigned long long>(__builtin_clzll(a)))
WIDE(WideField, "bfe.s64 %0, %1, 5, 40", static_cast<unsigned long long>(static_cast<long long>(a << 19) >> 24))
WIDE(Parts, ".reg .b16 p, q, r, s; mov.b64 {p, q, r, s}, %1; mov.b64 %0, {s, p, r, q}",
     a >> 48 | (a & 0xffff) << 16 | (a >> 32 & 0xffff) << 32 | (a >> 16 & 0xffff) << 48)
WIDE(Carried, ".reg .b64 l, h; add.cc.u64 l, %1, %2; addc.u64 h, %3, 0; sub.cc.u64 l, l, %3; subc.u64 h, h, %1; xor.b64 %0, l, h",
     ([&] { const auto sum = static_cast<unsigned __int128>(c) * (static_cast<unsigned __int128>(1) << 64) + a + b,
                       less = sum - c - (static_cast<unsigned __int128>(a) << 64);
            return static_cast<unsigned long long>(less) ^ static_cast<unsigned long long>(less >> 64); })())
WIDE(CarriedProduct,
     ".reg .b32 al, ah, bl, bh, r, s; mov.b64 {al, ah}, %1; mov.b64 {bl, bh}, %2; mad.lo.cc.u32 r, al, bl, ah; madc.hi.u32 s, al, bl, bh; mov.b64 %0, {r, s}",
     (a & 0xffffffffull) * (b & 0xffffffffull) + (a >> 32) + (b >> 32 << 32))

/// Two halves of a kind in one word, as the host computes them with `f` in long double.
template <typename F>
static unsigned of_pair(unsigned a, unsigned b, unsigned c, bool brain, F f) {
  unsigned all = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto value = [&](unsigned bits) {
      const auto half = static_cast<std::uint16_t>(bits >> shift);
      return brain ? __bfloat162float(__ushort_as_bfloat16(half)) : __half2float(__ushort_as_half(half));
    };
    const double found = static_cast<double>(f(value(a), value(b), value(c)));
    const unsigned bits = brain ? __bfloat16_as_ushort(__double2bfloat16(found)) : __half_as_ushort(__double2half(found));
    all |= (found != found ? 0x7fffu : bits) << shift;
  }
  return all;
}
// NaN is one number, whichever of its bits a side has set.
#define PAIRS(name, words, brain, f) \
  struct name { __host__ __device__ static unsigned of(unsigned a, unsigned b, unsigned c) { return quiet(raw(a, b, c)); } \
    __host__ __device__ static unsigned quiet(unsigned a) { \
      for (int i = 0; i < 32; i += 16) if ((a >> i & 0x7fff) > (brain ? 0x7f80u : 0x7c00u)) a |= 0x7fffu << i, a &= ~(0x8000u << i); \
      return a; } \
    __host__ __device__ static unsigned raw(unsigned a, unsigned b, unsigned c) { (void)a, (void)b, (void)c; BODY(unsigned, unsigned, "r", "=r", words, of_pair(a, b, c, brain, f)) } };
#define ONE_BY_ONE(words) ".reg .b16 a, b, c, d, e, f, g, h; mov.b32 {a, b}, %1; mov.b32 {c, d}, %2; mov.b32 {e, f}, %3;\n" words "mov.b32 %0, {g, h}"
PAIRS(HalfSum, "add.f16x2 %0, %1, %2", false, [](double x, double y, double) { return x + y; })
PAIRS(HalfDifference, ONE_BY_ONE("sub.f16 g, a, c; sub.f16 h, b, d;"), false, [](double x, double y, double) { return x - y; })
PAIRS(HalfProduct, ONE_BY_ONE("mul.f16 g, a, c; mul.f16 h, b, d;"), false, [](double x, double y, double) { return x * y; })
PAIRS(HalfWithin, "add.sat.f16x2 %0, %1, %2", false, [](double x, double y, double) { return x + y > 0 ? std::min(x + y, 1.0) : 0.0; })
PAIRS(BrainSum, ONE_BY_ONE("add.rn.bf16 g, a, c; add.rn.bf16 h, b, d;"), true, [](double x, double y, double) { return x + y; })
PAIRS(BrainProduct, "mul.rn.bf16x2 %0, %1, %2", true, [](double x, double y, double) { return x * y; })
PAIRS(BrainLarger, "max.NaN.bf16x2 %0, %1, %2", true, [](double x, double y, double) { return x != x || y != y ? NAN : x > y || (x == y && !std::signbit(x)) ? x : y; })
PAIRS(BrainSet, "set.ge.bf16x2.bf16x2 %0, %1, %2", true, [](double x, double y, double) { return x >= y ? 1.0 : 0.0; })
PAIRS(HalfLess, ".reg .pred p, q; " ONE_BY_ONE("setp.lt.f16 p, a, c; setp.lt.f16 q, b, d; selp.b16 g, 0x3c00, 0, p; selp.b16 h, 0x3c00, 0, q;"), false,
      [](double x, double y, double) { return x < y ? 1.0 : 0.0; })

/// Numbers of which every sixth is a special one: zero, infinity, NaN, subnormal.
template <typename T>
static std::vector<T> varied(int count) {
  const T special[] = {T(0), -T(0), T(HUGE_VAL), -T(HUGE_VAL), T(NAN), std::numeric_limits<T>::min() / 5, std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::max(), T(1), T(-1)};
  Numbers numbers;
  std::vector<T> all(3 * count);
  for (T& one : all) {
    const std::uint64_t way = numbers.next();
    one = way % 6 == 0 ? special[way / 6 % 10] : static_cast<T>(std::ldexp(numbers.between(-2, 2), static_cast<int>(way / 64 % 24) - 12));
  }
  return all;
}

#define TRY_REAL(name) compare_with_host<name<T>>(#name, given);
#define TRY_DIRECTED(name) TRY_REAL(Add##name) TRY_REAL(Subtract##name) TRY_REAL(Multiply##name) TRY_REAL(Divide##name) \
  TRY_REAL(Fused##name) TRY_REAL(Root##name) TRY_REAL(Inverse##name)
#define TRY(name) compare_with_host<name>(#name, given);

template <typename T>
static void instructions() {
  const std::vector<T> given = varied<T>(2000);
  TRY_DIRECTED(ToNearest) TRY_DIRECTED(ToZero) TRY_DIRECTED(Down) TRY_DIRECTED(Up)
  TRY_REAL(Sign) TRY_REAL(Opposite) TRY_REAL(Magnitude) TRY_REAL(Smaller) TRY_REAL(Larger) TRY_REAL(Kind)
  if constexpr (std::is_same_v<T, float>) {
    TRY(LargerOrNan) TRY(SmallerOfMagnitudes) TRY(Within) TRY(WithoutSubnormals) TRY(WithPredicate) TRY(NotLess) TRY(AsNumber) TRY(BySign)
  }
}

template <typename T>
static std::vector<T> words(int count) {
  Numbers numbers;
  std::vector<T> all(3 * count);
  for (T& one : all) {
    one = static_cast<T>(numbers.next());
    one >>= numbers.next() % (8 * sizeof(T) + 3) % (8 * sizeof(T));
  }
  all[0] = all[5] = 0, all[1] = all[6] = static_cast<T>(~T{0});
  return all;
}

static void bits() {
  {
    const auto given = words<unsigned>(2000);
    TRY(Reverse) TRY(Ones) TRY(Zeros) TRY(Highest) TRY(HighestOfSigned) TRY(FunnelLeft) TRY(FunnelRight) TRY(Difference)
    TRY(Dot4) TRY(Dot2) TRY(Field) TRY(FieldPut) TRY(Table) TRY(Bytes) TRY(Nth) TRY(NoBit) TRY(Mask) TRY(ToLimit) TRY(Upper) TRY(Pairs)
  }
  const auto given = words<unsigned long long>(2000);
  TRY(WideReverse) TRY(WideZeros) TRY(WideField) TRY(Parts) TRY(Carried) TRY(CarriedProduct)
}

static void halves() {
  Numbers numbers;
  std::vector<unsigned> given(3 * 4000);
  for (unsigned& one : given) one = static_cast<unsigned>(numbers.next());
  TRY(HalfSum) TRY(HalfDifference) TRY(HalfProduct) TRY(HalfWithin) TRY(BrainSum) TRY(BrainProduct) TRY(BrainLarger) TRY(BrainSet) TRY(HalfLess)
}

#define CONVERT(name, T, R, letter, result, words, host) CASE(name, T, R, letter, result, words " %0, %1", host)
template <typename R, typename T>
static R to_limit(T a, R nan, long double (*rounding)(long double)) {
  if (a != a) return nan;
  const long double value = rounding(a);
  if (value <= static_cast<long double>(std::numeric_limits<R>::min())) return std::numeric_limits<R>::min();
  if (value >= static_cast<long double>(std::numeric_limits<R>::max())) return std::numeric_limits<R>::max();
  return static_cast<R>(value);
}
CONVERT(Floor32, float, int, "f", "=r", "cvt.rmi.s32.f32", to_limit<int>(a, 0, std::floor))
CONVERT(Ceil64, double, unsigned, "d", "=r", "cvt.rpi.u32.f64", to_limit<unsigned>(a, 0x80000000u, std::ceil))
CONVERT(Near64, double, long long, "d", "=l", "cvt.rni.s64.f64", to_limit<long long>(a, std::numeric_limits<long long>::min(), std::nearbyint))
CONVERT(Cut32, float, unsigned long long, "f", "=l", "cvt.rzi.u64.f32", to_limit<unsigned long long>(a, 1ull << 63, std::trunc))
CONVERT(Floor, double, double, "d", "=d", "cvt.rmi.f64.f64", std::floor(a))
CONVERT(NarrowDown, double, float, "d", "=f", "cvt.rm.f32.f64", ([&] { const float near = static_cast<float>(a);
        return near > a ? std::nextafterf(near, -INFINITY) : near; })())
CONVERT(Clamped, float, float, "f", "=f", "cvt.sat.f32.f32", a > 0 ? std::fmin(a, 1.0f) : 0.0f)
CONVERT(Float64, unsigned long long, float, "l", "=f", "cvt.rn.f32.u64", static_cast<float>(a))
CONVERT(FloatUp, unsigned long long, float, "l", "=f", "cvt.rp.f32.s64", ([&] { const float near = static_cast<float>(static_cast<long long>(a));
        return static_cast<long double>(near) < static_cast<long long>(a) ? std::nextafterf(near, INFINITY) : near; })())
CONVERT(Byte, unsigned long long, unsigned long long, "l", "=l", "cvt.sat.u8.s64", static_cast<unsigned long long>(std::clamp<long long>(static_cast<long long>(a), 0, 255)))
CONVERT(HalfOfWhole, unsigned, unsigned short, "r", "=h", "cvt.rn.f16.s32", __half_as_ushort(__double2half(static_cast<int>(a))))
CONVERT(HalfOfDouble, double, unsigned short, "d", "=h", "cvt.rn.f16.f64", a != a ? 0x7fffu : __half_as_ushort(__double2half(a)))
CONVERT(BrainOfDouble, double, unsigned short, "d", "=h", "cvt.rn.bf16.f64", a != a ? 0x7fffu : __bfloat16_as_ushort(__double2bfloat16(a)))
CONVERT(HalfToZero, float, unsigned short, "f", "=h", "cvt.rz.f16.f32", a != a ? 0x7fffu : __half_as_ushort(__float2half_rz(a)))

static void conversions() {
  {
    const auto given = varied<float>(2000);
    TRY(Floor32) TRY(Cut32) TRY(Clamped)
  }
  {
    const auto given = varied<double>(2000);
    TRY(Ceil64) TRY(Near64) TRY(Floor) TRY(NarrowDown)
  }
  {
    auto given = varied<float>(2000);
    given.erase(std::remove_if(given.begin(), given.end(), [](float a) { return a != a; }), given.end());
    given.resize(given.size() / 3 * 3);
    TRY(HalfToZero)
    const std::vector<double> wide(given.begin(), given.end());
    compare_with_host<HalfOfDouble>("HalfOfDouble", wide);
    compare_with_host<BrainOfDouble>("BrainOfDouble", wide);
  }
  {
    const auto given = words<unsigned>(2000);
    TRY(HalfOfWhole)
  }
  const auto given = words<unsigned long long>(2000);
  TRY(Float64) TRY(FloatUp) TRY(Byte)
}
