// Arithmetic of whole numbers and of predicates, moves and choices.
#include <algorithm>
#include <type_traits>

#include "lanewise.h"

namespace emulator {
namespace {

/// Two halves make a product twice as wide.
template <typename T, typename Wide, bool adds>
void wide(Warp& warp, const Instruction& i, Mask mask) {
  Wide* const d = warp.at<Wide>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  const Wide* const c = adds ? warp.at<Wide>(i.at[3]) : nullptr;
  each(mask, [&](int lane) {
    const Wide product = static_cast<Wide>(a[lane]) * static_cast<Wide>(b[lane]);
    d[lane] = adds ? product + c[lane] : product;
  });
}

template <typename T>
void select(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  const Mask p = warp.predicate(i.at[3]);
  each(mask, [&](int lane) { d[lane] = p >> lane & 1 ? a[lane] : b[lane]; });
}

template <typename F>
Execute shift(Type t) {
  const bool s = t.kind == 's';
  switch (t.bytes) {
    case 2: return s ? binary<s16, F, u32> : binary<u16, F, u32>;
    case 4: return s ? binary<s32, F, u32> : binary<u32, F, u32>;
    case 8: return s ? binary<s64, F, u32> : binary<u64, F, u32>;
  }
  throw Unsupported("shifts of this width");
}

/// Predicates are masks: `form` is the operation.
void of_predicates(Warp& warp, const Instruction& i, Mask mask) {
  const Mask a = warp.predicate(i.at[1]);
  const Mask b = i.form == '~' || i.form == '=' ? 0 : warp.predicate(i.at[2]);
  const Mask found = i.form == '&' ? a & b : i.form == '|' ? a | b : i.form == '^' ? a ^ b : i.form == '~' ? ~a : a;
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | (found & mask);
}

void set_predicate(Warp& warp, const Instruction& i, Mask mask) {
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | (i.number != 0 ? mask : 0);
}

/// A register that is others side by side, the lowest first, and back.
template <typename Part, typename Whole>
void pack(Warp& warp, const Instruction& i, Mask mask) {
  Whole* const d = warp.at<Whole>(i.at[0]);
  each(mask, [&](int lane) {
    Whole whole = 0;
    for (std::size_t n = i.list.size(); n-- > 0;)
      whole = static_cast<Whole>(whole << 8 * sizeof(Part)) | warp.at<Part>(i.list[n])[lane];
    d[lane] = whole;
  });
}

template <typename Part, typename Whole>
void unpack(Warp& warp, const Instruction& i, Mask mask) {
  const Whole* const x = warp.at<Whole>(i.at[0]);
  each(mask, [&](int lane) {
    Whole whole = x[lane];
    for (const std::uint32_t to : i.list) {
      warp.at<Part>(to)[lane] = static_cast<Part>(whole);
      whole = static_cast<Whole>(whole >> 8 * sizeof(Part));
    }
  });
}

bool decode_move(Reader& reader, const Statement& s, Instruction& i, Type type) {
  if (type.kind == 'p') {
    i.at[0] = reader.predicate(s.operands.at(0));
    const std::string_view from = s.operands.at(1);
    if (std::isdigit(static_cast<unsigned char>(from[0])) || from[0] == '-') {
      i.number = reader.integer(from);
      i.execute = set_predicate;
    } else {
      i.at[1] = reader.predicate(from);
      i.form = '=';
      i.execute = of_predicates;
    }
    return true;
  }
  const bool packs = s.operands.at(1)[0] == '{', unpacks = s.operands.at(0)[0] == '{';
  if (type.bytes > 8) return false;
  if (packs || unpacks) {
    const auto parts = elements(s.operands[packs ? 1 : 0]);
    const int bytes = type.bytes / static_cast<int>(parts.size());
    if (bytes * static_cast<int>(parts.size()) != type.bytes || bytes < 2) throw Unsupported("registers of these parts");
    for (const auto part : parts) i.list.push_back(reader.source(part, {'b', bytes}));
    i.at[0] = packs ? reader.reg(s.operands[0]).offset : reader.source(s.operands[1], type);
    if (type.bytes == 4)
      i.execute = packs ? pack<u16, u32> : unpack<u16, u32>;
    else if (bytes == 2)
      i.execute = packs ? pack<u16, u64> : unpack<u16, u64>;
    else
      i.execute = packs ? pack<u32, u64> : unpack<u32, u64>;
    return true;
  }
  i.at[0] = reader.reg(s.operands[0]).offset;
  i.at[1] = reader.source(s.operands[1], type);
  i.execute = one::bits<Move>(type);
  return true;
}

/// A sum that stays at the greatest number, or the least, rather than wrapping around.
struct AddToLimit { s32 operator()(s32 a, s32 b) const {
  return static_cast<s32>(std::clamp<s64>(s64{a} + b, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max())); } };
struct SubtractToLimit { s32 operator()(s32 a, s32 b) const {
  return static_cast<s32>(std::clamp<s64>(s64{a} - b, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max())); } };
struct MultiplyHighAdd { template <typename T> T operator()(T a, T b, T c) const { return Add()(MultiplyHigh()(a, b), c); } };

Execute whole_function(const Statement& s, Type t, int& sources) {
  const std::string_view base = s.base;
  const bool plain = s.modifiers.size() == 1, halves = s.modifiers.size() == 2;
  const bool low = halves && s.has("lo"), high = halves && s.has("hi");
  sources = 2;
  if (s.has("sat")) {
    if (s.type() != "s32" || s.modifiers.size() != 2) return nullptr;
    return base == "add" ? binary<s32, AddToLimit> : base == "sub" ? binary<s32, SubtractToLimit> : nullptr;
  }
  if (base == "mul" && low) return two::bits<Multiply>(t);
  if (base == "mul" && high) return two::whole<MultiplyHigh>(t);
  sources = 3;
  if (base == "mad" && low) return three::bits<MultiplyAdd>(t);
  if (base == "mad" && high) return three::whole<MultiplyHighAdd>(t);
  if (!plain) return nullptr;
  sources = 2;
  if (base == "add") return two::bits<Add>(t);
  if (base == "sub") return two::bits<Subtract>(t);
  if (base == "div") return two::whole<Divide>(t);
  if (base == "rem") return two::whole<Remainder>(t);
  if (base == "and") return two::bits<And>(t);
  if (base == "or") return two::bits<Or>(t);
  if (base == "xor") return two::bits<Xor>(t);
  if (base == "min") return two::whole<Least>(t);
  if (base == "max") return two::whole<Most>(t);
  sources = 1;
  if (base == "not") return one::bits<Not>(t);
  if (base == "neg") return one::bits<Negate>(t);
  return base == "abs" ? one::whole<Absolute>(t) : nullptr;
}

}  // namespace

bool decode_arithmetic(Reader& reader, const Statement& s, Instruction& i) {
  static constexpr std::string_view bases[] = {"mov", "selp", "shl", "shr", "add", "sub", "mul", "div", "rem", "min",
                                               "max", "and",  "or",  "xor", "not", "neg", "abs", "mad"};
  if (s.modifiers.empty() || std::find(std::begin(bases), std::end(bases), s.base) == std::end(bases)) return false;
  const auto sources = [&](int first, int count, Type type) {
    for (int n = 0; n < count; ++n) i.at[first + n] = reader.source(s.operands.at(first + n), type);
  };
  const std::string_view base = s.base;
  const Type type = type_of(s.type());
  if (base == "mov") return decode_move(reader, s, i, type);
  if (type.kind == 'p') {
    if (base != "and" && base != "or" && base != "xor" && base != "not") return false;
    // Nvcc also writes the opposite of a predicate as one that differs from -1.
    const bool opposite = base == "not" || (base == "xor" && s.operands.at(2) == "-1");
    i.form = base == "and" ? '&' : base == "or" ? '|' : opposite ? '~' : '^';
    for (std::size_t n = 0; n < (opposite ? 2 : s.operands.size()); ++n) i.at[n] = reader.predicate(s.operands[n]);
    i.execute = of_predicates;
    return true;
  }
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  if (base == "selp") {
    sources(1, 2, type);
    i.at[3] = reader.predicate(s.operands.at(3));
    i.execute = type.bytes == 2 ? select<u16> : type.bytes == 4 ? select<u32> : select<u64>;
  } else if (base == "shl" || base == "shr") {
    i.at[1] = reader.source(s.operands.at(1), type);
    i.at[2] = reader.source(s.operands.at(2), {'u', 4});
    i.execute = base == "shl" ? shift<ShiftLeft>(type) : shift<ShiftRight>(type);
  } else if (type.kind == 'f') {
    return false;
  } else if ((base == "mul" || base == "mad") && s.has("wide") && s.modifiers.size() == 2) {
    sources(1, 2, type);
    const bool adds = base == "mad";
    if (adds) i.at[3] = reader.source(s.operands.at(3), {type.kind, 2 * type.bytes});
    const bool sign = type.kind == 's';
    if (type.bytes == 2)
      i.execute = sign ? (adds ? wide<s16, s32, true> : wide<s16, s32, false>)
                       : (adds ? wide<u16, u32, true> : wide<u16, u32, false>);
    else
      i.execute = sign ? (adds ? wide<s32, s64, true> : wide<s32, s64, false>)
                       : (adds ? wide<u32, u64, true> : wide<u32, u64, false>);
  } else {
    int count = 0;
    i.execute = whole_function(s, type, count);
    if (i.execute != nullptr) sources(1, count, type);
  }
  return i.execute != nullptr;
}

}  // namespace emulator
