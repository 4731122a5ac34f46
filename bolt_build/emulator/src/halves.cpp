// Arithmetic of sixteen-bit floats, one or two to a register: computed in fp64, rounded once.
#include <algorithm>

#include "half.h"
#include "lanewise.h"

namespace emulator {
namespace {

/// a * b + c in fp64, rounded to odd: the product is exact, and of the sum what is lost shows in the last bit.
struct FusedToOdd { double operator()(double a, double b, double c) const {
  const double product = a * b, sum = product + c;
  const double back = sum - product, lost = (product - (sum - back)) + (c - back);
  if (!std::isfinite(sum) || !(std::fabs(lost) > 0.0) || (std::bit_cast<u64>(sum) & 1) != 0) return sum;
  return std::nextafter(sum, lost > 0.0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
} };
/// Zero where negative, NaN where NaN.
template <typename F> struct Rectified { template <typename... T> auto operator()(T... a) const {
  const auto found = F()(a...);
  return found < 0 ? decltype(found)(0) : found; } };

template <typename H>
double flushed_half(double a) { return std::fabs(a) < H::least_normal ? std::copysign(0.0, a) : a; }

/// `form`: whether numbers below the least normal one are zero.
template <typename H, typename F, int sources, int parts>
void of_halves(Warp& warp, const Instruction& i, Mask mask) {
  using Word = std::conditional_t<parts == 2, u32, u16>;
  Word* const d = warp.at<Word>(i.at[0]);
  const Word* const from[] = {warp.at<Word>(i.at[1]), warp.at<Word>(i.at[2]), warp.at<Word>(i.at[3])};
  each(mask, [&](int lane) {
    u32 all = 0;
    for (int shift = 0; shift < 16 * parts; shift += 16) {
      const auto operand = [&](int n) {
        const double wide = H::widen(static_cast<u16>(from[n][lane] >> shift));
        return i.form != 0 ? flushed_half<H>(wide) : wide;
      };
      double found;
      if constexpr (sources == 1) found = F()(operand(0));
      else if constexpr (sources == 2) found = F()(operand(0), operand(1));
      else found = F()(operand(0), operand(1), operand(2));
      if (i.form != 0) found = flushed_half<H>(found);
      all |= static_cast<u32>(H::narrow(single_to_odd(found))) << shift;
    }
    d[lane] = static_cast<Word>(all);
  });
}

template <typename F, int sources>
Execute half_function(const Statement& s) {
  const std::string_view type = s.type();
  if (type == "f16") return of_halves<Half, F, sources, 1>;
  if (type == "f16x2") return of_halves<Half, F, sources, 2>;
  if (type == "bf16") return of_halves<Bfloat, F, sources, 1>;
  return of_halves<Bfloat, F, sources, 2>;
}

template <typename F, int sources>
Execute half_arithmetic(const Statement& s) {
  if (s.has("sat")) return half_function<Saturated<F>, sources>(s);
  return s.has("relu") ? half_function<Rectified<F>, sources>(s) : half_function<F, sources>(s);
}

template <typename F>
Execute half_extreme(const Statement& s) {
  if (s.has("xorsign")) return s.has("NaN") ? half_function<XorSign<OrNan<F>>, 2>(s) : half_function<XorSign<F>, 2>(s);
  return s.has("NaN") ? half_function<OrNan<F>, 2>(s) : half_function<F, 2>(s);
}

Execute half_base(const Statement& s, int& sources) {
  sources = 1;
  if (s.base == "neg") return half_function<Negate, 1>(s);
  if (s.base == "abs") return half_function<Absolute, 1>(s);
  if (s.base == "ex2") return half_function<Exponential2, 1>(s);
  if (s.base == "tanh") return half_function<HyperbolicTangent, 1>(s);
  sources = 2;
  if (s.base == "add") return half_arithmetic<Add, 2>(s);
  if (s.base == "sub") return half_arithmetic<Subtract, 2>(s);
  if (s.base == "mul") return half_arithmetic<Multiply, 2>(s);
  if (s.base == "min") return half_extreme<Least>(s);
  if (s.base == "max") return half_extreme<Most>(s);
  sources = 3;
  return s.base == "fma" ? half_arithmetic<FusedToOdd, 3>(s) : nullptr;
}

/// set.lt.f16x2.f16x2 d, a, b: one or zero, or all bits or none, for each of the two.
template <typename H, typename F>
void set_halves(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]);
  each(mask, [&](int lane) {
    u32 all = 0;
    for (int shift = 0; shift < 32; shift += 16)
      if (F()(H::widen(static_cast<u16>(a[lane] >> shift)), H::widen(static_cast<u16>(b[lane] >> shift))))
        all |= static_cast<u32>(i.number) << shift;
    d[lane] = all;
  });
}

template <typename H>
Execute set_by(std::string_view how) {
  if (how == "eq") return set_halves<H, Equal>;
  if (how == "ne") return set_halves<H, Unequal>;
  if (how == "lt") return set_halves<H, Less>;
  if (how == "le") return set_halves<H, LessEqual>;
  if (how == "gt") return set_halves<H, Greater>;
  if (how == "ge") return set_halves<H, GreaterEqual>;
  if (how == "equ") return set_halves<H, Unordered<Equal>>;
  if (how == "neu") return set_halves<H, Unordered<Unequal>>;
  if (how == "ltu") return set_halves<H, Unordered<Less>>;
  if (how == "leu") return set_halves<H, Unordered<LessEqual>>;
  if (how == "gtu") return set_halves<H, Unordered<Greater>>;
  if (how == "geu") return set_halves<H, Unordered<GreaterEqual>>;
  if (how == "num") return set_halves<H, BothNumbers>;
  return how == "nan" ? set_halves<H, SomeNan> : nullptr;
}

}  // namespace

bool decode_halves(Reader& reader, const Statement& s, Instruction& i) {
  static constexpr std::string_view types[] = {"f16", "f16x2", "bf16", "bf16x2"};
  static constexpr std::string_view words[] = {"rn", "ftz", "sat", "relu", "NaN", "xorsign", "abs", "approx"};
  if (std::find(std::begin(types), std::end(types), s.type()) == std::end(types)) return false;
  const Type type{'b', s.type().ends_with("x2") ? 4 : 2};
  const auto operands = [&](int sources) {
    if (s.operands.size() != static_cast<std::size_t>(sources) + 1) return false;
    i.at[0] = reader.reg(s.operands[0]).offset;
    for (int n = 1; n <= sources; ++n) i.at[n] = reader.source(s.operands[n], type);
    return true;
  };
  if (s.base == "set" && type.bytes == 4 && s.modifiers.size() == 3) {
    const std::string_view to = s.modifiers[1];
    i.execute = s.type() == "f16x2" ? set_by<Half>(s.modifiers[0]) : set_by<Bfloat>(s.modifiers[0]);
    i.number = to == "f16x2" ? Half::one : to == "bf16x2" ? Bfloat::one : 0xffff;
    return i.execute != nullptr && operands(2) && (to == s.type() || to == "u32" || to == "s32");
  }
  for (std::size_t n = 0; n + 1 < s.modifiers.size(); ++n)
    if (std::find(std::begin(words), std::end(words), s.modifiers[n]) == std::end(words)) return false;
  int sources = 0;
  i.execute = half_base(s, sources);
  i.form = s.has("ftz") ? 1 : 0;
  return i.execute != nullptr && operands(sources);
}

}  // namespace emulator
