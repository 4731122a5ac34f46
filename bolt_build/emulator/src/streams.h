// Streams and graphs. Whatever is queued happens before the call that queues it returns, or is recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <variant>
#include <vector>

#include "machine.h"

namespace emulator {

struct CopyWork {
  void* to;
  const void* from;
  std::size_t bytes;
  bool to_device, from_device;
};

struct FillWork {
  void* to;
  int value;
  std::size_t bytes;
};

using Work = std::variant<Launch, CopyWork, FillWork>;

/// Throws Fault and Unsupported.
void perform(const Work& work, cudaStream_t stream);

/// What was written in a stream, or in all of them, no longer concerns a kernel that begins early.
void everything_has_ended(cudaStream_t stream);
void everything_has_ended();

/// Performs it, or has the stream record it. Throws CallError, Fault and Unsupported.
void queue(cudaStream_t stream, Work work);

/// Throws CallError for a stream that there is not.
bool is_recording(cudaStream_t stream);

/// Throws CallError where this thread records a graph, which what waits for the device or changes its memory spoils.
void require_no_recording();
/// The same for what waits for one stream.
void require_not_recording(cudaStream_t stream);

}  // namespace emulator

struct CUgraph_st {
  std::vector<emulator::Work> nodes;  // one after the other
};
