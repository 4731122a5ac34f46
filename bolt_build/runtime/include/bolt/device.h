// The device layer: all that the runtime must know of the machine an engine runs on. One `src/device_<where>.cpp`
// implements it for each kind of memory that targets name (`Target.where`); an engine contains exactly one of them.
#pragma once

#include <cstddef>
#include <functional>

namespace bolt::device {

/// Writes why device `index` cannot run code built for `arch` into `reason` and returns false, or returns true.
/// Called before anything else: must itself run on any machine of the kind.
bool fits(const char* arch, int index, char* reason, std::size_t reason_bytes) noexcept;

/// Threads that a run uses when the caller asks for `wanted` (0: all that the process may use). Throws Failure.
int threads(int wanted);

/// Binds the calling thread to the device and its number of threads; restores what was there.
class Scope {
 public:
  explicit Scope(int threads) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  int before_;
};

/// Memory that kernels read and write, aligned to 64 bytes at least. Throws std::bad_alloc.
void* allocate(std::size_t bytes);
void release(void* memory) noexcept;

/// Lets `fill` write `bytes` bytes in memory that the CPU sees, and has them in `memory` of allocate() afterwards.
void fill(void* memory, std::size_t bytes, const std::function<void(void*)>& fill);

/// Calls body(0) .. body(count - 1) on the CPU threads of the enclosing Scope. `body` does not throw.
void for_each(int count, const std::function<void(int)>& body);

/// Throws Failure where `stream` is none of this device's.
void check_stream(void* stream);

/// Returns once everything queued on `stream` has finished. Throws Failure where some of it failed.
void wait(void* stream);

}  // namespace bolt::device
