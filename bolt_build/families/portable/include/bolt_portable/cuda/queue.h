// How a kernel is queued that takes shared memory by itself, overlaps with the one in front, or runs in clusters.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace bolt::portable {

struct Launch {
  unsigned blocks;
  unsigned threads;
  int shared = 0;         ///< bytes of dynamic shared memory a block
  bool overlap = false;   ///< it may begin before the kernel in front of it has ended (programmatic dependent launch)
  unsigned cluster = 1;   ///< neighbouring blocks that run at once on one GPC, along x
  void* stream = nullptr; ///< a cudaStream_t
  /// It wants no L1: all of it is shared memory, as for kernels of matrix products. A multiprocessor divides both alike for
  /// all blocks that it holds, so that only such kernels are there beside each other.
  bool beside = false;
};

/// Queues a kernel. Returns what went wrong, and leaves no error behind in the runtime.
template <typename... Parameters, typename... Arguments>
cudaError_t queued(const Launch& how, void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaError_t error = cudaSuccess;
  // A block has 48 KB unless it asks for more, of which the compiler may place some itself.
  if (how.shared > 40 << 10) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared);
  if (error == cudaSuccess && how.beside)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  // Clusters of more than eight are no GPU's promise; Hopper has sixteen.
  if (error == cudaSuccess && how.cluster > 8)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) {
    cudaLaunchAttribute attributes[2]{};
    unsigned count = 0;
    if (how.overlap) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (how.cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count].val.clusterDim.x = how.cluster;
      attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
      ++count;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(how.blocks);
    config.blockDim = dim3(how.threads);
    config.dynamicSmemBytes = static_cast<std::size_t>(how.shared);
    config.stream = static_cast<cudaStream_t>(how.stream);
    config.attrs = attributes;
    config.numAttrs = count;
    error = cudaLaunchKernelEx(&config, kernel, arguments...);
  }
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

/// The same; throws std::runtime_error ("could not launch `what`: ...").
template <typename... Parameters, typename... Arguments>
void queue(const char* what, const Launch& how, void (*kernel)(Parameters...), const Arguments&... arguments) {
  const cudaError_t error = queued(how, kernel, arguments...);
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("could not launch ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace bolt::portable
