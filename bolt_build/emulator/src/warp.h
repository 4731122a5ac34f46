// The state that instructions work on: lanes and their registers, a block's shared memory and barriers, a cluster.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine.h"

namespace emulator {

using Mask = std::uint32_t;
constexpr int lanes = 32;
constexpr Mask all_lanes = 0xffffffffu;

class Warp;
struct Instruction;

/// Does its work at once, for the lanes of the mask.
using Execute = void (*)(Warp&, const Instruction&, Mask);
/// The same for what may have to wait: false, and nothing changed but its note in the group, where it has to.
using Attempt = bool (*)(Warp&, const Instruction&, Mask);

/// Where the operands of an instruction lie: registers and constants are offsets into a warp's file, predicates are
/// indices of their masks.
struct Instruction {
  enum class Kind : std::uint8_t { plain, waiting, branch, leave };
  Kind kind = Kind::plain;
  bool negated = false;  // its guard
  std::int32_t guard = -1;
  Execute execute = nullptr;
  Attempt attempt = nullptr;
  Execute inner = nullptr;  // of one that wraps another
  std::array<std::uint32_t, 6> at{};
  std::vector<std::uint32_t> list;  // elements of its longest vector
  std::vector<std::uint32_t> second;
  std::int64_t number = 0;  // an address's displacement, a count
  std::uint32_t target = 0;
  int form = 0;  // what its words before the type say, where one function serves several
  int bytes = 0;
  unsigned line = 0;
};

/// Lanes that go together.
struct Group {
  std::uint32_t pc;
  Mask mask;
  bool arrived = false;  // at the barrier that it waits for
  std::uint64_t ticket = 0;
  bool blocked = false;
};

/// A barrier in shared memory that counts arrivals and bytes.
struct ArrivalBarrier {
  std::uint32_t expected = 0, pending = 0;
  std::int64_t bytes = 0;
  bool phase = false;

  void settle() {
    if (pending == 0 && bytes == 0) {
      phase = !phase;
      pending = expected;
    }
  }
};

/// One of a block's sixteen barriers by number.
struct NumberedBarrier {
  std::uint32_t arrived = 0, wanted = 0;  // threads
  std::uint64_t generation = 0;
  bool all = true, result = true;
};

class Cluster;

/// Work that proceeds beside the warps: TMA's.
struct Copy {
  std::function<void()> happen;
  Warp* owner;  // of a store, which waits for it
  int lane;
  std::uint64_t group;
};

class Block {
 public:
  Block(Cluster& cluster, const Entry& entry, const Launch& launch, unsigned rank);
  void begin(Dim index);

  std::byte* shared(std::uint32_t address, std::size_t bytes);
  ArrivalBarrier& barrier(std::uint32_t address);
  void init_barrier(std::uint32_t address, std::uint32_t count);
  /// Counts `arrivals` of a barrier, and bytes that are to come (or, below zero, have come).
  void count(std::uint32_t address, std::uint32_t arrivals, std::int64_t bytes);
  unsigned live_warps() const;
  /// Throws Fault where it has ended, and its shared memory with it.
  void require_running() const;

  Cluster& cluster;
  const unsigned rank;
  Dim index;
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<NumberedBarrier, 16> numbered;
  /// What setmaxnreg.dec gave back and setmaxnreg.inc takes: registers of a thread, times warps.
  unsigned spare_registers = 0;
  std::byte* memory() { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
  std::unordered_map<std::uint32_t, ArrivalBarrier> barriers_;
};

class Warp {
 public:
  Warp(Block& block, const Entry& entry, const Launch& launch, unsigned number);
  void begin();

  template <typename T>
  T* at(std::uint32_t offset) {
    return reinterpret_cast<T*>(file_.get() + offset);
  }
  Mask& predicate(std::uint32_t index) { return predicates_[index]; }
  Mask carry = 0;  // lanes whose last addition that says so carried, or whose subtraction borrowed

  /// Runs until nothing can proceed, or for about `budget` instructions; false where nothing did.
  bool run(std::uint64_t budget);
  bool done() const { return groups_.empty(); }
  /// Lanes that have not left.
  Mask live() const;
  std::string whereabouts() const;
  [[noreturn]] void fail(const std::string& what) const;

  /// Where a lane's address in the space leads. Throws Fault.
  std::byte* resolve(int space, std::uint64_t address, std::size_t bytes, bool writes, int lane);

  Block& block;
  const Entry& entry;
  const unsigned number;
  Group* group = nullptr;  // whose instruction is executed

  // Copies and products that were begun and may still be under way.
  struct Pending {
    std::function<void()> happen;
    std::uint64_t group;
  };
  std::deque<Pending> copies, products;
  std::uint64_t copy_group = 0, product_group = 0;
  std::array<std::uint64_t, lanes> bulk_group{};
  std::vector<std::byte> polled;  // what its last load that acquires found, and where
  bool polls = false;             // its turn ends behind such a load
  bool in_vain = false;           // which found what it had found before
  Mask refused = 0;  // lanes that a wait has given up on, and that will try again
  unsigned registers = 0;  // of a thread
  std::uint64_t cluster_arrivals = 0, cluster_turns = 0;  // at the cluster's barrier: begun, and waited for

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  bool proceed(std::uint64_t budget);
  void pick();
  void merge();

  const Launch& launch_;
  std::unique_ptr<std::byte, Free> file_, local_;
  std::vector<Mask> predicates_;
  std::vector<Group> groups_;
  std::uint64_t spent_ = 0;
};

/// Blocks that proceed together, and their copies.
class Cluster {
 public:
  Cluster(const Launch& launch, const Chance& chance);
  /// Those of the grid's cluster `number` begin.
  void begin(std::uint64_t number);
  /// Turns of all warps, and copies. False where nothing could proceed. Throws Fault.
  bool proceed();
  bool done() const { return left_ == 0; }
  /// Where every warp that has not ended is.
  std::string whereabouts() const;

  /// Begins a copy: it happens now, or later where the order is shuffled.
  void begin(Copy copy);
  /// Whether copies of that lane up to the group have happened.
  bool happened(const Warp* owner, int lane, std::uint64_t group) const;
  bool shuffled() const { return chance_.shuffled; }
  /// One of its lanes has waited for the kernel in front, or there is none to wait for: all in front has ended.
  bool waited = false;
  std::uint64_t random();

  const Launch& launch;
  std::vector<std::unique_ptr<Block>> blocks;

 private:
  const Chance chance_;
  std::uint64_t state_ = 0;
  std::vector<Copy> copies_;
  std::vector<Warp*> order_;
  std::size_t left_ = 0;  // warps that have not ended
};

/// Memory aligned as shared memory is.
std::byte* allocate(std::size_t bytes);

/// State spaces of addresses.
enum Space : int { generic, global, shared_block, shared_cluster, local, parameter };

/// Bits of addresses in shared memory that name a block of the cluster, from one; zero is one's own.
constexpr int rank_shift = 24;
/// Bits of generic addresses that lie in local memory, and in shared memory.
constexpr std::uint64_t local_window = 0x2000000000000000ull, shared_window = 0x1000000000000000ull;
/// The first bytes of shared memory are the system's.
constexpr std::uint32_t first_shared = 1024;

template <typename F>
inline void each(Mask mask, F f) {
  if (mask == all_lanes) {
    for (int lane = 0; lane < lanes; ++lane) f(lane);
  } else {
    for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
  }
}

}  // namespace emulator
