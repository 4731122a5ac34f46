// Instructions that compute registers from registers.
#include <algorithm>
#include <type_traits>

#include "decode.h"
#include "operations.h"

namespace emulator {
namespace {

template <typename T, typename F>
void unary(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = F()(a[lane]); });
}

template <typename T, typename F, typename B = T>
void binary(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const B* const b = warp.at<B>(i.at[2]);
  each(mask, [&](int lane) { d[lane] = F()(a[lane], b[lane]); });
}

template <typename T, typename F>
void ternary(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  const T* const c = warp.at<T>(i.at[3]);
  each(mask, [&](int lane) { d[lane] = F()(a[lane], b[lane], c[lane]); });
}

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

template <typename T, typename F>
void compare(Warp& warp, const Instruction& i, Mask mask) {
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  Mask found = 0;
  each(mask, [&](int lane) { found |= static_cast<Mask>(F()(a[lane], b[lane])) << lane; });
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | (found & mask);
}

template <typename T>
void select(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const T* const b = warp.at<T>(i.at[2]);
  const Mask p = warp.predicate(i.at[3]);
  each(mask, [&](int lane) { d[lane] = p >> lane & 1 ? a[lane] : b[lane]; });
}

/// Picks an instance by type. `whole`: signed and unsigned whole numbers, `bits`: unsigned alone, `real`: floats.
#define INSTANCES(...) \
  template <typename F> \
  Execute whole(Type t) { \
    const bool s = t.kind == 's'; \
    switch (t.bytes) { \
      case 2: return s ? __VA_ARGS__<s16, F> : __VA_ARGS__<u16, F>; \
      case 4: return s ? __VA_ARGS__<s32, F> : __VA_ARGS__<u32, F>; \
      case 8: return s ? __VA_ARGS__<s64, F> : __VA_ARGS__<u64, F>; \
    } \
    throw Unsupported("whole numbers of this width"); \
  } \
  template <typename F> \
  Execute any(Type t) { \
    if (t.kind == 'f' && t.bytes == 4) return __VA_ARGS__<float, F>; \
    if (t.kind == 'f' && t.bytes == 8) return __VA_ARGS__<double, F>; \
    if (t.kind == 'f') throw Unsupported("floats of this width"); \
    return whole<F>(t); \
  }
namespace one { INSTANCES(unary) }
namespace two { INSTANCES(binary) }
namespace three { INSTANCES(ternary) }
namespace test { INSTANCES(compare) }
#undef INSTANCES

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

Execute comparison(std::string_view how, Type t) {
  if (how == "eq") return test::any<Equal>(t);
  if (how == "ne") return test::any<Unequal>(t);
  if (how == "lt" || how == "lo") return test::any<Less>(t);
  if (how == "le" || how == "ls") return test::any<LessEqual>(t);
  if (how == "gt" || how == "hi") return test::any<Greater>(t);
  if (how == "ge" || how == "hs") return test::any<GreaterEqual>(t);
  if (how == "equ") return test::any<Unordered<Equal>>(t);
  if (how == "neu") return test::any<Unordered<Unequal>>(t);
  if (how == "ltu") return test::any<Unordered<Less>>(t);
  if (how == "leu") return test::any<Unordered<LessEqual>>(t);
  if (how == "gtu") return test::any<Unordered<Greater>>(t);
  if (how == "geu") return test::any<Unordered<GreaterEqual>>(t);
  if (how == "num") return test::any<BothNumbers>(t);
  if (how == "nan") return test::any<SomeNan>(t);
  throw Unsupported("the comparison " + std::string(how));
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

/// Bytes of a and b, four bits each of the third to choose one; its highest repeats the byte's sign.
void permute(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    const u64 both = static_cast<u64>(b[lane]) << 32 | a[lane];
    u32 found = 0;
    for (int byte = 0; byte < 4; ++byte) {
      const u32 choice = c[lane] >> 4 * byte & 15;
      const u32 value = static_cast<u32>(both >> 8 * (choice & 7)) & 255;
      found |= (choice & 8 ? (value & 128 ? 255u : 0u) : value) << 8 * byte;
    }
    d[lane] = found;
  });
}

template <typename T>
void insert_field(Warp& warp, const Instruction& i, Mask mask) {
  constexpr u32 bits = 8 * sizeof(T);
  T* const d = warp.at<T>(i.at[0]);
  const T *const a = warp.at<T>(i.at[1]), *const b = warp.at<T>(i.at[2]);
  const u32 *const c = warp.at<u32>(i.at[3]), *const n = warp.at<u32>(i.at[4]);
  each(mask, [&](int lane) {
    const u32 position = c[lane] & 255, length = n[lane] & 255;
    if (position >= bits) {
      d[lane] = b[lane];
      return;
    }
    const T ones = length >= bits ? ~T{0} : static_cast<T>((T{1} << length) - 1);
    const T field = static_cast<T>(ones << position);
    d[lane] = static_cast<T>((b[lane] & ~field) | (static_cast<T>(a[lane] << position) & field));
  });
}

template <typename T>
void extract_field(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const u32 *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    const u32 position = b[lane] & 255, length = c[lane] & 255;
    s64 value = static_cast<s64>(a[lane]) >> std::min(position, 63u);
    if (length < 32) {
      value &= (1ll << length) - 1;
      if (std::is_signed_v<T> && length > 0 && value >> (length - 1) & 1) value -= 1ll << length;
    }
    d[lane] = length == 0 ? T(0) : static_cast<T>(value);
  });
}

/// Any function of three bits, by its table.
void logic(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    u32 found = 0;
    for (int row = 0; row < 8; ++row)
      if (i.number >> row & 1)
        found |= (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
    d[lane] = found;
  });
}

/// Two signed 16-bit numbers times two of four unsigned bytes, and c.
void dot2(Warp& warp, const Instruction& i, Mask mask) {
  s32* const d = warp.at<s32>(i.at[0]);
  const s32* const a = warp.at<s32>(i.at[1]);
  const u32* const b = warp.at<u32>(i.at[2]);
  const s32* const c = warp.at<s32>(i.at[3]);
  each(mask, [&](int lane) {
    const u32 bytes = b[lane] >> i.number;
    const u32 product = static_cast<u32>(static_cast<s16>(a[lane]) * static_cast<s32>(bytes & 255)) +
                        static_cast<u32>((a[lane] >> 16) * static_cast<s32>(bytes >> 8 & 255));
    d[lane] = static_cast<s32>(static_cast<u32>(c[lane]) + product);
  });
}

/// Registers that are two others side by side, and back.
template <typename Half, typename Whole>
void pack(Warp& warp, const Instruction& i, Mask mask) {
  Whole* const d = warp.at<Whole>(i.at[0]);
  const Half *const a = warp.at<Half>(i.list[0]), *const b = warp.at<Half>(i.list[1]);
  each(mask, [&](int lane) {
    d[lane] = static_cast<Whole>(static_cast<Whole>(b[lane]) << 8 * sizeof(Half) | a[lane]);
  });
}

template <typename Half, typename Whole>
void unpack(Warp& warp, const Instruction& i, Mask mask) {
  Half *const a = warp.at<Half>(i.list[0]), *const b = warp.at<Half>(i.list[1]);
  const Whole* const x = warp.at<Whole>(i.at[0]);
  each(mask, [&](int lane) {
    const Whole whole = x[lane];
    a[lane] = static_cast<Half>(whole);
    b[lane] = static_cast<Half>(whole >> 8 * sizeof(Half));
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
    if (parts.size() != 2) throw Unsupported("registers of more than two parts");
    for (const auto part : parts) i.list.push_back(reader.source(part, {'b', type.bytes / 2}));
    i.at[0] = packs ? reader.reg(s.operands[0]).offset : reader.source(s.operands[1], type);
    i.execute = type.bytes == 4 ? (packs ? pack<u16, u32> : unpack<u16, u32>) : (packs ? pack<u32, u64> : unpack<u32, u64>);
    return true;
  }
  i.at[0] = reader.reg(s.operands[0]).offset;
  i.at[1] = reader.source(s.operands[1], type);
  i.execute = one::any<Move>({'b', type.bytes});
  return true;
}

Execute plain_function(const Statement& s, Type t, int& sources) {
  const std::string_view base = s.base;
  const bool real = t.kind == 'f';
  sources = 2;
  if (base == "add") return s.has("rz") ? binary<float, AddTowardsZero> : two::any<Add>(t);
  if (base == "sub") return two::any<Subtract>(t);
  if (base == "mul" && (real || s.has("lo"))) return two::any<Multiply>(t);
  if (base == "mul" && s.has("hi")) return two::whole<MultiplyHigh>(t);
  if (base == "div") return s.has("ftz") ? binary<float, FlushedQuotient> : two::any<Divide>(t);
  if (base == "rem") return two::whole<Remainder>(t);
  if (base == "and") return two::whole<And>(t);
  if (base == "or") return two::whole<Or>(t);
  if (base == "xor") return two::whole<Xor>(t);
  if (base == "min" && s.has("NaN") && t.bytes == 4) return binary<float, LeastOrNan>;
  if (base == "max" && s.has("NaN") && t.bytes == 4) return binary<float, MostOrNan>;
  if (base == "min") return two::any<Least>(t);
  if (base == "max") return two::any<Most>(t);
  if (base == "copysign") return binary<float, CopySign>;
  sources = 1;
  if (base == "not") return one::whole<Not>(t);
  if (base == "neg") return one::any<Negate>(t);
  if (base == "abs") return one::any<Absolute>(t);
  if (base == "popc") return unary<u32, Ones>;
  if (base == "clz") return unary<u32, LeadingZeros>;
  if (real && t.bytes == 4) {
    const bool flush = s.has("ftz");
    if (base == "ex2") return flush ? unary<float, Flushed<Exponential2>> : unary<float, Exponential2>;
    if (base == "lg2") return flush ? unary<float, Flushed<Logarithm2>> : unary<float, Logarithm2>;
    if (base == "rcp") return flush ? unary<float, Flushed<Inverse>> : unary<float, Inverse>;
    if (base == "sqrt") return flush ? unary<float, Flushed<Root>> : unary<float, Root>;
    if (base == "rsqrt") return flush ? unary<float, Flushed<InverseRoot>> : unary<float, InverseRoot>;
    if (base == "tanh") return unary<float, HyperbolicTangent>;
  }
  sources = 3;
  if (base == "fma" && s.has("rm")) return ternary<float, FusedDown>;
  if (base == "fma" && real && t.bytes == 4) return ternary<float, Fused>;
  if (base == "fma" && real && t.bytes == 8) return ternary<double, Fused>;
  if (base == "mad" && s.has("lo") && t.bytes == 4) return ternary<u32, MultiplyAdd>;
  if (base == "mad" && s.has("lo") && t.bytes == 8) return ternary<u64, MultiplyAdd>;
  return nullptr;
}

}  // namespace

bool decode_arithmetic(Reader& reader, const Statement& s, Instruction& i) {
  static constexpr std::string_view elsewhere[] = {"cvt", "cvta", "ld", "st", "bar", "barrier", "shfl", "elect", "mma"};
  if (s.modifiers.empty() || std::find(std::begin(elsewhere), std::end(elsewhere), s.base) != std::end(elsewhere))
    return false;
  const auto sources = [&](int first, int count, Type type) {
    for (int n = 0; n < count; ++n) i.at[first + n] = reader.source(s.operands.at(first + n), type);
  };
  const std::string_view base = s.base;
  if (base == "mov") return decode_move(reader, s, i, type_of(s.type()));
  if (base == "and" || base == "or" || base == "xor" || base == "not") {
    if (s.type() == "pred") {
      i.form = base == "and" ? '&' : base == "or" ? '|' : base == "xor" ? '^' : '~';
      for (std::size_t n = 0; n < s.operands.size(); ++n) i.at[n] = reader.predicate(s.operands[n]);
      i.execute = of_predicates;
      return true;
    }
  }
  if (base == "setp") {
    if (s.modifiers.size() > (s.has("ftz") ? 3u : 2u)) return false;
    const Type type = type_of(s.type());
    i.at[0] = reader.predicate(s.operands.at(0));
    sources(1, 2, type);
    i.execute = comparison(s.modifiers[0], type);
    return true;
  }
  if (base == "dp2a") {
    i.at[0] = reader.reg(s.operands.at(0)).offset;
    sources(1, 3, {'b', 4});
    i.number = s.has("hi") ? 16 : 0;
    i.execute = dot2;
    return s.modifiers.size() == 3 && s.modifiers[1] == "s32" && s.modifiers[2] == "u32";
  }
  static constexpr std::string_view typed[] = {
      "add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "not", "neg", "abs", "popc", "clz", "ex2",
      "lg2", "rcp", "sqrt", "rsqrt", "tanh", "fma", "mad", "copysign", "selp", "shl", "shr", "prmt", "bfi", "bfe", "lop3"};
  if (std::find(std::begin(typed), std::end(typed), base) == std::end(typed)) return false;
  if (s.type() == "f16x2" || s.type() == "f16" || s.type() == "bf16x2" || s.type() == "bf16") return false;
  if (s.has("sat") || s.has("cc")) return false;
  const Type type = type_of(s.type());
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  if (base == "selp") {
    sources(1, 2, type);
    i.at[3] = reader.predicate(s.operands.at(3));
    i.execute = type.bytes == 2 ? select<u16> : type.bytes == 4 ? select<u32> : select<u64>;
  } else if (base == "shl" || base == "shr") {
    i.at[1] = reader.source(s.operands.at(1), type);
    i.at[2] = reader.source(s.operands.at(2), {'u', 4});
    i.execute = base == "shl" ? shift<ShiftLeft>(type) : shift<ShiftRight>(type);
  } else if ((base == "mul" || base == "mad") && s.has("wide")) {
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
  } else if (base == "prmt") {
    sources(1, 3, {'b', 4});
    i.execute = permute;
    return s.modifiers.size() == 1;
  } else if (base == "bfi") {
    sources(1, 2, type);
    i.at[3] = reader.source(s.operands.at(3), {'b', 4});
    i.at[4] = reader.source(s.operands.at(4), {'b', 4});
    i.execute = type.bytes == 8 ? insert_field<u64> : insert_field<u32>;
  } else if (base == "bfe") {
    sources(1, 3, type);
    i.execute = type.kind == 's' ? extract_field<s32> : extract_field<u32>;
    return type.bytes == 4;
  } else if (base == "lop3") {
    sources(1, 3, {'b', 4});
    i.number = reader.integer(s.operands.at(4));
    i.execute = logic;
  } else {
    const bool directed = s.has("rz") || s.has("rm") || s.has("rp");
    const bool known = type.kind == 'f' && type.bytes == 4 &&
                       ((base == "add" && s.has("rz")) || (base == "fma" && s.has("rm")));
    static constexpr std::string_view flush[] = {"div", "ex2", "lg2", "rcp", "sqrt", "rsqrt"};
    const bool flushes = std::find(std::begin(flush), std::end(flush), base) != std::end(flush);
    if ((directed && !known) || s.has("xorsign") || s.has("relu") || (s.has("ftz") && !flushes)) return false;
    if ((base == "popc" || base == "clz" || base == "copysign") && type.bytes != 4) return false;
    int count = 0;
    i.execute = plain_function(s, type, count);
    if (i.execute != nullptr) sources(1, count, type);
  }
  return i.execute != nullptr;
}

}  // namespace emulator
