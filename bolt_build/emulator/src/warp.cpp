// How a warp goes through its instructions: which lanes, in which order.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "launch_limits.h"
#include "module.h"

namespace emulator {
namespace {

/// Instructions of one warp before it counts as one that never ends.
constexpr std::uint64_t most_instructions = 4'000'000'000;

/// Instructions from one load that acquires to the next, where there is nothing else to do.
constexpr std::uint64_t most_of_a_round = 64;

}  // namespace

void Warp::Free::operator()(std::byte* p) const { std::free(p); }

Warp::Warp(Block& b, const Entry& e, const Launch& launch, unsigned n)
    : block(b), entry(e), number(n), launch_(launch), file_(allocate(e.file_bytes)),
      local_(allocate(e.local_bytes * lanes)), predicates_(e.predicates) {
  // What was never written looks like nothing that was meant: NaN, a huge index.
  std::memset(file_.get(), 0xff, e.file_bytes);
  std::memset(local_.get(), 0xff, e.local_bytes * lanes);
  const auto put = [&](std::uint32_t offset, std::uint64_t bits, int bytes) {
    for (int lane = 0; lane < lanes; ++lane)
      std::memcpy(file_.get() + offset + static_cast<std::uint32_t>(lane * bytes), &bits, static_cast<std::size_t>(bytes));
  };
  for (const Constant& c : e.constants) put(c.offset, c.bits, c.bytes);
  for (const Constant& p : e.parameter_addresses)
    put(p.offset, reinterpret_cast<std::uint64_t>(launch.parameters.data()) + p.bits, p.bytes);
}

void Warp::begin() {
  const Dim& threads = launch_.block;
  const Dim& cluster = launch_.cluster;
  // As many as the compiler may use where a kernel says how many threads a block has, and how many blocks a
  // multiprocessor holds, in steps of 8.
  const unsigned beside = threads.x * threads.y * threads.z * entry.resident;
  registers = std::min(kMultiprocessorRegisters / beside / 8 * 8, kMostRegisters);
  const auto value = [&](const std::string& name, int lane) -> std::uint64_t {
    const unsigned thread = number * lanes + static_cast<unsigned>(lane);
    const Dim& index = block.index;
    if (name == "%tid.x") return thread % threads.x;
    if (name == "%tid.y") return thread / threads.x % threads.y;
    if (name == "%tid.z") return thread / threads.x / threads.y;
    if (name == "%ntid.x") return threads.x;
    if (name == "%ntid.y") return threads.y;
    if (name == "%ntid.z") return threads.z;
    if (name == "%ctaid.x") return index.x;
    if (name == "%ctaid.y") return index.y;
    if (name == "%ctaid.z") return index.z;
    if (name == "%nctaid.x") return launch_.grid.x;
    if (name == "%nctaid.y") return launch_.grid.y;
    if (name == "%nctaid.z") return launch_.grid.z;
    if (name == "%laneid") return static_cast<unsigned>(lane);
    if (name == "%warpid") return number;
    if (name == "%smid") return 0;
    if (name == "%cluster_ctaid.x") return index.x % cluster.x;
    if (name == "%cluster_ctaid.y") return index.y % cluster.y;
    if (name == "%cluster_ctaid.z") return index.z % cluster.z;
    if (name == "%cluster_ctarank") return block.rank;
    if (name == "%cluster_nctarank") return cluster.x * cluster.y * cluster.z;
    if (name == "%lanemask_lt") return (1u << lane) - 1;
    if (name == "dynamic" || name == "dynamic/32") return entry.dynamic_offset();
    throw Unsupported("the register " + name);
  };
  for (const Special& special : entry.specials)
    for (int lane = 0; lane < lanes; ++lane) {
      const std::uint64_t found = value(special.name, lane);
      if (special.name == "dynamic")
        at<std::uint64_t>(special.offset)[lane] = found;
      else
        at<std::uint32_t>(special.offset)[lane] = static_cast<std::uint32_t>(found);
    }
  const unsigned all = threads.x * threads.y * threads.z, first = number * lanes;
  const unsigned here = std::min<unsigned>(all - first, lanes);
  groups_.assign(1, Group{0, here == lanes ? all_lanes : (1u << here) - 1});
  group = nullptr;
  spent_ = 0;
  copies.clear();
  products.clear();
  copy_group = product_group = cluster_arrivals = cluster_turns = 0;
  bulk_group.fill(0);
  refused = carry = 0;
  polled.clear();
  polls = in_vain = false;
}

Mask Warp::live() const {
  Mask all = 0;
  for (const Group& g : groups_) all |= g.mask;
  return all;
}

std::string Warp::whereabouts() const {
  std::string text = "block (" + std::to_string(block.index.x) + ", " + std::to_string(block.index.y) + ", " +
                     std::to_string(block.index.z) + "), warp " + std::to_string(number) + ":";
  for (const Group& g : groups_) {
    char mask[16];
    std::snprintf(mask, sizeof mask, "%08x", g.mask);
    text += std::string(" lanes ") + mask + " at line " + std::to_string(entry.code[g.pc].line) + ": " + entry.lines[g.pc];
  }
  return text;
}

void Warp::fail(const std::string& what) const { throw Fault(what + "; " + whereabouts()); }

std::byte* Warp::resolve(int space, std::uint64_t address, std::size_t bytes, bool writes, int lane) {
  if (std::has_single_bit(bytes) && bytes <= 16 && address % bytes != 0)
    fail("an address that is not a multiple of " + std::to_string(bytes));
  switch (space) {
    case shared_block:
    case shared_cluster: {
      const auto named = static_cast<std::uint32_t>(address) >> rank_shift;
      if (address >> 32 != 0) fail("an address beyond shared memory");
      if (named == 0) return block.shared(static_cast<std::uint32_t>(address), bytes);
      if (named > block.cluster.blocks.size()) fail("shared memory of a block beyond the cluster");
      if (space == shared_block && named != block.rank + 1) fail("another block's shared memory, which is not this one's");
      block.cluster.blocks[named - 1]->require_running();
      return block.cluster.blocks[named - 1]->shared(static_cast<std::uint32_t>(address) & ((1u << rank_shift) - 1), bytes);
    }
    case local: {
      const std::uint64_t offset = address & ~local_window;
      if (offset + bytes > entry.local_bytes) fail("an address beyond local memory");
      return local_.get() + entry.local_bytes * static_cast<std::size_t>(lane) + offset;
    }
    case parameter: {
      // Those of functions that the kernel calls lie in local memory.
      if ((address & local_window) != 0) return resolve(local, address, bytes, writes, lane);
      std::byte* const p = reinterpret_cast<std::byte*>(address);
      if (p < launch_.parameters.data() || p + bytes > launch_.parameters.data() + launch_.parameters.size())
        fail("an address beyond the parameters");
      return p;
    }
    case generic: {
      if ((address & local_window) != 0) return resolve(local, address, bytes, writes, lane);
      if ((address & shared_window) != 0) return resolve(shared_cluster, address & ~shared_window, bytes, writes, lane);
      const std::byte* const p = reinterpret_cast<std::byte*>(address);
      if (p >= launch_.parameters.data() && p < launch_.parameters.data() + launch_.parameters.size())
        return resolve(parameter, address, bytes, writes, lane);
      return resolve(global, address, bytes, writes, lane);
    }
    default: {
      std::byte* const p = reinterpret_cast<std::byte*>(address);
      try {
        require_global(p, bytes, writes);
      } catch (const IllegalAddress& fault) {
        throw IllegalAddress(std::string(fault.what()) + "; " + whereabouts());
      }
      return p;
    }
  }
}

/// Lanes that came to the same instruction go on together.
void Warp::merge() {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    for (std::size_t k = groups_.size(); --k > i;)
      if (groups_[k].pc == groups_[i].pc && !groups_[k].arrived && !groups_[i].arrived) {
        groups_[i].mask |= groups_[k].mask;
        groups_[i].blocked = groups_[i].blocked && groups_[k].blocked;
        groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(k));
      }
}

/// The group that is furthest behind, of those that do not wait: the others meet it again where the paths do.
void Warp::pick() {
  group = nullptr;
  for (Group& g : groups_)
    if (!g.blocked && (group == nullptr || g.pc < group->pc)) group = &g;
}

bool Warp::run(std::uint64_t budget) {
  try {
    return proceed(budget);
  } catch (const IllegalAddress&) {
    throw;
  } catch (const Fault& fault) {
    // Most say it themselves.
    if (std::string_view(fault.what()).find("; block (") != std::string_view::npos) throw;
    fail(fault.what());
  }
}

bool Warp::proceed(std::uint64_t budget) {
  for (Group& g : groups_) g.blocked = false;
  bool proceeded = false;
  const std::uint64_t end = spent_ + budget;
  while (spent_ < end) {
    if (groups_.size() > 1) merge();
    pick();
    if (group == nullptr) break;
    // Where the next group waits to be met.
    std::uint32_t meeting = 0xffffffffu;
    for (const Group& g : groups_)
      if (&g != group && g.pc > group->pc) meeting = std::min(meeting, g.pc);
    bool turns = false;
    while (!turns && spent_ < end) {
      const Instruction& i = entry.code[group->pc];
      Mask mask = group->mask;
      if (i.guard >= 0) mask &= i.negated ? ~predicates_[static_cast<std::size_t>(i.guard)]
                                          : predicates_[static_cast<std::size_t>(i.guard)];
      ++spent_;
      switch (i.kind) {
        case Instruction::Kind::plain:
          if (mask != 0) i.execute(*this, i, mask);
          ++group->pc;
          if (polls) {
            // It may wait for what another block writes. Where that has not come, nothing happens in a round.
            polls = false;
            return !in_vain || spent_ - (end - budget) > most_of_a_round;
          }
          break;
        case Instruction::Kind::waiting:
          if (mask != 0 && !i.attempt(*this, i, mask)) {
            group->blocked = turns = true;
            continue;
          }
          ++group->pc;
          break;
        case Instruction::Kind::branch:
          if (mask == group->mask) {
            group->pc = i.target;
            turns = groups_.size() > 1;
          } else if (mask == 0) {
            ++group->pc;
          } else {
            const Group taken{i.target, mask};
            group->mask &= ~mask;
            ++group->pc;
            groups_.push_back(taken);
            turns = true;
          }
          break;
        case Instruction::Kind::leave:
          if (mask == group->mask) {
            groups_.erase(groups_.begin() + (group - groups_.data()));
            proceeded = turns = true;
            continue;
          }
          group->mask &= ~mask;
          ++group->pc;
          break;
      }
      proceeded = true;
      if (!turns && group->pc == meeting) turns = true;
    }
    if (groups_.empty()) break;
  }
  if (spent_ > most_instructions) fail("a warp that never ends");
  return proceeded;
}

}  // namespace emulator
