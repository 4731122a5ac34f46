// How kernels of this family are queued.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

#include "bolt_attention/launch.h"
#include "bolt_portable/cuda/queue.h"

namespace bolt::attention {

/// Queues a kernel; with `overlaps` it may begin before the one in front of it has ended. So many neighbouring blocks are a
/// `cluster`. Throws std::runtime_error.
template <typename Parameters>
void queue(void (*kernel)(Parameters), Index blocks, int threads, int shared, const Parameters& parameters, bool overlaps,
           void* stream, unsigned cluster = 1) {
  if (blocks > 0x7fffffff) throw std::runtime_error("tensors are too large for an attention kernel");
  const portable::Launch how{
      .blocks = static_cast<unsigned>(blocks), .threads = static_cast<unsigned>(threads), .shared = shared,
      .overlap = overlaps, .cluster = cluster, .stream = stream, .beside = overlaps};
  portable::queue("an attention kernel", how, kernel, parameters);
}

/// Of the GPU in use. Throws std::runtime_error.
inline int multiprocessors() {
  int device = 0, found = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    throw std::runtime_error("could not ask the GPU how many multiprocessors it has");
  return found;
}

}  // namespace bolt::attention
