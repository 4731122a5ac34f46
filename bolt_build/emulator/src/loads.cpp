// Loads and stores of single lanes, and copies that a lane asks for.
#include <algorithm>
#include <cstring>

#include "decode.h"
#include "overlap.h"

namespace emulator {
namespace {

/// An address in a register of 32 bits is added up in as many: nvcc has bases below zero whose displacement leads back.
std::uint64_t address_of(Warp& warp, std::uint32_t offset, bool wide, std::int64_t displacement, int lane) {
  const std::uint64_t base = wide ? warp.at<std::uint64_t>(offset)[lane] : warp.at<std::uint32_t>(offset)[lane];
  const std::uint64_t sum = base + static_cast<std::uint64_t>(displacement);
  return wide ? sum : static_cast<std::uint32_t>(sum);
}

/// `form`: the space, and from bit 4 on the width of an address register and of the values' registers.
constexpr int wide_address = 16, narrow_shift = 8;

struct Access {
  int space, bytes, register_bytes;
  bool wide, sign;
};

Access access_of(const Instruction& i) {
  return {i.form & 15, i.bytes, i.form >> narrow_shift & 15, (i.form & wide_address) != 0, (i.form & 32) != 0};
}

template <typename T>
void put(Warp& warp, std::uint32_t offset, int lane, int register_bytes, T value) {
  switch (register_bytes) {
    case 2: warp.at<std::uint16_t>(offset)[lane] = static_cast<std::uint16_t>(value); break;
    case 4: warp.at<std::uint32_t>(offset)[lane] = static_cast<std::uint32_t>(value); break;
    default: warp.at<std::uint64_t>(offset)[lane] = static_cast<std::uint64_t>(value);
  }
}

void load(Warp& warp, const Instruction& i, Mask mask) {
  const Access a = access_of(i);
  const std::size_t count = i.list.size();
  each(mask, [&](int lane) {
    const std::uint64_t address = address_of(warp, i.at[0], a.wide, i.number, lane);
    const std::byte* from = warp.resolve(a.space, address, static_cast<std::size_t>(a.bytes) * count, false, lane);
    for (std::size_t n = 0; n < count; ++n, from += a.bytes) {
      std::uint64_t value = 0;
      std::memcpy(&value, from, static_cast<std::size_t>(a.bytes));
      if (a.sign && a.bytes < 8) {
        const int shift = 64 - 8 * a.bytes;
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << shift) >> shift);
      }
      put(warp, i.list[n], lane, a.register_bytes, value);
    }
  });
}

/// A load that acquires: what blocks wait for each other by.
void poll(Warp& warp, const Instruction& i, Mask mask) {
  load(warp, i, mask);
  const Access a = access_of(i);
  std::vector<std::byte> now(sizeof &i);
  const Instruction* const where = &i;
  std::memcpy(now.data(), &where, sizeof where);
  for (const std::uint32_t to : i.list)
    each(mask, [&](int lane) {
      const std::byte* const from = warp.at<std::byte>(to) + static_cast<std::size_t>(a.register_bytes * lane);
      now.insert(now.end(), from, from + a.register_bytes);
    });
  warp.polls = true;
  warp.in_vain = now == warp.polled;
  warp.polled = std::move(now);
}

void store(Warp& warp, const Instruction& i, Mask mask) {
  const Access a = access_of(i);
  const std::size_t count = i.list.size();
  each(mask, [&](int lane) {
    const std::uint64_t address = address_of(warp, i.at[0], a.wide, i.number, lane);
    std::byte* to = warp.resolve(a.space, address, static_cast<std::size_t>(a.bytes) * count, true, lane);
    for (std::size_t n = 0; n < count; ++n, to += a.bytes) {
      const std::byte* value = a.register_bytes == 2   ? warp.at<std::byte>(i.list[n]) + 2 * lane
                               : a.register_bytes == 4 ? warp.at<std::byte>(i.list[n]) + 4 * lane
                                                       : warp.at<std::byte>(i.list[n]) + 8 * lane;
      std::memcpy(to, value, static_cast<std::size_t>(a.bytes));
    }
  });
}

/// cp.async: `bytes` into shared memory, of which the last operand are read and the rest are zero.
void copy(Warp& warp, const Instruction& i, Mask mask) {
  struct Copies {
    std::array<std::uint64_t, lanes> to, from;
    std::array<std::uint32_t, lanes> read;
  };
  auto asked = std::make_shared<Copies>();
  each(mask, [&](int lane) {
    asked->to[lane] = address_of(warp, i.at[0], (i.form & 1) != 0, i.number, lane);
    asked->from[lane] = warp.at<std::uint64_t>(i.at[1])[lane];
    asked->read[lane] = warp.at<std::uint32_t>(i.at[2])[lane];
  });
  const auto later = [asked, mask, bytes = static_cast<std::size_t>(i.bytes)](Warp& owner) {
    each(mask, [&](int lane) {
      std::byte* const to = owner.resolve(shared_block, asked->to[lane], bytes, true, lane);
      const std::size_t read = asked->read[lane];
      if (read > bytes) throw Fault("a copy of " + std::to_string(read) + " bytes where " + std::to_string(bytes) + " fit");
      if (asked->to[lane] % bytes != 0 || asked->from[lane] % bytes != 0) throw Fault("a copy of misaligned addresses");
      if (read > 0) std::memcpy(to, owner.resolve(global, asked->from[lane], read, false, lane), read);
      std::memset(to + read, 0, bytes - read);
    });
  };
  // At once, or as late as it is waited for.
  if (warp.block.cluster.shuffled() && warp.block.cluster.random() % 2 == 0)
    warp.copies.push_back({[later, &warp] { later(warp); }, warp.copy_group});
  else
    later(warp);
}

void commit_copies(Warp& warp, const Instruction&, Mask) { ++warp.copy_group; }

/// Until but the last `number` groups are there; of a negative number, all, committed or not.
void await_copies(Warp& warp, const Instruction& i, Mask) {
  while (!warp.copies.empty() &&
         (i.number < 0 || static_cast<std::int64_t>(warp.copies.front().group) + i.number <
                              static_cast<std::int64_t>(warp.copy_group))) {
    warp.copies.front().happen();
    warp.copies.pop_front();
  }
}

/// Arrives at a barrier once this warp's copies are there: they happen now, if they have not.
void arrive_with_copies(Warp& warp, const Instruction& i, Mask mask) {
  for (; !warp.copies.empty(); warp.copies.pop_front()) warp.copies.front().happen();
  each(mask, [&](int lane) {
    warp.block.count(static_cast<std::uint32_t>(address_of(warp, i.at[0], (i.form & 1) != 0, i.number, lane)), 1, 0);
  });
}

void nothing(Warp&, const Instruction&, Mask) {}
void wait_for_kernel_in_front(Warp& warp, const Instruction&, Mask) { warp.block.cluster.waited = true; }

void let_next_kernel_begin(Warp& warp, const Instruction&, Mask) {
  if (!warp.block.cluster.waited) accesses().lets_next_early = true;
}

int space_of(const Statement& s) {
  if (s.has("global")) return global;
  if (s.has("shared") || s.has("shared::cta")) return shared_block;
  if (s.has("shared::cluster")) return shared_cluster;
  if (s.has("local")) return local;
  if (s.has("param")) return parameter;
  return generic;
}

}  // namespace

bool decode_memory(Reader& reader, const Statement& s, Instruction& i) {
  if ((s.base == "ld" || s.base == "st") && !s.has("async")) {
    const bool loads = s.base == "ld";
    const Type type = type_of(s.type());
    const Reader::Address at = reader.address(s.operands.at(loads ? 1 : 0));
    i.at[0] = at.offset;
    i.number = at.displacement;
    i.bytes = type.bytes;
    int width = 0;
    for (const auto word : elements(s.operands.at(loads ? 0 : 1))) {
      if (loads) {
        const Register to = reader.reg(word);
        i.list.push_back(to.offset);
        width = to.type.bytes;
      } else {
        const bool number = word[0] == '-' || (word[0] >= '0' && word[0] <= '9');
        i.list.push_back(reader.source(word, type));
        width = number ? std::max(type.bytes, 2) : reader.reg(word).type.bytes;
      }
    }
    i.form = space_of(s) | (at.wide ? wide_address : 0) | (type.kind == 's' ? 32 : 0) | width << narrow_shift;
    i.execute = !loads ? store : s.has("acquire") && space_of(s) <= global ? poll : load;
    return true;
  }
  if (s.base == "cp" && s.has("async") && !s.has("bulk")) {
    if (s.has("mbarrier")) {
      if (!s.has("noinc")) return false;
      const Reader::Address at = reader.address(s.operands.at(0));
      i.at[0] = at.offset;
      i.number = at.displacement;
      i.form = at.wide ? 1 : 0;
      i.execute = arrive_with_copies;
    } else if (s.has("commit_group")) {
      i.execute = commit_copies;
    } else if (s.has("wait_all")) {
      i.number = -1;
      i.execute = await_copies;
    } else if (s.has("wait_group")) {
      i.number = reader.integer(s.operands.at(0));
      i.execute = await_copies;
    } else if (s.has("shared")) {
      const Reader::Address to = reader.address(s.operands.at(0)), from = reader.address(s.operands.at(1));
      if (from.displacement != 0) return false;
      i.at[0] = to.offset;
      i.number = to.displacement;
      i.form = to.wide ? 1 : 0;
      i.at[1] = from.offset;
      i.bytes = static_cast<int>(reader.integer(s.operands.at(2)));
      i.at[2] = s.operands.size() > 3 ? reader.source(s.operands[3], {'u', 4})
                                      : reader.constant(static_cast<std::uint64_t>(i.bytes), 4);
      i.execute = copy;
    }
    return i.execute != nullptr;
  }
  // What orders memory has nothing to order: this machine does one thing after another.
  if (s.base == "griddepcontrol") {
    i.execute = s.has("wait") ? wait_for_kernel_in_front : let_next_kernel_begin;
    return true;
  }
  if (s.base == "fence" || s.base == "membar" || s.base == "prefetch") {
    i.execute = nothing;
    return true;
  }
  return false;
}

}  // namespace emulator
