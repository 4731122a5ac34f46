// Runs one kernel on the device between guards, and times it over several sets of buffers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bolt/function_ref.h"
#include "bolt/plan.h"

namespace trials {

constexpr std::size_t guard = 256;

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Device memory between two guards; poisoned, or a copy of what the host gives.
class Buffer {
 public:
  Buffer(std::size_t bytes, const void* from) : bytes_(bytes) {
    check(cudaMalloc(&memory_, bytes + 2 * guard), "cudaMalloc");
    check(cudaMemset(memory_, 0xff, bytes + 2 * guard), "cudaMemset");
    if (from != nullptr) check(cudaMemcpy(data(), from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Buffer() { cudaFree(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return static_cast<char*>(memory_) + guard; }
  std::size_t bytes() const { return bytes_; }

  void require_guards(const char* what) const {
    std::vector<unsigned char> host(guard);
    for (const std::size_t at : {std::size_t{0}, guard + bytes_}) {
      check(cudaMemcpy(host.data(), static_cast<char*>(memory_) + at, guard, cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (std::any_of(host.begin(), host.end(), [](unsigned char byte) { return byte != 0xff; }))
        throw std::runtime_error(std::string("wrote ") + (at == 0 ? "before " : "behind ") + what);
    }
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

/// Run::counters: zero, as every kernel leaves them.
class Counters {
 public:
  Counters() : buffer_(bolt::counter_bytes, zeros().data()) {}
  std::uint32_t* data() const { return static_cast<std::uint32_t*>(buffer_.data()); }
  void require_zero() const {
    std::vector<char> host(bolt::counter_bytes);
    check(cudaMemcpy(host.data(), buffer_.data(), host.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (host != zeros()) throw std::runtime_error("left counters that are not zero");
    buffer_.require_guards("its counters");
  }

 private:
  static std::vector<char> zeros() { return std::vector<char>(bolt::counter_bytes); }
  Buffer buffer_;
};

/// Writes what kernels read, as a kernel in front of them does: they may begin before it has ended.
inline __global__ void leave(const char* from, char* to, std::size_t count) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

class Preparing : public bolt::Prepare {
 public:
  explicit Preparing(const void* const* inputs) : inputs_(inputs) {}
  int threads() const override { return 1; }
  const void* weight(int index) const override { return inputs_[index]; }
  std::shared_ptr<const void> shared(const std::string&, std::size_t bytes,
                                     bolt::FunctionRef<void(void*)> fill) const override {
    std::vector<char> host(bytes);
    fill(host.data());
    auto buffer = std::make_shared<Buffer>(bytes, host.data());
    return {buffer, buffer->data()};
  }

 private:
  const void* const* inputs_;
};

struct Given {
  const void* const* inputs;  // of the host
  const std::size_t* bytes;
  int count;
  void* output;  // of the host
  std::size_t output_bytes;
  int sets;      // of buffers to time with; 0: not timed
  int shared;    // input whose memory is the output's, -1 for none
  unsigned left;  // inputs that a kernel in front leaves, a bit each; others are there from the start
  int overlap;    // 1: it may begin before that kernel has ended, as in engines for GPUs whose kernels can wait
  float* microseconds;
  std::int64_t there;  // Run::sizes of dimension 1; 0: none are told
  int launches;        // one behind the other, where they are not timed
  double seconds;      // to go on timing for, without a pause: the second half counts; 0: a few replays
};

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Microseconds of a launch: the median of some replays, or of those in the second half of so many `seconds`.
template <typename Launch>
float timed(const Launch& launch, int sets, cudaStream_t stream, double seconds) {
  const int least = seconds > 0 ? 64 : 8, launches = (std::max(sets, least) + sets - 1) / sets * sets;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) launch(i % sets);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&replay, graph, 0), "instantiate");
  check(cudaGraphLaunch(replay, stream), "launch");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> found;
  const double began = now();
  bool half = seconds <= 0;
  while (found.size() < 7 || now() - began < seconds) {
    if (!half && now() - began >= seconds / 2) {
      half = true;
      found.clear();
    }
    float milliseconds;
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(replay, stream);
    cudaEventRecord(end, stream);
    check(cudaEventSynchronize(end), "replay");
    cudaEventElapsedTime(&milliseconds, begin, end);
    found.push_back(milliseconds * 1000.0f / launches);
  }
  std::sort(found.begin(), found.end());
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return found[found.size() / 2];
}

/// Compiled once for all kernels: `call` queues one, which wants so much scratch memory.
inline void run(const Given& given, std::size_t scratch_bytes, bolt::FunctionRef<void(const bolt::Run&)> call) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  {
    const int sets = std::max(given.sets, 1);
    const Buffer scratch(scratch_bytes, nullptr);
    struct Set {
      std::vector<std::unique_ptr<Buffer>> inputs;
      std::unique_ptr<Buffer> output;
      std::vector<const void*> pointers;
      std::vector<void*> outputs;
      bolt::Run run;
    };
    const std::int64_t told[] = {1, given.there};
    const Buffer sizes(sizeof told, told);
    const Counters counters;
    std::vector<Set> all(sets);
    for (Set& set : all) {
      const void* shared = given.shared < 0 ? nullptr : given.inputs[given.shared];
      set.output = std::make_unique<Buffer>(given.output_bytes, shared);
      for (int i = 0; i < given.count; ++i) {
        set.inputs.push_back(std::make_unique<Buffer>(given.bytes[i], given.inputs[i]));
        set.pointers.push_back(set.inputs.back()->data());
      }
      set.outputs.push_back(set.output->data());
      set.run.arena_base = nullptr;
      set.run.scratch_base = static_cast<std::byte*>(scratch.data());
      set.run.inputs = set.pointers.data();
      set.run.weights = set.pointers.data();
      set.run.outputs = set.outputs.data();
      set.run.stream = stream;
      set.run.threads = 1;
      set.run.counters = counters.data();
      set.run.sizes = given.there == 0 ? nullptr : static_cast<const std::int64_t*>(sizes.data());
    }
    if (given.sets == 0) {
      // Guards and poison stay; what is shared is the output.
      std::vector<std::unique_ptr<Buffer>> kept;
      for (int i = 0; i < given.count; ++i) {
        if ((given.left >> i & 1) == 0) continue;
        const Buffer& to = i == given.shared ? *all[0].output : *all[0].inputs[i];
        kept.push_back(std::make_unique<Buffer>(given.bytes[i], given.inputs[i]));
        check(cudaMemsetAsync(to.data(), 0xff, given.bytes[i], stream), "cudaMemset");
        const unsigned blocks = static_cast<unsigned>((given.bytes[i] + 255) / 256);
        if (blocks > 0)
          leave<<<blocks, 256, 0, stream>>>(static_cast<const char*>(kept.back()->data()), static_cast<char*>(to.data()),
                                            given.bytes[i]);
      }
      all[0].run.overlap = given.overlap != 0;
      for (int i = 0; i < given.launches; ++i) {
        if (i > 0 && i == given.launches - 1) {
          // What those before have left is not to stand for what the last one leaves.
          check(cudaMemsetAsync(scratch.data(), 0xff, scratch.bytes(), stream), "cudaMemset");
          check(cudaMemsetAsync(all[0].output->data(), 0xff, given.output_bytes, stream), "cudaMemset");
        }
        call(all[0].run);
      }
      check(cudaStreamSynchronize(stream), "run");
    } else {
      call(all[0].run);
      check(cudaStreamSynchronize(stream), "run");
    }
    check(cudaMemcpy(given.output, all[0].output->data(), given.output_bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    all[0].output->require_guards("its output");
    scratch.require_guards("its scratch memory");
    counters.require_zero();
    for (int i = 0; i < given.count; ++i) {
      all[0].inputs[i]->require_guards("an input");
      std::vector<char> after(given.bytes[i]);
      check(cudaMemcpy(after.data(), all[0].pointers[i], after.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (std::memcmp(after.data(), given.inputs[i], after.size()) != 0) throw std::runtime_error("wrote into an input");
    }
    if (given.sets > 0)
      *given.microseconds = timed([&](int set) { call(all[set].run); }, sets, stream, given.seconds);
  }
  cudaStreamDestroy(stream);
}

/// `make(prepare)` gives the kernel; `call(kernel, run)` queues it; `scratch(kernel)` is what it wants.
template <typename Make, typename Scratch, typename Call>
void run(const Given& given, const Make& make, const Scratch& scratch_of, const Call& call) {
  const Preparing prepare(given.inputs);
  const auto kernel = make(prepare);
  run(given, scratch_of(kernel), [&](const bolt::Run& r) { call(kernel, r); });
}

template <typename Body>
int guarded(char* message, std::size_t room, const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::strncpy(message, error.what(), room - 1);
    return 1;
  }
}

}  // namespace trials
