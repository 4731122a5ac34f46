// What blocks of kernels that wait for each other count by.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bolt_tuning/candidates.h"
#include "cuda_error.h"

namespace bolt_tuner {

/// Zero, as every kernel leaves them: one for all kernels of a stream.
class Counters {
 public:
  /// Zero once what is queued on the stream has run. Throws CudaError.
  explicit Counters(cudaStream_t stream) : memory_(allocate<std::uint32_t>(BOLT_TUNING_COUNTER_BYTES / sizeof(std::uint32_t))) {
    const cudaError_t error = cudaMemsetAsync(memory_, 0, BOLT_TUNING_COUNTER_BYTES, stream);
    if (error != cudaSuccess) cudaFree(memory_);
    check(error, "clearing failed");
  }
  ~Counters() { cudaFree(memory_); }
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  std::uint32_t* get() const { return memory_; }

 private:
  std::uint32_t* memory_;
};

}  // namespace bolt_tuner
