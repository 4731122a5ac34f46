// The device layer of CUDA engines: the CUDA runtime, linked statically, which finds the driver when it is first used.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include "bolt/device.h"
#include "bolt/failure.h"

namespace bolt::device {
namespace {

constexpr int kMostThreads = 1024;

// Threads of the innermost Scope on this thread.
thread_local int scope_threads = 1;

[[noreturn]] void fail(cudaError_t error, const char* what) {
  // What is not fatal to the process must not be found again by the next call that asks.
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw Failure(BOLT_DEVICE_ERROR, std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(error, what);
}

struct Arch {
  int major = 0, minor = 0;
  bool only = false;  // sm_90a: instructions that no later device has
};

// "sm_90a" or "sm_86"; the last digit is the minor number.
bool parse_arch(const char* text, Arch& arch) noexcept {
  if (std::strncmp(text, "sm_", 3) != 0) return false;
  char* end = nullptr;
  const long number = std::strtol(text + 3, &end, 10);
  arch = {static_cast<int>(number / 10), static_cast<int>(number % 10), *end == 'a'};
  return number >= 30 && (*end == '\0' || (arch.only && end[1] == '\0'));
}

bool runs_on(const Arch& built, bool forward, const Arch& found) noexcept {
  if (built.only) return found.major == built.major && found.minor == built.minor;
  if (found.major == built.major) return found.minor >= built.minor;
  return forward && found.major > built.major;
}

bool driver_fits(char* reason, std::size_t bytes) noexcept {
  int driver = 0;
  const cudaError_t error = cudaDriverGetVersion(&driver);
  if (error != cudaSuccess || driver == 0) {
    std::snprintf(reason, bytes, "no NVIDIA driver is installed, which this engine needs%s%s", error == cudaSuccess ? "" : ": ",
                  error == cudaSuccess ? "" : cudaGetErrorString(error));
    return false;
  }
  if (driver / 1000 < CUDART_VERSION / 1000) {
    std::snprintf(reason, bytes, "the NVIDIA driver is made for CUDA %d.%d: this engine needs one for CUDA %d.%d or later",
                  driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return false;
  }
  return true;
}

bool exists(int index, char* reason, std::size_t bytes) noexcept {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    std::snprintf(reason, bytes, "there is no GPU that CUDA can use%s%s", error == cudaSuccess ? "" : ": ",
                  error == cudaSuccess ? "" : cudaGetErrorString(error));
    return false;
  }
  if (index < 0 || index >= count) {
    std::snprintf(reason, bytes, "GPU %d does not exist: CUDA sees %d, counted from 0", index, count);
    return false;
  }
  return true;
}

}  // namespace

bool fits(const Needs& needs, int index, char* reason, std::size_t reason_bytes) noexcept {
  Arch built;
  if (!parse_arch(needs.arch, built)) {
    std::snprintf(reason, reason_bytes, "this engine was built for '%s', which is no kind of GPU that it can check for",
                  needs.arch);
    return false;
  }
  if (!driver_fits(reason, reason_bytes) || !exists(index, reason, reason_bytes)) return false;
  cudaDeviceProp found;
  const cudaError_t error = cudaGetDeviceProperties(&found, index);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    std::snprintf(reason, reason_bytes, "GPU %d does not say what it is: %s", index, cudaGetErrorString(error));
    return false;
  }
  if (!runs_on(built, needs.forward, {found.major, found.minor, false})) {
    std::snprintf(reason, reason_bytes, "GPU %d (%s, compute capability %d.%d) cannot run this engine, which was built for %d.%d%s",
                  index, found.name, found.major, found.minor, built.major, built.minor,
                  needs.forward ? " and later"
                  : built.only  ? " alone"
                                : "");
    return false;
  }
  if (found.sharedMemPerBlockOptin < needs.shared_bytes) {
    std::snprintf(reason, reason_bytes, "GPU %d (%s) is too small: a block has %zu bytes of shared memory, this engine needs %zu",
                  index, found.name, found.sharedMemPerBlockOptin, needs.shared_bytes);
    return false;
  }
  if (found.totalGlobalMem < needs.memory_bytes) {
    std::snprintf(reason, reason_bytes, "GPU %d (%s) is too small: it has %zu bytes of memory, this engine needs more than %llu",
                  index, found.name, found.totalGlobalMem, static_cast<unsigned long long>(needs.memory_bytes));
    return false;
  }
  return true;
}

// Only weights are read by CPU threads.
int threads(int wanted) {
  if (wanted < 0 || wanted > kMostThreads) {
    throw Failure(BOLT_INVALID_ARGUMENT, "threads is " + std::to_string(wanted) +
                                             ": give 0 for as many as the process may use, or 1 to " +
                                             std::to_string(kMostThreads));
  }
  if (wanted > 0) return wanted;
  const unsigned found = std::thread::hardware_concurrency();
  return found == 0 ? 1 : static_cast<int>(found);
}

Scope::Scope(int index, int threads) : before_device_(0), before_threads_(scope_threads) {
  check(cudaGetDevice(&before_device_), "asking for the current GPU failed");
  if (before_device_ != index) check(cudaSetDevice(index), "choosing the GPU failed");
  scope_threads = threads;
}

Scope::~Scope() {
  scope_threads = before_threads_;
  int now = before_device_;
  if (cudaGetDevice(&now) == cudaSuccess && now != before_device_) static_cast<void>(cudaSetDevice(before_device_));
}

void use_threads(int) {}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "allocating memory of the GPU failed");
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr && cudaFree(memory) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

// Memory of the CPU: looking at it waits for nothing. A kernel writes it over the bus, but only where something is wrong.
std::uint32_t* watched() {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(std::uint32_t), cudaHostAllocMapped), "allocating memory that the GPU sees failed");
  auto* word = static_cast<std::uint32_t*>(memory);
  *word = 0;
  return word;
}

void unwatch(std::uint32_t* word) noexcept {
  if (cudaFreeHost(word) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

void fill(void* memory, std::size_t bytes, FunctionRef<void(void*)> fill) {
  struct Free {
    void operator()(void* at) const { std::free(at); }
  };
  constexpr std::size_t kAlignment = 64;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::unique_ptr<void, Free> seen(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded));
  if (seen == nullptr) throw std::bad_alloc();
  fill(seen.get());
  if (bytes == 0) return;
  check(cudaMemcpy(memory, seen.get(), bytes, cudaMemcpyHostToDevice), "copying to the GPU failed");
  // That returns once the bytes have left `seen`. Streams of the caller need not wait for the default one, which has them.
  check(cudaStreamSynchronize(nullptr), "copying to the GPU failed");
}

void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), "queueing a copy failed");
}

void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t rows,
               void* stream) {
  check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
        "queueing a copy failed");
}

void zero(void* memory, std::size_t bytes, void* stream) {
  check(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream)), "queueing zeros failed");
}

void for_each(int count, FunctionRef<void(int)> body) {
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < scope_threads && i < count; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // Where no more threads may be made, those there are do the work.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

// A stream is a pointer that only the driver understands.
void check_stream(void*) {}

void check_queued() { check(cudaGetLastError(), "queueing a kernel failed"); }

// Kernels load 16 bytes at once, and TMA knows no other places.
std::size_t alignment() noexcept { return 16; }

void wait(void* stream) { check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "the GPU reports"); }

#ifndef BOLT_OVERLAPS
#error "who compiles this says whether kernels of the target's GPU may begin before the one in front has ended"
#endif
bool overlaps() noexcept { return BOLT_OVERLAPS != 0; }

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

struct DestroyExec {
  void operator()(cudaGraphExec_t ready) const { static_cast<void>(cudaGraphExecDestroy(ready)); }
};
using Exec = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyExec>;

struct DestroyStream {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

Stream make_stream() {
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream failed");
  return Stream(made);
}

Event make_event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreate(&made), "making an event failed");
  return Event(made);
}

// What `queue` queues, as a graph. Other threads may go on calling CUDA meanwhile.
Graph record(cudaStream_t on, FunctionRef<void(void*)> queue) {
  check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "recording a graph failed");
  cudaGraph_t graph = nullptr;
  try {
    queue(on);
  } catch (...) {
    if (cudaStreamEndCapture(on, &graph) == cudaSuccess) static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  check(cudaStreamEndCapture(on, &graph), "recording a graph failed");
  return Graph(graph);
}

Exec instantiate(const Graph& graph) {
  cudaGraphExec_t made = nullptr;
  check(cudaGraphInstantiate(&made, graph.get(), 0), "preparing a graph failed");
  return Exec(made);
}

}  // namespace

double seconds(void* stream, int repeats, FunctionRef<void(void*)> queue) {
  const auto on = static_cast<cudaStream_t>(stream);
  const Stream capture = make_stream();
  const Exec ready = instantiate(record(capture.get(), [&](void* to) {
    for (int i = 0; i < repeats; ++i) queue(to);
  }));
  const Event begin = make_event(), end = make_event();
  check(cudaGraphLaunch(ready.get(), on), "launching the graph failed");
  check(cudaEventRecord(begin.get(), on), "recording an event failed");
  check(cudaGraphLaunch(ready.get(), on), "launching the graph failed");
  check(cudaEventRecord(end.get(), on), "recording an event failed");
  check(cudaEventSynchronize(end.get()), "the GPU reports");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "the GPU reports");
  return 1e-3 * static_cast<double>(milliseconds) / repeats;
}

struct Recording::State {
  Stream capture = make_stream();
  Exec ready;
  bool stale = false;  // the buffers noted last are not those of the recording

  void make_ready(const Graph& graph) {
    if (ready != nullptr) {
      // Other pointers in the same kernels: the plays that are under way keep theirs.
      cudaGraphExecUpdateResultInfo result;
      if (cudaGraphExecUpdate(ready.get(), graph.get(), &result) == cudaSuccess) return;
      static_cast<void>(cudaGetLastError());
      // Plays of a new executable graph would not wait for those of the old one.
      check(cudaDeviceSynchronize(), "the GPU reports");
    }
    ready = instantiate(graph);
  }
};

Recording::Recording() = default;
Recording::~Recording() = default;

void Recording::play(void* stream, bool changed, FunctionRef<void(void*)> queue) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (on != nullptr) {
    // A caller who records a graph of its own gets the kernels themselves: a graph cannot be launched into a recording.
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(on, &status), "asking the stream failed");
    if (status == cudaStreamCaptureStatusActive) {
      if (state_ != nullptr) state_->stale = true;
      return queue(stream);
    }
  }
  if (state_ == nullptr || state_->ready == nullptr || state_->stale || changed) {
    if (state_ == nullptr) state_ = std::make_unique<State>();
    state_->make_ready(record(state_->capture.get(), queue));
    state_->stale = false;
  }
  check(cudaGraphLaunch(state_->ready.get(), on), "launching the graph failed");
}

}  // namespace bolt::device
