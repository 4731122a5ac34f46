#include "streams.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "context.h"
#include "handles.h"
#include "overlap.h"

struct CUstream_st {
  std::unique_ptr<CUgraph_st> recording;  // nullptr where it does not record
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  std::thread::id recorded_by;
  bool spoiled = false;
  emulator::InFront in_front;
};

namespace emulator {
namespace {

// Streams by which this thread records, unless in the mode that allows everything. Threads do not wait for each other
// here: the mode that forbids as much to all of them is as this thread's alone.
thread_local std::vector<CUstream_st*> recording_here;

// The default streams, which cannot record.
bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

[[noreturn]] void spoil(CUstream_st& stream) {
  stream.spoiled = true;
  throw CallError{cudaErrorStreamCaptureUnsupported};
}

// Which order the next launch takes, by the environment.
Chance chance() {
  const char* const seed = std::getenv("EMULATED_SEED");
  static std::atomic<std::uint64_t> launches{0};
  if (seed == nullptr) return {};
  const std::uint64_t number = std::strtoull(seed, nullptr, 10);
  return {number << 32 | launches++, true, number % 2 == 1};
}

struct Perform {
  InFront& in_front;
  void operator()(const Launch& launch) const {
    if (lost() != cudaSuccess) return;
    try {
      run(launch, chance(), in_front);
    } catch (...) {
      // Known to whoever asks next, as behind a real launch.
      handled();
    }
  }
  void operator()(const CopyWork& copy) const {
    if (copy.to_device) require_global(copy.to, copy.bytes, true);
    if (copy.from_device) require_global(copy.from, copy.bytes, false);
    std::memmove(copy.to, copy.from, copy.bytes);
  }
  void operator()(const FillWork& fill) const {
    require_global(fill.to, fill.bytes, true);
    std::memset(fill.to, fill.value, fill.bytes);
  }
};

}  // namespace

namespace {

InFront& in_front_of(cudaStream_t stream) {
  static InFront& of_default = *new InFront;
  return is_default(stream) ? of_default : handles<CUstream_st>().at(stream).in_front;
}

}  // namespace

void everything_has_ended(cudaStream_t stream) {
  InFront& in_front = in_front_of(stream);
  const std::lock_guard lock(in_front.mutex);
  in_front.written.clear();
}

void everything_has_ended() {
  everything_has_ended(nullptr);
  handles<CUstream_st>().each([](CUstream_st& stream) {
    const std::lock_guard lock(stream.in_front.mutex);
    stream.in_front.written.clear();
  });
}

void perform(const Work& work, cudaStream_t stream) {
  // Copies wait for every kernel in front of them, and what is behind a copy waits for that.
  if (!std::holds_alternative<Launch>(work)) everything_has_ended(stream);
  std::visit(Perform{in_front_of(stream)}, work);
}

void queue(cudaStream_t stream, Work work) {
  if (!is_recording(stream)) return perform(work, stream);
  CUstream_st& to = handles<CUstream_st>().at(stream);
  require(!to.spoiled, cudaErrorStreamCaptureInvalidated);
  to.recording->nodes.push_back(std::move(work));
}

bool is_recording(cudaStream_t stream) {
  return !is_default(stream) && handles<CUstream_st>().at(stream).recording != nullptr;
}

void require_no_recording() {
  for (CUstream_st* stream : recording_here) stream->spoiled = true;
  require(recording_here.empty(), cudaErrorStreamCaptureUnsupported);
}

void require_not_recording(cudaStream_t stream) {
  if (is_recording(stream)) spoil(*stream);
}

}  // namespace emulator

using namespace emulator;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&] {
    require(stream != nullptr && flags <= cudaStreamNonBlocking, cudaErrorInvalidValue);
    *stream = handles<CUstream_st>().add(std::make_unique<CUstream_st>());
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&] {
    require(!is_default(stream), cudaErrorInvalidResourceHandle);
    recording_here.erase(std::remove(recording_here.begin(), recording_here.end(), stream), recording_here.end());
    handles<CUstream_st>().remove(stream);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] {
    require_not_recording(stream);
    everything_has_ended(stream);
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([] {
    require_no_recording();
    everything_has_ended();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&] {
    require(!is_default(stream), cudaErrorStreamCaptureUnsupported);
    CUstream_st& on = handles<CUstream_st>().at(stream);
    require(on.recording == nullptr, cudaErrorIllegalState);
    on.recording = std::make_unique<CUgraph_st>();
    on.mode = mode;
    on.recorded_by = std::this_thread::get_id();
    on.spoiled = false;
    if (mode != cudaStreamCaptureModeRelaxed) recording_here.push_back(stream);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&] {
    require(graph != nullptr, cudaErrorInvalidValue);
    require(is_recording(stream), cudaErrorIllegalState);
    CUstream_st& on = handles<CUstream_st>().at(stream);
    require(on.mode == cudaStreamCaptureModeRelaxed || on.recorded_by == std::this_thread::get_id(),
            cudaErrorStreamCaptureWrongThread);
    recording_here.erase(std::remove(recording_here.begin(), recording_here.end(), stream), recording_here.end());
    std::unique_ptr<CUgraph_st> recorded = std::move(on.recording);
    *graph = nullptr;
    require(!on.spoiled, cudaErrorStreamCaptureInvalidated);
    *graph = handles<CUgraph_st>().add(std::move(recorded));
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call([&] {
    require(status != nullptr, cudaErrorInvalidValue);
    *status = !is_recording(stream) ? cudaStreamCaptureStatusNone
              : stream->spoiled     ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
  });
}
