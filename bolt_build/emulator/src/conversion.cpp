// Conversions between types.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "decode.h"
#include "half.h"
#include "operations.h"

namespace emulator {
namespace {

/// Of one state space, or back: `number` are the bits of its window, `form` whether they go.
void to_address(Warp& warp, const Instruction& i, Mask mask) {
  std::uint64_t* const d = warp.at<std::uint64_t>(i.at[0]);
  const std::uint64_t* const a = warp.at<std::uint64_t>(i.at[1]);
  const auto window = static_cast<std::uint64_t>(i.number);
  each(mask, [&](int lane) { d[lane] = i.form != 0 ? a[lane] & ~window : a[lane] | window; });
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
void to_half_from(Warp& warp, const Instruction& i, Mask mask) {
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

/// Any number, from any type to any: `from` and `to`, whose registers are `held` and `holds` bytes wide.
struct Conversion {
  Type from, to;
  int held, holds;
  Round how;
  bool integral, saturates, flushes, rectifies;
};

/// A number of the type as a lane's register has it; of more digits than any type has.
long double number_in(std::uint64_t bits, const Conversion& c) {
  switch (c.from.kind) {
    case 'h': return float_of_bfloat(static_cast<std::uint16_t>(bits));
    case 'f':
      if (c.from.bytes == 8) return std::bit_cast<double>(bits);
      if (c.from.bytes == 2) return float_of_half(static_cast<std::uint16_t>(bits));
      return c.flushes ? flushed(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                       : std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case 's': return static_cast<std::int64_t>(bits << (64 - 8 * c.from.bytes)) >> (64 - 8 * c.from.bytes);
    default: return bits << (64 - 8 * c.from.bytes) >> (64 - 8 * c.from.bytes);
  }
}

long double integral_of(long double value, Round how) {
  switch (how) {
    case Round::zero: return std::trunc(value);
    case Round::down: return std::floor(value);
    case Round::up: return std::ceil(value);
    default: return std::nearbyint(value);
  }
}

/// Between the least and the greatest of the type. NaN is zero, and the highest bit alone where a side has 64 bits.
std::uint64_t whole_number(long double value, const Conversion& c) {
  const int bits = 8 * c.to.bytes;
  if (std::isnan(value)) return c.from.bytes == 8 || c.to.bytes == 8 ? std::uint64_t{1} << (bits - 1) : 0;
  const bool sign = c.to.kind == 's';
  const long double most = std::exp2(static_cast<long double>(sign ? bits - 1 : bits)) - 1, least = sign ? -most - 1 : 0;
  const long double within = std::clamp(value, least, most);
  return within < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(within)) : static_cast<std::uint64_t>(within);
}

/// Out of the compiler's sight, which does not know how it is rounded.
[[gnu::noipa]] std::uint64_t narrowed(long double value, const Conversion& c) {
  if (c.to.bytes == 8) return std::bit_cast<std::uint64_t>(static_cast<double>(value));
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

std::uint64_t real_number(long double value, const Conversion& c) {
  if (c.saturates) value = saturated(value);
  if (c.rectifies && value < 0) value = 0;
  if (c.to.bytes == 2) {
    const float odd = single_to_odd(value);
    return c.to.kind == 'h' ? Bfloat::narrow(odd, c.how) : Half::narrow(odd, c.how);
  }
  const Rounding rounding(c.how);
  const std::uint64_t bits = narrowed(value, c);
  return c.flushes && c.to.bytes == 4
             ? std::bit_cast<std::uint32_t>(flushed(std::bit_cast<float>(static_cast<std::uint32_t>(bits))))
             : bits;
}

std::uint64_t converted(std::uint64_t bits, const Conversion& c) {
  long double value = number_in(bits, c);
  if (c.to.kind == 'f' || c.to.kind == 'h') return real_number(c.integral ? integral_of(value, c.how) : value, c);
  const std::uint64_t found = whole_number(integral_of(value, c.how), c);
  const int shift = 64 - 8 * c.to.bytes;  // what lies above in a wider register
  return c.to.kind == 's' ? static_cast<std::uint64_t>(static_cast<std::int64_t>(found << shift) >> shift) : found;
}

void convert(Warp& warp, const Instruction& i, Mask mask) {
  const auto type = [](std::uint32_t word) { return Type{static_cast<char>(word & 255), static_cast<int>(word >> 8)}; };
  const auto flag = [&](int bit) { return (i.number & bit) != 0; };
  const Conversion c{type(i.list[0]), type(i.list[1]), static_cast<int>(i.list[2]), static_cast<int>(i.list[3]),
                     static_cast<Round>(i.form), flag(1), flag(2), flag(4), flag(8)};
  each(mask, [&](int lane) {
    const std::uint64_t bits = c.held == 2   ? warp.at<std::uint16_t>(i.at[1])[lane]
                               : c.held == 4 ? warp.at<std::uint32_t>(i.at[1])[lane]
                                             : warp.at<std::uint64_t>(i.at[1])[lane];
    const std::uint64_t found = converted(bits, c);
    if (c.holds == 2) warp.at<std::uint16_t>(i.at[0])[lane] = static_cast<std::uint16_t>(found);
    else if (c.holds == 4) warp.at<std::uint32_t>(i.at[0])[lane] = static_cast<std::uint32_t>(found);
    else warp.at<std::uint64_t>(i.at[0])[lane] = found;
  });
}

/// What has one instance of its own, because kernels are full of it.
Execute often(Type to, Type from) {
  const bool to_half = to.kind == 'h' || (to.kind == 'f' && to.bytes == 2);
  const bool of_half = from.kind == 'h' || (from.kind == 'f' && from.bytes == 2);
  const bool real_to = to.kind == 'f' || to.kind == 'h', real_from = from.kind == 'f' || from.kind == 'h';
  if (to_half && from.kind == 'f' && from.bytes == 4)
    return to.kind == 'h' ? to_half_from<bfloat_of_float> : to_half_from<half_of_float>;
  if (of_half && to.kind == 'f' && to.bytes == 4) return from.kind == 'h' ? from_half<float_of_bfloat> : from_half<float_of_half>;
  if (to_half || of_half) return nullptr;
  if (real_to && real_from) return to.bytes == 8 && from.bytes == 4 ? real_to_real<double, float>
                                   : to.bytes == 4 && from.bytes == 8 ? real_to_real<float, double> : nullptr;
  if (real_to) return to.bytes == 4 ? by_source<WholeToReal, float>(from) : by_source<WholeToReal, double>(from);
  return real_from ? nullptr : whole_of_whole(to, from);
}

bool decode_cvt(Reader& reader, const Statement& s, Instruction& i) {
  static constexpr std::string_view words[] = {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "relu"};
  if (s.modifiers.size() < 2) return false;
  const std::string_view to_word = s.modifiers[s.modifiers.size() - 2], from_word = s.type();
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  if (to_word == "f16x2" || to_word == "bf16x2") {
    if (from_word != "f32" || s.modifiers.size() != 3 || s.modifiers[0] != "rn") return false;
    i.at[1] = reader.source(s.operands.at(1), {'f', 4});
    i.at[2] = reader.source(s.operands.at(2), {'f', 4});
    i.execute = to_word == "f16x2" ? to_halves<half_of_float> : to_halves<bfloat_of_float>;
    return true;
  }
  for (std::size_t n = 0; n + 2 < s.modifiers.size(); ++n)
    if (std::find(std::begin(words), std::end(words), s.modifiers[n]) == std::end(words)) return false;
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
  const auto word = [](int count) { return static_cast<std::uint32_t>(count); };
  if ((held != from.bytes || holds != to.bytes) && whole && !s.has("sat")) {
    i.list = {word(held), word(from.bytes), word(holds), word(to.bytes), from.kind == 's', to.kind == 's'};
    i.execute = between_widths;
    return true;
  }
  const bool integral = s.has("rni") || s.has("rzi") || s.has("rmi") || s.has("rpi");
  const bool nothing_else = !integral && !s.has("sat") && !s.has("ftz") && !s.has("relu") && round_of(s) == Round::nearest;
  if (held == from.bytes && holds == to.bytes && nothing_else) i.execute = often(to, from);
  if (i.execute != nullptr) return true;
  i.list = {word(from.kind) | word(from.bytes) << 8, word(to.kind) | word(to.bytes) << 8, word(held), word(holds)};
  i.form = static_cast<int>(round_of(s));
  i.number = (integral ? 1 : 0) | (s.has("sat") ? 2 : 0) | (s.has("ftz") ? 4 : 0) | (s.has("relu") ? 8 : 0);
  i.execute = convert;
  return true;
}

}  // namespace

bool decode_conversion(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "cvt") return decode_cvt(reader, s, i);
  if (s.base != "cvta") return false;
  if (s.type() != "u64") return false;
  // Addresses of global memory, and of parameters, are the same in every space; those of shared memory have a window.
  i.number = s.has("shared") ? static_cast<std::int64_t>(shared_window) : 0;
  i.form = s.has("to") ? 1 : 0;
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  i.at[1] = reader.source(s.operands.at(1), {'u', 8});
  i.execute = to_address;
  return true;
}

}  // namespace emulator
