// What calls of the CUDA runtime have in common: errors, and that the first fault ends everything.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

namespace emulator {

/// The error that a call ends with, where it is thrown.
struct CallError {
  cudaError_t error;
};

inline void require(bool condition, cudaError_t error) {
  if (!condition) throw CallError{error};
}

/// The error for good of every later call, as after a fault of a real device. Prints the message, the first time.
void lose_device(cudaError_t error, const std::string& message);
/// cudaSuccess while the device is not lost.
cudaError_t lost();
/// Whether a call has returned that error. Launches do not: what they began is found to have failed later.
bool loss_is_known();
/// Becomes what cudaGetLastError says, unless it is cudaSuccess.
cudaError_t note(cudaError_t error);
/// The error of the exception that is being handled: CallError, Fault, Unsupported or one of the standard library's.
cudaError_t handled();

/// The body of a call of the runtime, which has no effect once the device is lost.
template <typename Body>
cudaError_t call(Body&& body) noexcept {
  if (lost() != cudaSuccess) return note(lost());
  try {
    std::forward<Body>(body)();
    return cudaSuccess;
  } catch (...) {
    return note(handled());
  }
}

/// The same for what is only queued.
template <typename Body>
cudaError_t call_queueing(Body&& body) noexcept {
  if (lost() != cudaSuccess && !loss_is_known()) return cudaSuccess;
  return call(std::forward<Body>(body));
}

}  // namespace emulator
