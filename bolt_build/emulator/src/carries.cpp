// Whole numbers of more words than one: additions, subtractions and products that pass a carry on.
#include "lanewise.h"

namespace emulator {
namespace {

/// a + b + carry, or a - b - borrow. `takes`: the carry is read, `leaves`: it is written.
template <typename T, bool subtracts, bool takes, bool leaves>
void with_carry(Warp& warp, const Instruction& i, Mask mask) {
  T* const d = warp.at<T>(i.at[0]);
  const T *const a = warp.at<T>(i.at[1]), *const b = warp.at<T>(i.at[2]);
  Mask left = 0;
  each(mask, [&](int lane) {
    const T in = takes ? warp.carry >> lane & 1 : 0;
    T half, whole;
    const bool first =
        subtracts ? __builtin_sub_overflow(a[lane], b[lane], &half) : __builtin_add_overflow(a[lane], b[lane], &half);
    const bool second = subtracts ? __builtin_sub_overflow(half, in, &whole) : __builtin_add_overflow(half, in, &whole);
    left |= static_cast<Mask>(first || second) << lane;
    d[lane] = whole;
  });
  if (leaves) warp.carry = (warp.carry & ~mask) | left;
}

/// The upper or lower word of a * b, plus c and the carry.
template <typename T, typename F, bool takes, bool leaves>
void product_with_carry(Warp& warp, const Instruction& i, Mask mask) {
  using Whole = std::make_unsigned_t<T>;
  T* const d = warp.at<T>(i.at[0]);
  const T *const a = warp.at<T>(i.at[1]), *const b = warp.at<T>(i.at[2]), *const c = warp.at<T>(i.at[3]);
  Mask left = 0;
  each(mask, [&](int lane) {
    const Whole in = takes ? warp.carry >> lane & 1 : 0;
    Whole half, whole;
    const bool first = __builtin_add_overflow(static_cast<Whole>(F()(a[lane], b[lane])), static_cast<Whole>(c[lane]), &half);
    const bool second = __builtin_add_overflow(half, in, &whole);
    left |= static_cast<Mask>(first || second) << lane;
    d[lane] = static_cast<T>(whole);
  });
  if (leaves) warp.carry = (warp.carry & ~mask) | left;
}

template <typename T, bool subtracts>
Execute sum_of(bool takes, bool leaves) {
  if (takes) return leaves ? with_carry<T, subtracts, true, true> : with_carry<T, subtracts, true, false>;
  return with_carry<T, subtracts, false, true>;
}

template <typename T, typename F>
Execute product_of(bool takes, bool leaves) {
  if (takes) return leaves ? product_with_carry<T, F, true, true> : product_with_carry<T, F, true, false>;
  return product_with_carry<T, F, false, true>;
}

template <typename T>
Execute product_of(bool high, bool takes, bool leaves) {
  return high ? product_of<T, MultiplyHigh>(takes, leaves) : product_of<T, Multiply>(takes, leaves);
}

}  // namespace

bool decode_carries(Reader& reader, const Statement& s, Instruction& i) {
  const bool takes = s.base == "addc" || s.base == "subc" || s.base == "madc", leaves = s.has("cc");
  const std::string_view base = takes ? s.base.substr(0, 3) : s.base;
  if (!(takes || leaves) || (base != "add" && base != "sub" && base != "mad")) return false;
  const Type type = type_of(s.type());
  const bool product = base == "mad", subtracts = base == "sub";
  const std::size_t words = 1 + (leaves ? 1 : 0) + (product ? 1 : 0);
  if ((type.bytes != 4 && type.bytes != 8) || type.kind == 'f' || s.modifiers.size() != words) return false;
  if (product && !s.has("lo") && !s.has("hi")) return false;
  i.at[0] = reader.reg(s.operands.at(0)).offset;
  for (int n = 1; n <= (product ? 3 : 2); ++n) i.at[n] = reader.source(s.operands.at(n), type);
  const bool wide = type.bytes == 8, high = s.has("hi");
  if (product && type.kind == 's')
    i.execute = wide ? product_of<s64>(high, takes, leaves) : product_of<s32>(high, takes, leaves);
  else if (product)
    i.execute = wide ? product_of<u64>(high, takes, leaves) : product_of<u32>(high, takes, leaves);
  else if (subtracts)
    i.execute = wide ? sum_of<u64, true>(takes, leaves) : sum_of<u32, true>(takes, leaves);
  else
    i.execute = wide ? sum_of<u64, false>(takes, leaves) : sum_of<u32, false>(takes, leaves);
  return true;
}

}  // namespace emulator
