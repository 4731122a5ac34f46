#include "context.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <new>

#include "machine.h"

namespace emulator {
namespace {

std::atomic<cudaError_t> lost_with{cudaSuccess};
std::atomic<bool> told{false};
std::mutex losing;

thread_local cudaError_t last = cudaSuccess;

struct Known {
  cudaError_t error;
  const char *name, *text;
};

// With the real runtime's words.
constexpr Known kKnown[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "invalid cluster size"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure", "the graph update was not performed"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const Known* known(cudaError_t error) {
  for (const Known& one : kKnown)
    if (one.error == error) return &one;
  return nullptr;
}

}  // namespace

cudaError_t lost() { return lost_with.load(std::memory_order_acquire); }

bool loss_is_known() { return told.load(std::memory_order_acquire); }

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  if (error != cudaSuccess && error == lost()) told.store(true, std::memory_order_release);
  return error;
}

void lose_device(cudaError_t error, const std::string& message) {
  const std::lock_guard lock(losing);
  if (lost() != cudaSuccess) return;
  std::fprintf(stderr, "emulated GPU: %s: %s\n", known(error)->text, message.c_str());
  lost_with.store(error, std::memory_order_release);
}

cudaError_t handled() {
  try {
    throw;
  } catch (const CallError& error) {
    return error.error;
  } catch (const IllegalAddress& fault) {
    lose_device(cudaErrorIllegalAddress, fault.what());
  } catch (const Fault& fault) {
    lose_device(cudaErrorLaunchFailure, fault.what());
  } catch (const Unsupported& unsupported) {
    lose_device(cudaErrorNotSupported, unsupported.what());
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  } catch (const std::exception& error) {
    lose_device(cudaErrorUnknown, error.what());
  }
  return lost();
}

}  // namespace emulator

using emulator::last;

cudaError_t cudaGetLastError() {
  // A lost device's error stays, once somebody was told.
  const cudaError_t found = emulator::loss_is_known() ? emulator::lost() : last;
  last = cudaSuccess;
  return found;
}

cudaError_t cudaPeekAtLastError() { return emulator::loss_is_known() ? emulator::lost() : last; }

const char* cudaGetErrorName(cudaError_t error) {
  const emulator::Known* const found = emulator::known(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const emulator::Known* const found = emulator::known(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}
