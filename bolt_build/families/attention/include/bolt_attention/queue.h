// How kernels of this family are queued.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "bolt_attention/launch.h"

namespace bolt::attention {

/// Queues a kernel; with `overlaps` it may begin before the one in front of it has ended. Throws std::runtime_error.
template <typename Parameters>
void queue(void (*kernel)(Parameters), Index blocks, int threads, int shared, const Parameters& parameters, bool overlaps,
           void* stream) {
  if (blocks > 0x7fffffff) throw std::runtime_error("tensors are too large for an attention kernel");
  cudaError_t error = cudaSuccess;
  if (shared > 48 << 10) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error == cudaSuccess) {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how{};
    how.gridDim = dim3(static_cast<unsigned>(blocks));
    how.blockDim = dim3(static_cast<unsigned>(threads));
    how.dynamicSmemBytes = static_cast<std::size_t>(shared);
    how.stream = static_cast<cudaStream_t>(stream);
    how.attrs = &overlap;
    how.numAttrs = overlaps ? 1 : 0;
    error = cudaLaunchKernelEx(&how, kernel, parameters);
  }
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string("could not launch an attention kernel: ") + cudaGetErrorString(error));
}

}  // namespace bolt::attention
