// <cmath> on the device, within the units of the last place that CUDA promises of it.
#pragma once

#include "comparison_probe.h"

#define FUNCTION(name, expression) \
  template <typename T> struct name { __host__ __device__ static T of(T a, T b, T c) { (void)b, (void)c; using namespace std; return expression; } };
FUNCTION(Acos, acos(a)) FUNCTION(Asin, asin(a)) FUNCTION(Atan, atan(a)) FUNCTION(Acosh, acosh(T(1) + fabs(a))) FUNCTION(Asinh, asinh(a)) FUNCTION(Atanh, atanh(a))
FUNCTION(Cbrt, cbrt(a)) FUNCTION(Ceil, ceil(a)) FUNCTION(Floor_, floor(a)) FUNCTION(Round, round(a)) FUNCTION(Rint, rint(a)) FUNCTION(Trunc, trunc(a))
FUNCTION(Cos, cos(a)) FUNCTION(Sin, sin(a)) FUNCTION(Tan, tan(a)) FUNCTION(Cosh, cosh(a)) FUNCTION(Sinh, sinh(a)) FUNCTION(Tanh, tanh(a))
FUNCTION(FarSin, sin(a * T(1e9))) FUNCTION(FarCos, cos(a * T(1e15)))
FUNCTION(Erf, erf(a)) FUNCTION(Erfc, erfc(a)) FUNCTION(Exp, exp(a)) FUNCTION(Exp2, exp2(a)) FUNCTION(Expm1, expm1(a))
FUNCTION(Log, log(fabs(a))) FUNCTION(Log2, log2(fabs(a))) FUNCTION(Log10, log10(fabs(a))) FUNCTION(Log1p, log1p(fabs(a))) FUNCTION(Logb, logb(a))
FUNCTION(Gamma, tgamma(T(2) + fabs(a))) FUNCTION(LogGamma, lgamma(T(4) + fabs(a)))
FUNCTION(Sqrt, sqrt(fabs(a))) FUNCTION(Pow, pow(fabs(a), b)) FUNCTION(PowOfWhole, pow(a, T(3))) FUNCTION(Fmod, fmod(a * T(1000), b))
FUNCTION(Remainder_, remainder(a * T(1000), b)) FUNCTION(Atan2, atan2(a, b)) FUNCTION(Hypot, hypot(a, b)) FUNCTION(Copysign, copysign(a, b))
FUNCTION(Fdim, fdim(a, b)) FUNCTION(Fmax, fmax(a, b)) FUNCTION(Fmin, fmin(a, b)) FUNCTION(Nextafter, nextafter(a, b)) FUNCTION(Fma, fma(a, b, c))
FUNCTION(Ldexp, ldexp(a, static_cast<int>(b * 10))) FUNCTION(Ilogb, static_cast<T>(ilogb(a))) FUNCTION(Lround, static_cast<T>(llround(a * T(1000))))
FUNCTION(Kinds, static_cast<T>(isnan(a / b) + 2 * isinf(a / b) + 4 * isfinite(a) + 8 * signbit(a)))
template <typename T>
struct Parts_ {
  __host__ __device__ static T of(T a, T b, T) {
    int exponent = 0, quotient = 0;
    T whole = 0;
    const T fraction = std::frexp(a, &exponent), rest = std::modf(a * T(100), &whole), less = std::remquo(a, b, &quotient);
    return fraction + exponent + rest + whole + less + (quotient & 7);
  }
};

/// Numbers in (-1, 1), and ones beyond where a function takes them.
template <typename T>
static void functions() {
  Numbers numbers;
  std::vector<T> near(3 * 2000), far(3 * 2000);
  for (T& one : near) one = static_cast<T>(numbers.between(-1, 1));
  for (T& one : far) one = static_cast<T>(numbers.between(-30, 30));
#define TRY_FUNCTION(name) compare_with_host<name<T>>(#name, near, 16);
#define TRY_EVERYWHERE(name) compare_with_host<name<T>>(#name, near, 16), compare_with_host<name<T>>(#name, far, 16);
  TRY_FUNCTION(Acos) TRY_FUNCTION(Asin) TRY_FUNCTION(Atanh)
  TRY_EVERYWHERE(Atan) TRY_EVERYWHERE(Acosh) TRY_EVERYWHERE(Asinh) TRY_EVERYWHERE(Cbrt) TRY_EVERYWHERE(Ceil) TRY_EVERYWHERE(Floor_)
  TRY_EVERYWHERE(Round) TRY_EVERYWHERE(Rint) TRY_EVERYWHERE(Trunc) TRY_EVERYWHERE(Cos) TRY_EVERYWHERE(Sin) TRY_EVERYWHERE(Tan)
  TRY_EVERYWHERE(Cosh) TRY_EVERYWHERE(Sinh) TRY_EVERYWHERE(Tanh) TRY_EVERYWHERE(FarSin) TRY_EVERYWHERE(FarCos) TRY_EVERYWHERE(Erf)
  TRY_FUNCTION(Erfc) TRY_EVERYWHERE(Exp) TRY_EVERYWHERE(Exp2) TRY_EVERYWHERE(Expm1) TRY_EVERYWHERE(Log) TRY_EVERYWHERE(Log2)
  TRY_EVERYWHERE(Log10) TRY_EVERYWHERE(Log1p) TRY_EVERYWHERE(Logb) TRY_EVERYWHERE(Gamma) TRY_EVERYWHERE(LogGamma) TRY_EVERYWHERE(Sqrt)
  TRY_EVERYWHERE(Pow) TRY_EVERYWHERE(PowOfWhole) TRY_EVERYWHERE(Fmod) TRY_EVERYWHERE(Remainder_) TRY_EVERYWHERE(Atan2)
  TRY_EVERYWHERE(Hypot) TRY_EVERYWHERE(Copysign) TRY_EVERYWHERE(Fdim) TRY_EVERYWHERE(Fmax) TRY_EVERYWHERE(Fmin)
  TRY_EVERYWHERE(Nextafter) TRY_EVERYWHERE(Fma) TRY_EVERYWHERE(Ldexp) TRY_EVERYWHERE(Ilogb) TRY_EVERYWHERE(Lround)
  TRY_EVERYWHERE(Kinds) TRY_EVERYWHERE(Parts_)
}
