#include <chrono>
#include <memory>

#include "context.h"
#include "handles.h"
#include "streams.h"

struct CUevent_st {
  enum class State { fresh, passed, recorded_in_graph };
  State state = State::fresh;
  std::chrono::steady_clock::time_point when;  // by the host's clock: nothing of a device's time is known
};

using namespace emulator;

namespace {

void require_passed(const CUevent_st& event) {
  require(event.state != CUevent_st::State::recorded_in_graph, cudaErrorCapturedEvent);
}

}  // namespace

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call([&] {
    require(event != nullptr, cudaErrorInvalidValue);
    *event = handles<CUevent_st>().add(std::make_unique<CUevent_st>());
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] { handles<CUevent_st>().remove(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] {
    CUevent_st& at = handles<CUevent_st>().at(event);
    at.state = is_recording(stream) ? CUevent_st::State::recorded_in_graph : CUevent_st::State::passed;
    at.when = std::chrono::steady_clock::now();
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] {
    require_passed(handles<CUevent_st>().at(event));
    everything_has_ended();
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call([&] {
    require(milliseconds != nullptr, cudaErrorInvalidValue);
    const CUevent_st &from = handles<CUevent_st>().at(begin), &to = handles<CUevent_st>().at(end);
    require_passed(from);
    require_passed(to);
    require(from.state == CUevent_st::State::passed && to.state == CUevent_st::State::passed,
            cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(to.when - from.when).count();
  });
}
