// Instructions at which lanes, warps, blocks and copies wait for each other.
#include <algorithm>
#include <bit>

#include "decode.h"

namespace emulator {
namespace {

/// setmaxnreg: a block has the registers that it was launched with, and no more. A warp that asks for more than others
/// have given back waits until they do, on a GPU for ever where they never do.
bool change_registers(Warp& warp, const Instruction& i, Mask) {
  const auto wanted = static_cast<unsigned>(i.number);
  const bool more = i.form != 0;
  if (more ? wanted < warp.registers : wanted > warp.registers)
    warp.fail("setmaxnreg from " + std::to_string(warp.registers) + " to " + std::to_string(wanted) + " registers");
  unsigned& spare = warp.block.spare_registers;
  if (more && spare < wanted - warp.registers) return false;
  spare += warp.registers - wanted;
  warp.registers = wanted;
  return true;
}

/// Whether those of `wanted` that have not left go together; the others come, or are stuck where they are.
bool together(Warp& warp, Mask mask, Mask wanted) {
  if ((mask & wanted) != mask) warp.fail("lanes that their own mask leaves out");
  return (wanted & warp.live() & ~mask) == 0;
}

bool sync_warp(Warp& warp, const Instruction& i, Mask mask) {
  return together(warp, mask, warp.at<std::uint32_t>(i.at[0])[std::countr_zero(mask)]);
}

bool elect(Warp& warp, const Instruction& i, Mask mask) {
  const Mask wanted = warp.at<std::uint32_t>(i.at[2])[std::countr_zero(mask)];
  if (!together(warp, mask, wanted)) return false;
  const int leader = std::countr_zero(mask & wanted);
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  each(mask, [&](int lane) { d[lane] = static_cast<std::uint32_t>(leader); });
  Mask& p = warp.predicate(i.at[1]);
  p = (p & ~mask) | (Mask(1) << leader);
  return true;
}

enum Shuffle : int { index, upwards, downwards, butterfly };

bool shuffle(Warp& warp, const Instruction& i, Mask mask) {
  const Mask wanted = warp.at<std::uint32_t>(i.at[5])[std::countr_zero(mask)];
  if (!together(warp, mask, wanted)) return false;
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  const std::uint32_t *const a = warp.at<std::uint32_t>(i.at[2]), *const b = warp.at<std::uint32_t>(i.at[3]),
                             *const c = warp.at<std::uint32_t>(i.at[4]);
  std::uint32_t found[lanes] = {};
  Mask inside = 0;
  each(mask, [&](int lane) {
    const int offset = static_cast<int>(b[lane] & 31), clamp = static_cast<int>(c[lane] & 31),
              segment = static_cast<int>(c[lane] >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int from = lane;
    bool in = false;
    switch (i.form) {
      case upwards: from = lane - offset, in = from >= most; break;
      case downwards: from = lane + offset, in = from <= most; break;
      case butterfly: from = lane ^ offset, in = from <= most; break;
      default: from = least | (offset & ~segment), in = from <= most;
    }
    if (!in) from = lane;
    if ((mask >> from & 1) == 0) warp.fail("a lane that has left, or is elsewhere, is asked for its value");
    found[lane] = a[from];
    inside |= static_cast<Mask>(in) << lane;
  });
  each(mask, [&](int lane) { d[lane] = found[lane]; });
  if (i.number != 0) {
    Mask& p = warp.predicate(i.at[1]);
    p = (p & ~mask) | inside;
  }
  return true;
}

enum Vote : int { any, all, ballot };

bool vote(Warp& warp, const Instruction& i, Mask mask) {
  const Mask wanted = warp.at<std::uint32_t>(i.at[2])[std::countr_zero(mask)];
  if (!together(warp, mask, wanted)) return false;
  const Mask of = (i.number != 0 ? ~warp.predicate(i.at[1]) : warp.predicate(i.at[1])) & mask;
  if (i.form == ballot) {
    std::uint32_t* const to = warp.at<std::uint32_t>(i.at[0]);
    for (Mask left = mask; left != 0; left &= left - 1) to[std::countr_zero(left)] = of;
    return true;
  }
  Mask& p = warp.predicate(i.at[0]);
  p = (p & ~mask) | ((i.form == any ? of != 0 : of == mask) ? mask : 0);
  return true;
}

enum Reduction : int { summed, lowest, highest };

/// redux.sync of unsigned numbers.
bool reduce(Warp& warp, const Instruction& i, Mask mask) {
  const Mask wanted = warp.at<std::uint32_t>(i.at[2])[std::countr_zero(mask)];
  if (!together(warp, mask, wanted)) return false;
  const std::uint32_t* const a = warp.at<std::uint32_t>(i.at[1]);
  std::uint32_t found = i.form == lowest ? ~0u : 0;
  each(mask, [&](int lane) {
    found = i.form == summed ? found + a[lane] : i.form == lowest ? std::min(found, a[lane]) : std::max(found, a[lane]);
  });
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  each(mask, [&](int lane) { d[lane] = found; });
  return true;
}

/// bar.sync and bar.arrive: threads are counted by warps.
bool numbered_barrier(Warp& warp, const Instruction& i, Mask mask, bool waits) {
  if (!together(warp, mask, all_lanes)) return false;
  const int lane = std::countr_zero(mask);
  const std::uint32_t number = warp.at<std::uint32_t>(i.at[0])[lane];
  if (number >= 16) warp.fail("barrier " + std::to_string(number));
  NumberedBarrier& barrier = warp.block.numbered[number];
  Group& group = *warp.group;
  const auto threads = [&] {
    return i.number != 0 ? warp.at<std::uint32_t>(i.at[1])[lane] : warp.block.live_warps() * lanes;
  };
  if (!group.arrived) {
    // Where no number is given, it is that of the threads that have not left, which may change.
    if (i.number != 0 && barrier.arrived != 0 && barrier.wanted != threads())
      warp.fail("a barrier for other numbers of threads at once");
    if (threads() % lanes != 0) warp.fail("a barrier for a number of threads that is no multiple of a warp's");
    barrier.wanted = threads();
    barrier.arrived += lanes;
    group.ticket = barrier.generation;
    group.arrived = true;
    if (i.form != 0) {
      if (barrier.arrived == lanes) barrier.all = true;
      barrier.all = barrier.all && (warp.predicate(i.at[3]) & mask) == (i.form == 2 ? 0 : mask);
    }
  }
  if (group.ticket == barrier.generation && barrier.arrived >= threads()) {
    if (barrier.arrived > threads()) warp.fail("more threads came to a barrier than were to come");
    ++barrier.generation;
    barrier.arrived = 0;
    barrier.result = barrier.all;
  }
  if (waits && group.ticket == barrier.generation) return false;
  group.arrived = false;
  if (i.form != 0) {
    Mask& p = warp.predicate(i.at[2]);
    p = (p & ~mask) | (barrier.result ? mask : 0);
  }
  return true;
}

bool sync_block(Warp& warp, const Instruction& i, Mask mask) { return numbered_barrier(warp, i, mask, true); }
bool arrive_block(Warp& warp, const Instruction& i, Mask mask) { return numbered_barrier(warp, i, mask, false); }

/// Warps of the cluster wait for those that have not ended.
bool arrive_cluster(Warp& warp, const Instruction&, Mask mask) {
  if (!together(warp, mask, all_lanes)) return false;
  if (warp.cluster_arrivals != warp.cluster_turns) warp.fail("a warp that arrives twice without waiting");
  ++warp.cluster_arrivals;
  return true;
}

bool await_cluster(Warp& warp, const Instruction&, Mask) {
  const std::uint64_t turn = warp.cluster_turns + 1;
  for (const auto& block : warp.block.cluster.blocks)
    for (const auto& other : block->warps)
      if (!other->done() && other->cluster_arrivals < turn) return false;
  warp.cluster_turns = turn;
  return true;
}

std::uint32_t lane_address(Warp& warp, const Instruction& i, int lane) {
  const std::uint64_t base = i.form != 0 ? warp.at<std::uint64_t>(i.at[0])[lane] : warp.at<std::uint32_t>(i.at[0])[lane];
  return static_cast<std::uint32_t>(base + static_cast<std::uint64_t>(i.number));
}

void init_barrier(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    warp.block.init_barrier(lane_address(warp, i, lane), warp.at<std::uint32_t>(i.at[1])[lane]);
  });
}

/// `bytes`: 1 arrives, 2 expects bytes, 3 both.
void arrive(Warp& warp, const Instruction& i, Mask mask) {
  each(mask, [&](int lane) {
    const std::int64_t expected = i.bytes & 2 ? warp.at<std::uint32_t>(i.at[1])[lane] : 0;
    warp.block.count(lane_address(warp, i, lane), i.bytes & 1, expected);
  });
}

bool await(Warp& warp, const Instruction& i, Mask mask) {
  bool all = true;
  each(mask, [&](int lane) {
    const std::uint32_t parity = warp.at<std::uint32_t>(i.at[1])[lane] & 1;
    all = all && warp.block.barrier(lane_address(warp, i, lane)).phase != (parity != 0);
  });
  Mask& p = warp.predicate(i.at[2]);
  if (!all) {
    // In order it waits for as long as it takes. Shuffled it gives up once, as it may, and is not asked in vain for ever.
    if (!warp.block.cluster.shuffled() || (warp.refused & mask) == mask) return false;
    warp.refused |= mask;
    p &= ~mask;
    return true;
  }
  warp.refused &= ~mask;
  p |= mask;
  return true;
}

void map_address(Warp& warp, const Instruction& i, Mask mask) {
  std::uint32_t* const d = warp.at<std::uint32_t>(i.at[0]);
  const std::uint32_t *const a = warp.at<std::uint32_t>(i.at[1]), *const rank = warp.at<std::uint32_t>(i.at[2]);
  each(mask, [&](int lane) {
    d[lane] = (rank[lane] + 1) << rank_shift | (a[lane] & ((1u << rank_shift) - 1));
  });
}

bool decode_mbarrier(Reader& reader, const Statement& s, Instruction& i) {
  const bool waits = s.has("try_wait") || s.has("test_wait");
  const std::size_t first = waits || s.base != "mbarrier" || s.has("arrive") ? 1 : 0;
  const Reader::Address at = reader.address(s.operands.at(first));
  i.at[0] = at.offset;
  i.form = at.wide ? 1 : 0;
  i.number = at.displacement;
  if (s.has("init")) {
    i.at[1] = reader.source(s.operands.at(1), {'u', 4});
    i.execute = init_barrier;
  } else if (s.has("arrive") && s.operands[0] == "_") {
    i.bytes = s.has("expect_tx") ? 3 : 1;
    if (s.operands.size() > 2 && i.bytes == 1) return false;
    if (i.bytes == 3) i.at[1] = reader.source(s.operands.at(2), {'u', 4});
    i.execute = arrive;
  } else if (s.has("expect_tx")) {
    i.bytes = 2;
    i.at[1] = reader.source(s.operands.at(1), {'u', 4});
    i.execute = arrive;
  } else if (s.has("try_wait") && s.has("parity")) {
    i.at[2] = reader.predicate(s.operands.at(0));
    i.at[1] = reader.source(s.operands.at(2), {'u', 4});
    i.attempt = await;
  }
  return i.execute != nullptr || i.attempt != nullptr;
}

bool decode_bar(Reader& reader, const Statement& s, Instruction& i) {
  if (s.has("warp")) {
    i.at[0] = reader.source(s.operands.at(0), {'u', 4});
    i.attempt = sync_warp;
    return true;
  }
  if (s.has("cluster")) {
    i.attempt = s.has("arrive") ? arrive_cluster : await_cluster;
    return true;
  }
  std::size_t first = 0;
  if (s.has("red")) {
    if (!s.has("and") || s.operands.size() != 3) return false;
    i.at[2] = reader.predicate(s.operands[0]);
    const bool negated = s.operands[2][0] == '!';
    i.at[3] = reader.predicate(s.operands[2].substr(negated ? 1 : 0));
    i.form = negated ? 2 : 1;
    first = 1;
  }
  i.at[0] = reader.source(s.operands.at(first), {'u', 4});
  if (first == 0 && s.operands.size() > 1) {
    i.at[1] = reader.source(s.operands[1], {'u', 4});
    i.number = 1;
  }
  i.attempt = s.has("arrive") ? arrive_block : sync_block;
  return true;
}

}  // namespace

bool decode_waiting(Reader& reader, const Statement& s, Instruction& i) {
  if (s.base == "setmaxnreg") {
    i.number = reader.integer(s.operands.at(0));
    i.form = s.has("inc") ? 1 : 0;
    i.attempt = change_registers;
    return true;
  }
  if (s.base == "mbarrier") return decode_mbarrier(reader, s, i);
  if (s.base == "bar" || s.base == "barrier") return decode_bar(reader, s, i);
  if (s.base == "mapa" && s.has("shared::cluster") && s.type() == "u32") {
    i.at[0] = reader.reg(s.operands.at(0)).offset;
    i.at[1] = reader.source(s.operands.at(1), {'u', 4});
    i.at[2] = reader.source(s.operands.at(2), {'u', 4});
    i.execute = map_address;
    return true;
  }
  if (s.base == "vote" && (s.has("ballot") || (s.has("pred") && (s.has("any") || s.has("all"))))) {
    const std::string_view of = s.operands.at(1);
    i.number = of[0] == '!' ? 1 : 0;
    i.at[0] = s.has("ballot") ? reader.reg(s.operands.at(0)).offset : reader.predicate(s.operands.at(0));
    i.at[1] = reader.predicate(of.substr(static_cast<std::size_t>(i.number)));
    i.at[2] = reader.source(s.operands.at(2), {'u', 4});
    i.form = s.has("ballot") ? ballot : s.has("all") ? all : any;
    i.attempt = vote;
    return true;
  }
  if (s.base == "redux" && s.type() == "u32" && (s.has("add") || s.has("min") || s.has("max"))) {
    i.at[0] = reader.reg(s.operands.at(0)).offset;
    for (int n = 1; n < 3; ++n) i.at[n] = reader.source(s.operands.at(static_cast<std::size_t>(n)), {'u', 4});
    i.form = s.has("add") ? summed : s.has("min") ? lowest : highest;
    i.attempt = reduce;
    return true;
  }
  if (s.base != "elect" && s.base != "shfl") return false;
  // d|p
  const std::string_view both = s.operands.at(0);
  const std::size_t bar = both.find('|');
  i.at[0] = reader.reg(trimmed(both.substr(0, bar))).offset;
  if (bar != std::string_view::npos) {
    i.at[1] = reader.predicate(trimmed(both.substr(bar + 1)));
    i.number = 1;
  }
  if (s.base == "elect") {
    i.at[2] = reader.source(s.operands.at(1), {'u', 4});
    i.attempt = elect;
    return i.number == 1;
  }
  for (int n = 1; n < 5; ++n) i.at[n + 1] = reader.source(s.operands.at(static_cast<std::size_t>(n)), {'u', 4});
  i.form = s.has("bfly") ? butterfly : s.has("up") ? upwards : s.has("down") ? downwards : index;
  i.attempt = shuffle;
  return true;
}

}  // namespace emulator
