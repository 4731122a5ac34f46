// Graphs of launches, and the time between two points of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "cuda_error.h"

namespace bolt_tuner {

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event failed"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording an event failed"); }
  /// Seconds since `begin`, once this one has passed.
  double since(const Event& begin) const {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_), "the GPU reports");
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "the GPU reports");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// What `queue` queues on the stream, to be played again and again. Throws what `queue` throws, and CudaError.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& queue) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a graph failed");
    try {
      queue();
    } catch (...) {
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "recording a graph failed");
    const cudaError_t error = cudaGraphInstantiate(&ready_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "preparing a graph failed");
  }
  ~Graph() { cudaGraphExecDestroy(ready_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void play() const { check(cudaGraphLaunch(ready_, stream_), "launching a graph failed"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace bolt_tuner
