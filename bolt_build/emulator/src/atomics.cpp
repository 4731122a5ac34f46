// Instructions that read and change memory in one, between blocks that run at the same time too.
#include <atomic>
#include <mutex>

#include "decode.h"
#include "operations.h"

namespace emulator {
namespace {

enum Operation : int { add, most, least, bit_and, bit_or, bit_xor, exchange, compare, wrapped };

template <typename T>
T after(int operation, T now, T value, T other) {
  switch (operation) {
    case add: return Add()(now, value);
    case most: return Most()(now, value);
    case least: return Least()(now, value);
    case exchange: return value;
    case compare: return now == value ? other : now;
  }
  if constexpr (!std::is_floating_point_v<T>) {
    if (operation == bit_and) return now & value;
    if (operation == bit_or) return now | value;
    if (operation == bit_xor) return now ^ value;
    if (operation == wrapped) return now >= value ? T{0} : static_cast<T>(now + 1);
  }
  throw Unsupported("this operation in memory on numbers of this type");
}

/// at: the address (of 32 bits where `second` says so), the value, what takes its place where it is there (compare), what
/// was there before.
template <typename T>
void change(Warp& warp, const Instruction& i, Mask mask) {
  static std::mutex one;
  const std::lock_guard lock(one);
  each(mask, [&](int lane) {
    const std::uint64_t base = i.second.empty() ? warp.at<std::uint64_t>(i.at[0])[lane] : warp.at<std::uint32_t>(i.at[0])[lane];
    const std::uint64_t address = base + static_cast<std::uint64_t>(i.number);
    std::byte* const place = warp.resolve(i.bytes, address, sizeof(T), true, lane);
    T now;
    std::memcpy(&now, place, sizeof now);
    const T found = after<T>(i.form, now, warp.at<T>(i.at[1])[lane], warp.at<T>(i.at[2])[lane]);
    std::memcpy(place, &found, sizeof found);
    warp.at<T>(i.at[3])[lane] = now;
  });
}

int operation_of(const Statement& s) {
  constexpr std::pair<std::string_view, int> all[] = {{"add", add},     {"max", most},     {"min", least},
                                                      {"and", bit_and}, {"or", bit_or},    {"xor", bit_xor},
                                                      {"exch", exchange}, {"cas", compare},   {"inc", wrapped}};
  for (const auto& [word, operation] : all)
    if (s.has(word)) return operation;
  throw Unsupported("an operation in memory");
}

Execute instance(Type type) {
  const bool sign = type.kind == 's';
  if (type.kind == 'f') return type.bytes == 4 ? change<float> : type.bytes == 8 ? change<double> : nullptr;
  if (type.bytes == 4) return sign ? change<s32> : change<u32>;
  if (type.bytes == 8) return sign ? change<s64> : change<u64>;
  return nullptr;
}

void trap(Warp& warp, const Instruction&, Mask) { warp.fail("the kernel gives up"); }

}  // namespace

bool decode_atomics(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "trap") {
    i.execute = trap;
    return true;
  }
  const bool asks = s.base == "atom";
  if ((!asks && s.base != "red") || s.has("noftz")) return false;
  const bool shared = s.has("shared") || s.has("shared::cta");
  const Type type = type_of(s.type());
  const std::size_t first = asks ? 1 : 0;
  const Reader::Address at = reader.address(s.operands.at(first));
  if (!at.wide && !shared) return false;
  if (!at.wide) i.second.push_back(1);
  i.at[0] = at.offset;
  i.number = at.displacement;
  i.bytes = shared ? shared_block : s.has("global") ? global : generic;
  i.form = operation_of(s);
  i.at[1] = reader.source(s.operands.at(first + 1), type);
  i.at[2] = i.form == compare ? reader.source(s.operands.at(first + 2), type) : i.at[1];
  i.at[3] = reader.reg(asks ? s.operands[0] : "_").offset;
  i.execute = instance(type);
  return i.execute != nullptr;
}

}  // namespace emulator
