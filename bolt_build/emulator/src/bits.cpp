// Bits of whole numbers: moved, counted, chosen; and sums of products of a register's bytes.
#include <algorithm>

#include "lanewise.h"

namespace emulator {
namespace {

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

/// Bits from a position on; those beyond the highest are its sign, or zero.
template <typename T>
void extract_field(Warp& warp, const Instruction& i, Mask mask) {
  constexpr u32 bits = 8 * sizeof(T);
  T* const d = warp.at<T>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  const u32 *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    const u32 position = b[lane] & 255, length = c[lane] & 255;
    const T sign = static_cast<T>(a[lane] >> (std::min(std::max(position + length, 1u), bits) - 1) & 1);
    T found = 0;
    for (u32 bit = 0; bit < bits; ++bit) {
      const u32 at = position + bit;
      const T one = bit < length && at < bits ? static_cast<T>(a[lane] >> at & 1) : std::is_signed_v<T> && length > 0 ? sign : T(0);
      found = static_cast<T>(found | static_cast<T>(static_cast<std::make_unsigned_t<T>>(one & 1) << bit));
    }
    d[lane] = found;
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

/// A shift of two registers side by side; `wrap`: by the lowest five bits, else by 32 at most.
template <bool left, bool wrap>
void funnel(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    const u64 both = static_cast<u64>(b[lane]) << 32 | a[lane];
    const u32 count = wrap ? c[lane] & 31 : std::min(c[lane], 32u);
    d[lane] = static_cast<u32>(left ? both << count >> 32 : both >> count);
  });
}

template <typename T, typename F>
void counted(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const T* const a = warp.at<T>(i.at[1]);
  each(mask, [&](int lane) { d[lane] = static_cast<u32>(F()(a[lane])); });
}

struct Ones { template <typename T> int operator()(T a) const { return std::popcount(a); } };
struct LeadingZeros { template <typename T> int operator()(T a) const { return std::countl_zero(a); } };
/// The place of the highest bit that is no sign, ~0 where there is none; or how far it is from the top.
template <bool shift> struct HighestBit { template <typename T> u32 operator()(T a) const {
  using Whole = std::make_unsigned_t<T>;
  const Whole own = static_cast<Whole>(a < 0 ? ~a : a);
  const u32 zeros = static_cast<u32>(std::countl_zero(own));
  return own == 0 ? ~0u : shift ? zeros : static_cast<u32>(8 * sizeof(T)) - 1 - zeros; } };
struct Reversed { template <typename T> T operator()(T a) const {
  T found = 0;
  for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit) found = static_cast<T>(found << 1 | (a >> bit & 1));
  return found; } };
struct IsZero { template <typename T> T operator()(T a) const { return a == 0 ? T(1) : T(0); } };
/// |a - b| + c.
struct SumOfDifference { template <typename T> T operator()(T a, T b, T c) const {
  return Add()(a < b ? Subtract()(b, a) : Subtract()(a, b), c); } };
struct Multiply24 { template <typename T> static s64 whole(T a, T b) {
    const auto own = [](T x) {
      return std::is_signed_v<T> ? s64{static_cast<s32>(static_cast<u32>(x) << 8) >> 8} : s64{static_cast<u32>(x) & 0xffffff};
    };
    return own(a) * own(b); } };
struct Low24 { template <typename T> T operator()(T a, T b) const { return static_cast<T>(Multiply24::whole(a, b)); } };
struct High24 { template <typename T> T operator()(T a, T b) const { return static_cast<T>(Multiply24::whole(a, b) >> 16); } };
template <typename F> struct Plus { template <typename T> T operator()(T a, T b, T c) const { return Add()(F()(a, b), c); } };

/// The `number`th bit of the mask from a place on, upwards or, below zero, downwards; ~0 where there is none.
void find_nth_set(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]);
  const s32* const c = warp.at<s32>(i.at[3]);
  each(mask, [&](int lane) {
    const s64 base = b[lane] & 31, step = c[lane] < 0 ? -1 : 1;
    s64 wanted = c[lane] < 0 ? -static_cast<s64>(c[lane]) : std::max<s64>(c[lane], 1);
    u32 found = ~0u;
    for (s64 place = base; place >= 0 && place < 32 && found == ~0u; place += step) {
      if ((a[lane] >> place & 1) != 0 && --wanted == 0) found = static_cast<u32>(place);
      if (c[lane] == 0) break;
    }
    d[lane] = found;
  });
}

/// `bytes` bits of ones from a place on: bmsk.
void bit_mask(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]);
  each(mask, [&](int lane) {
    const u32 from = i.form != 0 ? a[lane] & 31 : a[lane], count = i.form != 0 ? b[lane] & 31 : std::min(b[lane], 32u);
    d[lane] = from >= 32 ? 0 : static_cast<u32>(((u64{1} << count) - 1) << from);
  });
}

/// Four products of bytes, or two of halves of a with bytes of b, and c. `number`: how far b is shifted first.
template <typename A, typename B>
void dot(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    s64 sum = 0;
    for (u32 part = 0; part < 4 / sizeof(A); ++part)
      sum += s64{static_cast<A>(a[lane] >> 8 * sizeof(A) * part)} * static_cast<B>(b[lane] >> i.number >> 8 * part);
    d[lane] = c[lane] + static_cast<u32>(sum);
  });
}

/// Sixteen bits twice.
template <typename T, typename F>
void of_pairs(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]);
  each(mask, [&](int lane) {
    const auto half = [&](int shift) {
      return static_cast<u32>(static_cast<u16>(F()(static_cast<T>(a[lane] >> shift), static_cast<T>(b[lane] >> shift)))) << shift;
    };
    d[lane] = half(0) | half(16);
  });
}

/// |a - b| of four bytes, and the sum of them to c where `adds`: vabsdiff4, whose registers are of one kind.
template <typename T, bool adds>
void differences(Warp& warp, const Instruction& i, Mask mask) {
  u32* const d = warp.at<u32>(i.at[0]);
  const u32 *const a = warp.at<u32>(i.at[1]), *const b = warp.at<u32>(i.at[2]), *const c = warp.at<u32>(i.at[3]);
  each(mask, [&](int lane) {
    u32 all = 0, sum = c[lane];
    for (int shift = 0; shift < 32; shift += 8) {
      const int apart = std::abs(int{static_cast<T>(a[lane] >> shift)} - int{static_cast<T>(b[lane] >> shift)});
      all |= static_cast<u32>(apart) << shift;
      sum += static_cast<u32>(apart);
    }
    d[lane] = adds ? sum : all;
  });
}

Execute dot_of(const Statement& s) {
  const bool a = s.modifiers[s.modifiers.size() - 2] == "s32", b = s.type() == "s32";
  if (s.base == "dp4a") return a ? (b ? dot<std::int8_t, std::int8_t> : dot<std::int8_t, std::uint8_t>)
                                 : (b ? dot<std::uint8_t, std::int8_t> : dot<std::uint8_t, std::uint8_t>);
  return a ? (b ? dot<s16, std::int8_t> : dot<s16, std::uint8_t>) : (b ? dot<u16, std::int8_t> : dot<u16, std::uint8_t>);
}

/// What reads one register, or several of one width each. `widths` are theirs.
Execute bit_function(const Statement& s, Type t, std::array<int, 4>& widths) {
  const std::string_view base = s.base;
  const bool wide = t.bytes == 8, sign = t.kind == 's';
  const std::size_t words = s.modifiers.size();
  widths = {t.bytes, 0, 0, 0};
  if (base == "popc") return words != 1 ? nullptr : wide ? counted<u64, Ones> : counted<u32, Ones>;
  if (base == "clz") return words != 1 ? nullptr : wide ? counted<u64, LeadingZeros> : counted<u32, LeadingZeros>;
  if (base == "brev") return words != 1 ? nullptr : wide ? unary<u64, Reversed> : unary<u32, Reversed>;
  if (base == "cnot")
    return words != 1 ? nullptr : t.bytes == 2 ? unary<u16, IsZero> : wide ? unary<u64, IsZero> : unary<u32, IsZero>;
  if (base == "bfind") {
    if (words != (s.has("shiftamt") ? 2u : 1u)) return nullptr;
    if (s.has("shiftamt"))
      return wide ? (sign ? counted<s64, HighestBit<true>> : counted<u64, HighestBit<true>>)
                  : (sign ? counted<s32, HighestBit<true>> : counted<u32, HighestBit<true>>);
    return wide ? (sign ? counted<s64, HighestBit<false>> : counted<u64, HighestBit<false>>)
                : (sign ? counted<s32, HighestBit<false>> : counted<u32, HighestBit<false>>);
  }
  widths = {t.bytes, t.bytes, 0, 0};
  if (base == "bmsk") return words == 2 ? bit_mask : nullptr;
  const bool low = s.has("lo");
  if (base == "mul24" && words == 2)
    return sign ? (low ? binary<s32, Low24> : binary<s32, High24>) : (low ? binary<u32, Low24> : binary<u32, High24>);
  widths = {t.bytes, t.bytes, t.bytes, 0};
  if (base == "mad24" && words == 2)
    return sign ? (low ? ternary<s32, Plus<Low24>> : ternary<s32, Plus<High24>>)
                : (low ? ternary<u32, Plus<Low24>> : ternary<u32, Plus<High24>>);
  if (base == "sad") return words == 1 ? three::whole<SumOfDifference>(t) : nullptr;
  if (base == "prmt") return words == 1 ? permute : nullptr;
  if (base == "fns") return words == 1 ? find_nth_set : nullptr;
  if (base == "dp4a") return words == 2 ? dot_of(s) : nullptr;
  if (base == "dp2a") return words == 3 && (s.has("lo") || s.has("hi")) ? dot_of(s) : nullptr;
  if (base == "vabsdiff4" && (words == 3 || (words == 4 && s.modifiers[3] == "add")) && s.modifiers[1] == s.modifiers[2] &&
      s.modifiers[0] == "u32")
    return s.modifiers[1] == "s32" ? (words == 4 ? differences<std::int8_t, true> : differences<std::int8_t, false>)
                                   : (words == 4 ? differences<std::uint8_t, true> : differences<std::uint8_t, false>);
  if (base == "shf" && words == 3) {
    const bool wraps = s.has("wrap");
    return s.has("l") ? (wraps ? funnel<true, true> : funnel<true, false>) : wraps ? funnel<false, true> : funnel<false, false>;
  }
  widths = {t.bytes, 4, 4, 0};
  if (base == "bfe") return words != 1 ? nullptr : wide ? (sign ? extract_field<s64> : extract_field<u64>)
                                                        : (sign ? extract_field<s32> : extract_field<u32>);
  widths = {t.bytes, t.bytes, 4, 4};
  if (base == "bfi") return words != 1 ? nullptr : wide ? insert_field<u64> : insert_field<u32>;
  return nullptr;
}

Execute pair_function(const Statement& s) {
  const bool sign = s.type() == "s16x2";
  if (s.modifiers.size() != 1) return nullptr;
  if (s.base == "add") return of_pairs<u16, Add>;
  if (s.base == "min") return sign ? of_pairs<s16, Least> : of_pairs<u16, Least>;
  if (s.base == "max") return sign ? of_pairs<s16, Most> : of_pairs<u16, Most>;
  return nullptr;
}

}  // namespace

bool decode_bits(Reader& reader, const Statement& s, Instruction& i) {
  static constexpr std::string_view bases[] = {"popc", "clz", "brev", "cnot", "bfind", "bmsk", "mul24", "mad24",     "sad",
                                               "prmt", "fns", "dp4a", "dp2a", "shf",   "bfe",  "bfi",   "vabsdiff4", "lop3"};
  std::array<int, 4> widths{4, 4, 0, 0};
  if (s.modifiers.empty()) return false;
  if (s.type() == "s16x2" || s.type() == "u16x2") {
    i.execute = pair_function(s);
  } else if (std::find(std::begin(bases), std::end(bases), s.base) == std::end(bases)) {
    return false;
  } else if (s.base == "lop3") {
    widths[2] = 4;
    i.number = reader.integer(s.operands.at(4));
    i.execute = s.modifiers.size() == 1 ? logic : nullptr;
  } else {
    const bool vector = s.base == "vabsdiff4";
    i.execute = bit_function(s, type_of(vector ? s.modifiers[1] : s.type()), widths);
    i.number = s.base == "dp2a" && s.has("hi") ? 16 : 0;
    i.form = s.has("wrap") ? 1 : 0;
  }
  if (i.execute == nullptr) return false;
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  const bool optional = s.base == "vabsdiff4" && s.operands.size() == 3;
  for (int n = 0; n < 4 && widths[n] != 0; ++n)
    i.at[n + 1] = optional && n == 2 ? reader.constant(0, 4) : reader.source(s.operands.at(n + 1), {'b', widths[n]});
  return true;
}

}  // namespace emulator
