// Comparisons, and what chooses by one.
#include <algorithm>

#include "half.h"
#include "lanewise.h"

namespace emulator {
namespace {

template <typename H, typename F>
void compare_halves(Warp& warp, const Instruction& i, Mask mask) {
  const u16 *const a = warp.at<u16>(i.at[1]), *const b = warp.at<u16>(i.at[2]);
  Mask found = 0;
  each(mask, [&](int lane) { found |= static_cast<Mask>(F()(H::widen(a[lane]), H::widen(b[lane]))) << lane; });
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | (found & mask);
}

/// Of floats, by the type's word; `flushes`: fp32 below the least normal number is zero.
template <typename F>
Execute of_floats(std::string_view type, bool flushes) {
  if (type == "f16") return compare_halves<Half, F>;
  if (type == "bf16") return compare_halves<Bfloat, F>;
  return flushes && type == "f32" ? compare_lanes<float, Flushed<F>> : test::real<F>(type_of(type));
}

bool is_float(std::string_view type) { return type == "bf16" || type_of(type).kind == 'f'; }

template <typename F>
Execute of_bits(std::string_view type, bool flushes) {
  return is_float(type) ? of_floats<F>(type, flushes) : test::bits<F>(type_of(type));
}

template <typename F>
Execute compared(std::string_view type, bool flushes) {
  return is_float(type) ? of_floats<F>(type, flushes) : test::whole<F>(type_of(type));
}

Execute comparison(std::string_view how, std::string_view type, bool flushes) {
  if (how == "eq") return of_bits<Equal>(type, flushes);
  if (how == "ne") return of_bits<Unequal>(type, flushes);
  if (how == "lt" || how == "lo") return compared<Less>(type, flushes);
  if (how == "le" || how == "ls") return compared<LessEqual>(type, flushes);
  if (how == "gt" || how == "hi") return compared<Greater>(type, flushes);
  if (how == "ge" || how == "hs") return compared<GreaterEqual>(type, flushes);
  if (how == "equ") return of_floats<Unordered<Equal>>(type, flushes);
  if (how == "neu") return of_floats<Unordered<Unequal>>(type, flushes);
  if (how == "ltu") return of_floats<Unordered<Less>>(type, flushes);
  if (how == "leu") return of_floats<Unordered<LessEqual>>(type, flushes);
  if (how == "gtu") return of_floats<Unordered<Greater>>(type, flushes);
  if (how == "geu") return of_floats<Unordered<GreaterEqual>>(type, flushes);
  if (how == "num") return of_floats<BothNumbers>(type, flushes);
  if (how == "nan") return of_floats<SomeNan>(type, flushes);
  throw Unsupported("the comparison " + std::string(how));
}

/// What `inner` finds, with another predicate: `list` holds that, whether it is negated, and where the opposite goes.
void combined(Warp& warp, const Instruction& i, Mask mask) {
  const std::uint32_t other = i.list[0], opposite = i.list[2];
  const Mask c = i.list[1] != 0 ? ~warp.predicate(other) : warp.predicate(other);
  i.inner(warp, i, mask);
  Mask& p = warp.predicate(i.at[0]);
  const auto with = [&](Mask found) {
    return i.form == '&' ? found & c : i.form == '|' ? found | c : i.form == '^' ? found ^ c : found;
  };
  const Mask found = p;
  p = (p & ~mask) | (with(found) & mask);
  if (opposite == i.at[0]) return;
  Mask& q = warp.predicate(opposite);
  q = (q & ~mask) | (with(~found) & mask);
}

/// A number for each lane of which a comparison is true, zero for the others.
template <typename T>
void as_number(Warp& warp, const Instruction& i, Mask mask) {
  i.inner(warp, i, mask);
  const Mask p = warp.predicate(i.at[0]);
  T* const d = warp.at<T>(i.at[3]);
  each(mask, [&](int lane) { d[lane] = p >> lane & 1 ? static_cast<T>(i.number) : T(0); });
}

/// setp.lt.and.f32 p|q, a, b, !c;
bool decode_setp(Reader& reader, const Statement& s, Instruction& i) {
  const bool flushes = s.has("ftz"), boolean = s.has("and") || s.has("or") || s.has("xor");
  if (s.modifiers.size() != 2u + flushes + boolean || s.operands.size() != 3u + boolean) return false;
  const std::string_view to = s.operands[0];
  const std::size_t bar = to.find('|');
  const std::string_view type = s.type(), first = trimmed(to.substr(0, bar));
  const Type operands = type == "f16" ? Type{'b', 2} : type_of(type);
  i.at[0] = reader.predicate(first);
  for (int n = 1; n <= 2; ++n) i.at[n] = reader.source(s.operands[n], operands);
  i.execute = comparison(s.modifiers[0], type, flushes);
  if (!boolean && bar == std::string_view::npos) return true;
  std::string_view other = boolean ? s.operands[3] : first;
  const bool negated = other[0] == '!';
  if (negated) other.remove_prefix(1);
  i.list = {reader.predicate(other), negated ? 1u : 0u,
            bar == std::string_view::npos ? i.at[0] : reader.predicate(trimmed(to.substr(bar + 1)))};
  i.form = s.has("and") ? '&' : s.has("or") ? '|' : s.has("xor") ? '^' : '=';
  i.inner = i.execute;
  i.execute = combined;
  return true;
}

/// set.lt.u32.f32 d, a, b: all bits, or one as a float.
bool decode_set(Reader& reader, const Statement& s, Instruction& i) {
  const bool flushes = s.has("ftz");
  if (s.modifiers.size() != 3u + flushes || s.operands.size() != 3) return false;
  const std::string_view from = s.type(), to = s.modifiers[s.modifiers.size() - 2];
  if (from == "f16x2" || from == "bf16x2") return false;
  const Type operands = from == "f16" ? Type{'b', 2} : type_of(from);
  i.at[0] = reader.scratch_predicate();
  i.at[3] = reader.reg(s.operands[0]).offset;
  for (int n = 1; n <= 2; ++n) i.at[n] = reader.source(s.operands[n], operands);
  i.inner = comparison(s.modifiers[0], from, flushes);
  i.number = to == "f16" ? Half::one : to == "bf16" ? Bfloat::one : to == "f32" ? 0x3f800000 : -1;
  i.execute = to == "f16" || to == "bf16" ? as_number<u16> : as_number<u32>;
  return to == "f16" || to == "bf16" || type_of(to).bytes == 4;
}

/// a where c is not negative, b otherwise.
template <typename T, typename C>
void by_sign(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T *const a = warp.at<T>(i.at[1]), *const b = warp.at<T>(i.at[2]);
  const C* const c = warp.at<C>(i.at[3]);
  each(mask, [&](int lane) { d[lane] = c[lane] >= C(0) ? a[lane] : b[lane]; });
}

bool decode_slct(Reader& reader, const Statement& s, Instruction& i) {
  if (s.modifiers.size() != 2) return false;
  const Type type = type_of(s.modifiers[0]), sign = type_of(s.modifiers[1]);
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  for (int n = 1; n <= 2; ++n) i.at[n] = reader.source(s.operands.at(n), type);
  i.at[3] = reader.source(s.operands.at(3), sign);
  if (sign.kind == 'f')
    i.execute = type.bytes == 2 ? by_sign<u16, float> : type.bytes == 4 ? by_sign<u32, float> : by_sign<u64, float>;
  else
    i.execute = type.bytes == 2 ? by_sign<u16, s32> : type.bytes == 4 ? by_sign<u32, s32> : by_sign<u64, s32>;
  return sign.bytes == 4;
}

struct Finite { template <typename T> bool operator()(T a) const { return std::isfinite(a); } };
struct Infinite { template <typename T> bool operator()(T a) const { return std::isinf(a); } };
struct Number { template <typename T> bool operator()(T a) const { return !std::isnan(a); } };
struct NotANumber { template <typename T> bool operator()(T a) const { return std::isnan(a); } };
struct Normal { template <typename T> bool operator()(T a) const { return std::isnormal(a); } };
struct Subnormal { template <typename T> bool operator()(T a) const { return std::fpclassify(a) == FP_SUBNORMAL; } };

template <typename T, typename F>
void tested(Warp& warp, const Instruction& i, Mask mask) {
  const T* const a = warp.at<T>(i.at[1]);
  Mask found = 0;
  each(mask, [&](int lane) { found |= static_cast<Mask>(F()(a[lane])) << lane; });
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | (found & mask);
}

template <typename F>
Execute tested_as(Type type) { return type.bytes == 4 ? tested<float, F> : tested<double, F>; }

bool decode_testp(Reader& reader, const Statement& s, Instruction& i) {
  const std::string_view what = s.modifiers.at(0);
  const Type type = type_of(s.type());
  if (s.modifiers.size() != 2 || type.kind != 'f' || type.bytes == 2) return false;
  i.at[0] = reader.predicate(s.operands.at(0));
  i.at[1] = reader.source(s.operands.at(1), type);
  i.execute = what == "finite"       ? tested_as<Finite>(type)
              : what == "infinite"   ? tested_as<Infinite>(type)
              : what == "number"     ? tested_as<Number>(type)
              : what == "notanumber" ? tested_as<NotANumber>(type)
              : what == "normal"     ? tested_as<Normal>(type)
              : what == "subnormal"  ? tested_as<Subnormal>(type)
                                     : nullptr;
  return i.execute != nullptr;
}

}  // namespace

bool decode_comparisons(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "setp") return decode_setp(reader, s, i);
  if (s.base == "set") return decode_set(reader, s, i);
  if (s.base == "slct") return decode_slct(reader, s, i);
  if (s.base == "testp") return decode_testp(reader, s, i);
  return false;
}

}  // namespace emulator
