// Kernels that may begin before those in front of them have ended: what they touch until they have waited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace emulator {

/// Global memory that was written, in lines of 64 bytes.
class Written {
 public:
  void add(std::uintptr_t from, std::size_t bytes);
  bool meets(std::uintptr_t from, std::size_t bytes) const;
  void add(const Written& other);
  void clear() {
    pages_.clear();
    last_lines_ = nullptr;
  }

 private:
  std::unordered_map<std::uintptr_t, std::uint64_t> pages_;  // a bit for each line of a page
  std::uintptr_t last_ = 0;
  std::uint64_t* last_lines_ = nullptr;
};

/// The same of a stream, since a kernel that began when all in front had ended. Kernels of one stream run in turn; a
/// recording may be played on several.
struct InFront {
  std::mutex mutex;
  Written written;
};

/// What this thread's kernel may touch, and has touched. `waited` is nullptr where no kernel runs.
struct Accesses {
  const bool* waited = nullptr;
  const Written* in_front = nullptr;
  Written own;
  bool lets_next_early = false;  // it has let the next kernel begin before it waited for those in front
};
Accesses& accesses();

/// Throws Fault where the kernel has not waited, and writes, or reads what a kernel in front has written.
void note_access(const void* address, std::size_t bytes, bool writes);

}  // namespace emulator
