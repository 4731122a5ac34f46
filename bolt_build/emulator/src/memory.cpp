#include "memory.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "machine.h"
#include "overlap.h"

namespace emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;  // that cudaMalloc promises
static_assert(kPage % kAlignment == 0);
constexpr int kPoison = 0xff;  // NaN in every format: real memory is not zero either

// Empty: before everything.
struct Range {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  std::uintptr_t end() const { return begin + size; }
  bool contains(std::uintptr_t from, std::size_t bytes) const {
    const std::size_t at = from - begin;
    return at < size && bytes <= size - at;
  }
};

// Counts the allocations that are no longer.
constinit std::atomic<std::uint64_t> generation{1};

struct Allocation {
  std::size_t bytes;
  std::size_t mapped;  // with the pages around it; 0: somebody else's
};

class Memory {
 public:
  void* allocate(std::size_t bytes) {
    // One page before, one behind, whatever the rest of the last one.
    const std::size_t mapped = (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
    const std::unique_lock lock(mutex_);
    if (bytes > kDeviceMemory - used_) return nullptr;
    void* const all = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    char* const memory = static_cast<char*>(all) + kPage;
    if (mprotect(memory, mapped - 2 * kPage, PROT_READ | PROT_WRITE) != 0) {
      munmap(all, mapped);
      return nullptr;
    }
    std::memset(memory, kPoison, bytes);
    used_ += bytes;
    allocations_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, mapped};
    return memory;
  }

  bool release(void* memory) {
    const std::unique_lock lock(mutex_);
    const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == allocations_.end() || found->second.mapped == 0) return false;
    used_ -= found->second.bytes;
    // Its addresses stay taken, so that what is used too late is nobody else's.
    const std::size_t usable = found->second.mapped - 2 * kPage;
    madvise(memory, usable, MADV_DONTNEED);
    mprotect(memory, usable, PROT_NONE);
    remove(found);
    return true;
  }

  void allow(const void* memory, std::size_t bytes) {
    const std::unique_lock lock(mutex_);
    allocations_.try_emplace(reinterpret_cast<std::uintptr_t>(memory), Allocation{bytes, 0});
  }

  void forbid(const void* memory) {
    const std::unique_lock lock(mutex_);
    const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found != allocations_.end() && found->second.mapped == 0) remove(found);
  }

  std::size_t left() {
    const std::shared_lock lock(mutex_);
    return kDeviceMemory - used_;
  }

  /// The allocation that begins last at or before the address; empty where none does.
  Range around(std::uintptr_t address) {
    const std::shared_lock lock(mutex_);
    const auto next = allocations_.upper_bound(address);
    if (next == allocations_.begin()) return {};
    const auto& [begin, allocation] = *std::prev(next);
    return {begin, allocation.bytes};
  }

 private:
  using Allocations = std::map<std::uintptr_t, Allocation>;
  void remove(Allocations::iterator allocation) {
    allocations_.erase(allocation);
    generation.fetch_add(1, std::memory_order_release);
  }

  std::shared_mutex mutex_;
  Allocations allocations_;
  std::size_t used_ = 0;
};

// Never destroyed: programs free memory while they end.
Memory& memory() {
  static Memory& only = *new Memory;
  return only;
}

// The allocations that this thread touched last: a kernel goes to and fro between a few.
struct Recent {
  std::uint64_t generation = 0;
  std::array<Range, 4> ranges{};

  // The one that was touched comes first: lanes of a warp ask for their neighbours'.
  bool contains(std::uintptr_t from, std::size_t bytes) {
    if (ranges[0].contains(from, bytes)) return true;
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (!ranges[i].contains(from, bytes)) continue;
      std::swap(ranges[0], ranges[i]);
      return true;
    }
    return false;
  }
  void add(const Range& range) {
    ranges.back() = range;
    std::swap(ranges.front(), ranges.back());
  }
};
constinit thread_local Recent recent;

bool find(std::uintptr_t from, std::size_t bytes) {
  Recent& known = recent;
  if (const std::uint64_t now = generation.load(std::memory_order_acquire); known.generation != now) known = {now, {}};
  if (known.contains(from, bytes)) [[likely]]
    return true;
  const Range range = memory().around(from);
  if (!range.contains(from, bytes)) return false;
  known.add(range);
  return true;
}

std::string hexadecimal(std::uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

void* allocate_global(std::size_t bytes) { return memory().allocate(bytes); }
bool release_global(void* address) { return memory().release(address); }
std::size_t free_global() { return memory().left(); }
void allow_global(const void* address, std::size_t bytes) { memory().allow(address, bytes); }
void forbid_global(const void* address) { memory().forbid(address); }
bool is_global(const void* address, std::size_t bytes) {
  return find(reinterpret_cast<std::uintptr_t>(address), bytes);
}

void require_global(const void* address, std::size_t bytes, bool writes) {
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  if (find(from, bytes)) [[likely]]
    return note_access(address, bytes, writes);
  std::string text = std::to_string(bytes) + " bytes of global memory " + (writes ? "written" : "read") + " at ";
  text += hexadecimal(from);
  const Range before = memory().around(from);
  const std::string allocation = "an allocation of " + std::to_string(before.size) + " at " + hexadecimal(before.begin);
  if (before.begin == 0)
    text += ", before all that is allocated";
  else if (from < before.end())
    text += ", beyond the end of " + allocation;
  else
    text += ", " + std::to_string(from - before.end()) + " behind " + allocation;
  throw IllegalAddress(text);
}

}  // namespace emulator
