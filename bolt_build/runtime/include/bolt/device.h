// The device layer: all that the runtime must know of the machine an engine runs on. One `src/device_<where>.cpp`
// implements it for each kind of memory that targets name (`Target.where`); an engine contains exactly one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bolt/function_ref.h"

namespace bolt::device {

/// What an engine asks of a device. `forward`: it also runs on later kinds of device than `arch`. `shared_bytes` is the
/// largest block of on-chip memory that a kernel may take, `memory_bytes` the least device memory it can work with.
struct Needs {
  const char* arch;
  bool forward;
  std::size_t shared_bytes;
  std::uint64_t memory_bytes;
};

/// Writes why device `index` cannot run an engine with these needs into `reason` and returns false, or returns true.
/// Called before anything else: must itself run on any machine of the kind.
bool fits(const Needs& needs, int index, char* reason, std::size_t reason_bytes) noexcept;

/// Threads that a run uses when the caller asks for `wanted` (0: all that the process may use). Throws Failure.
int threads(int wanted);

/// What this process's threads have had of the CPUs: seconds, and times that they were taken off before they had to wait.
struct Usage {
  double seconds = 0;
  long preemptions = 0;
};

/// Binds the calling thread to device `index` and its number of threads; restores what was there.
class Scope {
 public:
  Scope(int index, int threads);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  int before_device_;
  int before_threads_;
  int threads_ = 0;
  Usage before_;  // left empty where runs take no time of the CPU
};

/// Threads that kernels made from now on in the enclosing Scope will have; nothing where they have none of the CPU's.
void use_threads(int threads);

/// Memory of the enclosing Scope's device that kernels read and write, aligned to 64 bytes at least. Throws
/// std::bad_alloc.
void* allocate(std::size_t bytes);
void release(void* memory) noexcept;

/// Lets `fill` write `bytes` bytes in memory that the CPU sees, and has them in `memory` of allocate() afterwards.
void fill(void* memory, std::size_t bytes, FunctionRef<void(void*)> fill);

/// A word that kernels write and the CPU reads whenever it likes, 0 at first; null on a device whose kernels can throw.
/// Throws std::bad_alloc.
std::uint32_t* watched();
void unwatch(std::uint32_t* word) noexcept;

/// Queues a copy on `stream`; either end may be memory of the device or of the CPU. Throws Failure.
void copy(void* to, const void* from, std::size_t bytes, void* stream);

/// Queues `rows` copies of `width` bytes each, whose ends lie `to_pitch` and `from_pitch` bytes apart. Throws Failure.
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t rows,
               void* stream);

/// Queues zeros into memory of the device. Throws Failure.
void zero(void* memory, std::size_t bytes, void* stream);

/// Calls body(0) .. body(count - 1) on the CPU threads of the enclosing Scope. `body` does not throw.
void for_each(int count, FunctionRef<void(int)> body);

/// Throws Failure where `stream` is none of this device's.
void check_stream(void* stream);

/// What the addresses of the caller's buffers must be multiples of.
std::size_t alignment() noexcept;

/// Throws Failure where a kernel that this thread queued could not be queued.
void check_queued();

/// Returns once everything queued on `stream` has finished. Throws Failure where some of it failed.
void wait(void* stream);

/// Whether kernels of the engine's target can begin before the kernel in front of them has finished.
bool overlaps() noexcept;

/// Seconds that one of `repeats` executions of what `queue` queues takes on the device, the CPU's part left out where the
/// device can work without it. Waits for them. Throws Failure, and what `queue` throws.
double seconds(void* stream, int repeats, FunctionRef<void(void* stream)> queue);

/// What a plan queues, recorded where the device can record (a CUDA graph) and played again without the plan. Plays of
/// one recording do not overlap, whatever their streams.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Queues on `stream` what `queue` queues on the stream that it is given. It is asked anew where there is no
  /// recording yet or it has `changed` since. Throws Failure, and what `queue` throws.
  void play(void* stream, bool changed, FunctionRef<void(void* stream)> queue);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bolt::device
