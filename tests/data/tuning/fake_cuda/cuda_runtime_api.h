// Stands for the CUDA runtime, as far as the player needs it: memory is the host's, what is queued is done at once or
// recorded, and time is what kernels say that they take.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorUnknown = 999 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaDeviceAttr { cudaDevAttrL2CacheSize };
constexpr unsigned cudaStreamNonBlocking = 1;

namespace fake {

using Work = std::function<void()>;
struct Graph {
  std::vector<Work> work;
};
struct Event {
  double at = 0;
};
inline double now = 0;            // seconds
inline Graph* recording = nullptr;
inline std::set<void*> memory;    // what is allocated
inline std::size_t most = ~std::size_t{0};  // bytes that one allocation may have

inline void queue(const Work& work) {
  if (recording != nullptr) {
    recording->work.push_back(work);
  } else {
    work();
  }
}

}  // namespace fake

using cudaStream_t = int*;
using cudaEvent_t = fake::Event*;
using cudaGraph_t = fake::Graph*;
using cudaGraphExec_t = fake::Graph*;

inline const char* cudaGetErrorString(cudaError_t) { return "fake"; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorFake"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  if (bytes > fake::most) return cudaErrorMemoryAllocation;
  *at = std::malloc(bytes);
  fake::memory.insert(*at);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* at) {
  fake::memory.erase(at);
  std::free(at);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t) {
  std::memset(at, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new int(0);
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  fake::recording = new fake::Graph;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = fake::recording;
  fake::recording = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new fake::Graph(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const fake::Work& work : graph->work) work();
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new fake::Event;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = fake::now;
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(1e3 * (end->at - begin->at));
  return cudaSuccess;
}
