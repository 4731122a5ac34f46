// The device layer of CPU engines: malloc'd memory, OpenMP threads, no streams.
#include <omp.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "bolt/device.h"
#include "bolt/failure.h"
#include "bolt/waiting.h"

namespace bolt::device {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kMostThreads = 1024;

enum class Support { yes, no, unknown };

// Baseline code: this runs before it is known that the machine has what the rest was compiled for.
__attribute__((target("arch=x86-64"))) Support support(const char* arch) noexcept {
  __builtin_cpu_init();
  if (std::strcmp(arch, "x86-64") == 0) return Support::yes;
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (std::strcmp(arch, "x86-64-v2") == 0) return v2 ? Support::yes : Support::no;
  if (std::strcmp(arch, "x86-64-v3") == 0) return v3 ? Support::yes : Support::no;
  if (std::strcmp(arch, "x86-64-v4") == 0) return v4 ? Support::yes : Support::no;
  return Support::unknown;
}

Waiting& waiting() {
  static Waiting of_this_engine;
  return of_this_engine;
}

}  // namespace

__attribute__((target("arch=x86-64"))) bool fits(const Needs& needs, int index, char* reason, std::size_t reason_bytes) noexcept {
  const char* arch = needs.arch;
  if (index != 0) {
    std::snprintf(reason, reason_bytes, "device %d does not exist: a CPU engine has device 0 alone", index);
    return false;
  }
  switch (support(arch)) {
    case Support::yes: return true;
    case Support::no:
      std::snprintf(reason, reason_bytes, "this CPU lacks instructions of %s, which this engine was built for", arch);
      return false;
    case Support::unknown: break;
  }
  std::snprintf(reason, reason_bytes, "this engine was built for '%s', which is no kind of CPU that it can check for", arch);
  return false;
}

int threads(int wanted) {
  if (wanted < 0 || wanted > kMostThreads) {
    throw Failure(BOLT_INVALID_ARGUMENT, "threads is " + std::to_string(wanted) +
                                             ": give 0 for as many as the process may use, or 1 to " +
                                             std::to_string(kMostThreads));
  }
  if (wanted > 0) return wanted;
  const int available = omp_get_num_procs();
  const int limit = omp_get_thread_limit();
  return available < limit ? available : limit;
}

Scope::Scope(int, int threads)
    : before_device_(0), before_threads_(omp_get_max_threads()), threads_(threads), before_(usage()) {
  end_teams_before_forks();
  waiting().begins(threads);
  omp_set_num_threads(threads);
}

Scope::~Scope() {
  omp_set_num_threads(before_threads_);
  waiting().ended(threads_, before_, usage());
}

void use_threads(int threads) { omp_set_num_threads(threads); }

void* allocate(std::size_t bytes) {
  // Large buffers start on a huge page and ask for such, so that streaming over them costs few TLB misses.
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  if (bytes > PTRDIFF_MAX - alignment) throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) static_cast<void>(madvise(memory, rounded, MADV_HUGEPAGE));
  return memory;
}

void release(void* memory) noexcept { std::free(memory); }

std::uint32_t* watched() { return nullptr; }

void unwatch(std::uint32_t*) noexcept {}

void fill(void* memory, std::size_t, FunctionRef<void(void*)> fill) { fill(memory); }

void copy(void* to, const void* from, std::size_t bytes, void*) { std::memcpy(to, from, bytes); }

void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t rows,
               void*) {
  for (std::size_t row = 0; row < rows; ++row)
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
}

void zero(void* memory, std::size_t bytes, void*) { std::memset(memory, 0, bytes); }

void for_each(int count, FunctionRef<void(int)> body) {
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < count; ++i) body(i);
}

void check_stream(void* stream) {
  if (stream != nullptr) throw Failure(BOLT_INVALID_ARGUMENT, "stream is not NULL: a CPU engine has no streams");
}

void check_queued() {}

std::size_t alignment() noexcept { return 1; }

void wait(void*) {}

bool overlaps() noexcept { return false; }

double seconds(void* stream, int repeats, FunctionRef<void(void*)> queue) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < repeats; ++i) queue(stream);
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

// Nothing is queued on a CPU: every play is a run.
struct Recording::State {};
Recording::Recording() = default;
Recording::~Recording() = default;
void Recording::play(void* stream, bool, FunctionRef<void(void*)> queue) { queue(stream); }

}  // namespace bolt::device
