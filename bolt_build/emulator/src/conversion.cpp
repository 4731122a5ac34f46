// Conversions between types, and arithmetic of halves.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "decode.h"
#include "half.h"

namespace emulator {
namespace {

template <typename T>
void to_address(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = a[lane]; });
}

enum Round : int { nearest, zero, down, up };

double rounded(double value, int how) {
  switch (how) {
    case zero: return std::trunc(value);
    case down: return std::floor(value);
    case up: return std::ceil(value);
    default: return std::nearbyint(value);
  }
}

template <typename To, typename From>
void whole_to_whole(Warp& warp, const Instruction& i, Mask mask) {
  To* const d = warp.at<To>(i.at[0]);
  const From* const a = warp.at<From>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = static_cast<To>(a[lane]); });
}

template <typename To, typename From>
void whole_to_real(Warp& warp, const Instruction& i, Mask mask) {
  To* const d = warp.at<To>(i.at[0]);
  const From* const a = warp.at<From>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = static_cast<To>(a[lane]); });
}

/// Saturates; zero for NaN.
template <typename To, typename From>
void real_to_whole(Warp& warp, const Instruction& i, Mask mask) {
  To* const d = warp.at<To>(i.at[0]);
  const From* const a = warp.at<From>(i.at[1]);
  each(mask, [&](int lane) {
    const double value = rounded(a[lane], i.form);
    using Limits = std::numeric_limits<To>;
    d[lane] = std::isnan(value)                                     ? To(0)
              : value <= static_cast<double>(Limits::min())         ? Limits::min()
              : value >= static_cast<double>(Limits::max())         ? Limits::max()
                                                                    : static_cast<To>(value);
  });
}

/// To a whole number that stays a float.
void to_integral(Warp& warp, const Instruction& i, Mask mask) {
  float* const d = warp.at<float>(i.at[0]);
  const float* const a = warp.at<float>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = static_cast<float>(rounded(a[lane], i.form)); });
}

/// Between zero and one; zero for NaN.
void saturate(Warp& warp, const Instruction& i, Mask mask) {
  float* const d = warp.at<float>(i.at[0]);
  const float* const a = warp.at<float>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = std::isnan(a[lane]) ? 0.0f : std::clamp(a[lane], 0.0f, 1.0f); });
}

template <typename To, typename From>
void real_to_real(Warp& warp, const Instruction& i, Mask mask) {
  To* const d = warp.at<To>(i.at[0]);
  const From* const a = warp.at<From>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = static_cast<To>(a[lane]); });
}

template <float (*widen)(std::uint16_t)>
void from_half(Warp& warp, const Instruction& i, Mask mask) {
  float* const d = warp.at<float>(i.at[0]);
  const std::uint16_t* const a = warp.at<std::uint16_t>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = widen(a[lane]); });
}

template <std::uint16_t (*narrow)(float)>
void to_half(Warp& warp, const Instruction& i, Mask mask) {
  std::uint16_t* const d = warp.at<std::uint16_t>(i.at[0]);
  const float* const a = warp.at<float>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = narrow(a[lane]); });
}

/// The first operand comes to lie in the upper half.
template <std::uint16_t (*narrow)(float)>
void to_halves(Warp& warp, const Instruction& i, Mask mask) {
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  const float *const a = warp.at<float>(i.at[1]), *const b = warp.at<float>(i.at[2]);
  each(mask, [&](int lane) { d[lane] = static_cast<std::uint32_t>(narrow(a[lane])) << 16 | narrow(b[lane]); });
}

/// Arithmetic of two halves at once, rounded after each operation.
template <float (*f)(float, float), float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
void of_halves(Warp& warp, const Instruction& i, Mask mask) {
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  const std::uint32_t *const a = warp.at<std::uint32_t>(i.at[1]), *const b = warp.at<std::uint32_t>(i.at[2]);
  each(mask, [&](int lane) {
    const auto half = [&](int shift) {
      const float x = widen(static_cast<std::uint16_t>(a[lane] >> shift));
      const float y = widen(static_cast<std::uint16_t>(b[lane] >> shift));
      return static_cast<std::uint32_t>(narrow(f(x, y))) << shift;
    };
    d[lane] = half(0) | half(16);
  });
}

float most_or_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? std::nanf("") : std::fmax(a, b); }
float least_or_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? std::nanf("") : std::fmin(a, b); }
float most(float a, float b) { return std::fmax(a, b); }
float least(float a, float b) { return std::fmin(a, b); }
float sum(float a, float b) { return a + b; }
float product(float a, float b) { return a * b; }

template <template <typename, typename> class F, typename To>
Execute by_source(Type from) {
  const bool s = from.kind == 's';
  switch (from.bytes) {
    case 1: return s ? F<To, std::int8_t>::run : F<To, std::uint8_t>::run;
    case 2: return s ? F<To, std::int16_t>::run : F<To, std::uint16_t>::run;
    case 4: return s ? F<To, std::int32_t>::run : F<To, std::uint32_t>::run;
    case 8: return s ? F<To, std::int64_t>::run : F<To, std::uint64_t>::run;
  }
  throw Unsupported("whole numbers of this width");
}

template <typename To, typename From>
struct WholeToWhole { static constexpr Execute run = whole_to_whole<To, From>; };
template <typename To, typename From>
struct WholeToReal { static constexpr Execute run = whole_to_real<To, From>; };

template <typename From>
Execute whole_of(Type to) {
  const bool s = to.kind == 's';
  switch (to.bytes) {
    case 2: return s ? real_to_whole<std::int16_t, From> : real_to_whole<std::uint16_t, From>;
    case 4: return s ? real_to_whole<std::int32_t, From> : real_to_whole<std::uint32_t, From>;
    case 8: return s ? real_to_whole<std::int64_t, From> : real_to_whole<std::uint64_t, From>;
  }
  throw Unsupported("whole numbers of this width");
}

Execute whole_of_whole(Type to, Type from) {
  const bool s = to.kind == 's';
  switch (to.bytes) {
    // Registers of bytes are as wide as those of halves.
    case 1: return s ? by_source<WholeToWhole, std::int16_t>(from) : by_source<WholeToWhole, std::uint16_t>(from);
    case 2: return s ? by_source<WholeToWhole, std::int16_t>(from) : by_source<WholeToWhole, std::uint16_t>(from);
    case 4: return s ? by_source<WholeToWhole, std::int32_t>(from) : by_source<WholeToWhole, std::uint32_t>(from);
    case 8: return s ? by_source<WholeToWhole, std::int64_t>(from) : by_source<WholeToWhole, std::uint64_t>(from);
  }
  throw Unsupported("whole numbers of this width");
}

/// Registers may be wider than the types of a conversion: what lies above is no part of the source, and in the result
/// repeats the sign or is zero. `list`: bytes of the source's register and type, of the result's, and their signs.
void between_widths(Warp& warp, const Instruction& i, Mask mask) {
  const auto get = [&](int lane) -> std::uint64_t {
    switch (i.list[0]) {
      case 2: return warp.at<std::uint16_t>(i.at[1])[lane];
      case 4: return warp.at<std::uint32_t>(i.at[1])[lane];
      default: return warp.at<std::uint64_t>(i.at[1])[lane];
    }
  };
  const auto extended = [](std::uint64_t value, std::uint32_t bytes, bool sign) {
    const int shift = 64 - 8 * static_cast<int>(bytes);
    return sign ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value << shift) >> shift) : value << shift >> shift;
  };
  each(mask, [&](int lane) {
    const std::uint64_t value = extended(extended(get(lane), i.list[1], i.list[4] != 0), i.list[3], i.list[5] != 0);
    switch (i.list[2]) {
      case 2: warp.at<std::uint16_t>(i.at[0])[lane] = static_cast<std::uint16_t>(value); break;
      case 4: warp.at<std::uint32_t>(i.at[0])[lane] = static_cast<std::uint32_t>(value); break;
      default: warp.at<std::uint64_t>(i.at[0])[lane] = value;
    }
  });
}

/// a * b + c of two halves at once, rounded once. What fp64 loses of the sum is kept as its last bit ("round to odd"),
/// which no later rounding mistakes for a tie.
template <float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
void fused_halves(Warp& warp, const Instruction& i, Mask mask) {
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  const std::uint32_t* const from[] = {warp.at<std::uint32_t>(i.at[1]), warp.at<std::uint32_t>(i.at[2]),
                                       warp.at<std::uint32_t>(i.at[3])};
  const auto fused = [&](int lane, int shift) -> std::uint32_t {
    double of[3];
    for (int n = 0; n < 3; ++n) of[n] = widen(static_cast<std::uint16_t>(from[n][lane] >> shift));
    const double product = of[0] * of[1], sum = product + of[2];  // the product is exact
    const float single = static_cast<float>(sum);
    const double back = sum - product, lost = (product - (sum - back)) + (of[2] - back);
    if (!std::isfinite(single) || (static_cast<double>(single) == sum && lost == 0.0)) return narrow(single);
    const double rest = (sum - static_cast<double>(single)) + lost;
    if (single == 0.0f) return narrow(static_cast<float>(std::copysign(1e-44, rest)));
    auto bits = std::bit_cast<std::uint32_t>(single);
    if ((bits & 1) == 0) bits += (rest > 0.0) == (single > 0.0f) ? 1u : 0xffffffffu;
    return narrow(std::bit_cast<float>(bits));
  };
  each(mask, [&](int lane) { d[lane] = fused(lane, 16) << 16 | fused(lane, 0); });
}

/// What a statement does to two halves at once, nullptr where it is none of these.
template <float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
Execute of_two(const Statement& s) {
  if (s.base == "max") return s.has("NaN") ? of_halves<most_or_nan, widen, narrow> : of_halves<most, widen, narrow>;
  if (s.base == "min") return s.has("NaN") ? of_halves<least_or_nan, widen, narrow> : of_halves<least, widen, narrow>;
  if (s.base == "add") return of_halves<sum, widen, narrow>;
  if (s.base == "mul") return of_halves<product, widen, narrow>;
  return nullptr;
}

bool decode_cvt(Reader& reader, const Statement& s, Instruction& i) {
  const std::string_view to_word = s.modifiers.at(s.modifiers.size() - 2), from_word = s.type();
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  if (to_word == "f16x2" || to_word == "bf16x2") {
    if (from_word != "f32" || s.modifiers.size() != 3 || s.modifiers[0] != "rn") return false;
    i.at[1] = reader.source(s.operands.at(1), {'f', 4});
    i.at[2] = reader.source(s.operands.at(2), {'f', 4});
    i.execute = to_word == "f16x2" ? to_halves<half_of_float> : to_halves<bfloat_of_float>;
    return true;
  }
  const Type to = to_word == "bf16" ? Type{'h', 2} : type_of(to_word);
  const Type from = from_word == "bf16" ? Type{'h', 2} : type_of(from_word);
  i.at[1] = reader.source(s.operands.at(1), {from.kind == 'h' ? 'b' : from.kind, from.bytes});
  // Constants are as wide as their type.
  const char first = s.operands[1][0];
  const bool number = first == '-' || (first >= '0' && first <= '9');
  const int held = number ? std::max(from.bytes, 2) : reader.reg(s.operands[1], from.bytes).type.bytes;
  const int holds = reader.reg(s.operands[0]).type.bytes;
  const bool whole = std::string_view("sub").find(to.kind) != std::string_view::npos &&
                     std::string_view("sub").find(from.kind) != std::string_view::npos;
  if (held != from.bytes || holds != to.bytes) {
    const auto bytes = [](int count) { return static_cast<std::uint32_t>(count); };
    i.list = {bytes(held), bytes(from.bytes), bytes(holds), bytes(to.bytes), from.kind == 's', to.kind == 's'};
    i.execute = between_widths;
    return whole && !s.has("sat");
  }
  for (const auto word : s.modifiers)
    i.form = word == "rzi" || word == "rz"   ? zero
             : word == "rmi" || word == "rm" ? down
             : word == "rpi" || word == "rp" ? up
                                             : i.form;
  const bool half_to = to.kind == 'h' || (to.kind == 'f' && to.bytes == 2);
  const bool half_from = from.kind == 'h' || (from.kind == 'f' && from.bytes == 2);
  const bool integral = s.has("rni") || s.has("rzi") || s.has("rmi") || s.has("rpi");
  if (half_to || half_from) {
    if (half_to && from.kind == 'f' && from.bytes == 4 && !s.has("sat") && i.form == nearest)
      i.execute = to.kind == 'h' ? to_half<bfloat_of_float> : to_half<half_of_float>;
    if (half_from && to.kind == 'f' && to.bytes == 4)
      i.execute = from.kind == 'h' ? from_half<float_of_bfloat> : from_half<float_of_half>;
    return i.execute != nullptr;
  }
  if (to.kind == 'f' && from.kind == 'f') {
    if (to.bytes == 4 && from.bytes == 4)
      i.execute = s.has("sat") ? saturate : integral ? to_integral : Execute(real_to_real<float, float>);
    else if (to.bytes == 4 && i.form == nearest)
      i.execute = real_to_real<float, double>;
    else if (from.bytes == 4)
      i.execute = real_to_real<double, float>;
  } else if (to.kind == 'f' && i.form == nearest) {
    i.execute = to.bytes == 4 ? by_source<WholeToReal, float>(from) : by_source<WholeToReal, double>(from);
  } else if (from.kind == 'f') {
    i.execute = from.bytes == 4 ? whole_of<float>(to) : whole_of<double>(to);
  } else if (!s.has("sat")) {
    i.execute = whole_of_whole(to, from);
  }
  return i.execute != nullptr;
}

}  // namespace

bool decode_conversion(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "cvt") return decode_cvt(reader, s, i);
  if (s.base == "cvta") {
    // Addresses of global memory, and of parameters, are the same in every space; those of shared memory are refused.
    if (s.has("shared") || s.type() != "u64") return false;
    i.at[0] = reader.reg(s.operands.at(0)).offset;
    i.at[1] = reader.source(s.operands.at(1), {'u', 8});
    i.execute = to_address<std::uint64_t>;
    return true;
  }
  if (s.type() == "f16x2" || s.type() == "bf16x2") {
    i.at[0] = reader.reg(s.operands.at(0)).offset;
    i.at[1] = reader.source(s.operands.at(1), {'b', 4});
    i.at[2] = reader.source(s.operands.at(2), {'b', 4});
    if (s.base == "fma") {
      if (s.modifiers.size() != 2 || s.modifiers[0] != "rn") return false;
      i.at[3] = reader.source(s.operands.at(3), {'b', 4});
      i.execute = s.type() == "f16x2" ? fused_halves<float_of_half, half_of_float>
                                      : fused_halves<float_of_bfloat, bfloat_of_float>;
      return true;
    }
    i.execute = s.type() == "f16x2" ? of_two<float_of_half, half_of_float>(s) : of_two<float_of_bfloat, bfloat_of_float>(s);
    return i.execute != nullptr;
  }
  return false;
}

}  // namespace emulator
