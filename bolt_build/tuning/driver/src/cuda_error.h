// Errors of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace bolt_tuner {

class CudaError : public std::runtime_error {
 public:
  CudaError(cudaError_t error, const std::string& what)
      : std::runtime_error(what + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")"), error_(error) {}
  bool no_memory() const { return error_ == cudaErrorMemoryAllocation; }

 private:
  cudaError_t error_;
};

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  // What is not fatal to the process must not be found again by the next call that asks.
  static_cast<void>(cudaGetLastError());
  throw CudaError(error, what);
}

/// `count` elements in memory of the GPU.
template <typename T>
T* allocate(std::size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)), "allocating memory of the GPU failed");
  return static_cast<T*>(memory);
}

/// True where the GPU does nothing more for this process.
inline bool device_is_lost() {
  static_cast<void>(cudaGetLastError());
  return cudaDeviceSynchronize() != cudaSuccess;
}

}  // namespace bolt_tuner
