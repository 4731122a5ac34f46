// Calls the CUDA runtime and says how each call ended.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <utility>

__global__ void fill(int* to, int value) { to[blockIdx.x * blockDim.x + threadIdx.x] = value; }

struct Many {
  char at[70];
};
__global__ void through_shared(int* to, const __grid_constant__ Many many) {
  extern __shared__ int memory[];
  memory[threadIdx.x] = many.at[69] + static_cast<int>(threadIdx.x);
  __syncthreads();
  to[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}

static void say(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
}

static void show(const char* what, const int* from, std::initializer_list<int> places) {
  int host[64] = {};
  say(what, cudaMemcpy(host, from, sizeof host, cudaMemcpyDeviceToHost));
  for (const int place : places) std::printf("  %d\n", host[place]);
}

static void launches(int* memory) {
  fill<<<2, 16>>>(memory, 5);
  say("launch", cudaGetLastError());
  show("filled", memory, {0, 31, 32});
  Many many{};
  many.at[69] = 100;
  through_shared<<<1, 32, 4096>>>(memory, many);
  show("through shared memory", memory, {0, 31});
  through_shared<<<1, 32, 100000>>>(memory, many);
  say("much shared memory", cudaGetLastError());
  say("leave", cudaFuncSetAttribute(through_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
  through_shared<<<1, 32, 100000>>>(memory, many);
  say("much shared memory", cudaGetLastError());
  say("too much", cudaFuncSetAttribute(through_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 233473));
  fill<<<1, 1025>>>(memory, 1);
  say("1025 threads", cudaGetLastError());
  fill<<<0, 32>>>(memory, 1);
  say("no blocks", cudaGetLastError());
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cudaLaunchConfig_t how{};
  how.gridDim = 4;
  how.blockDim = 8;
  how.attrs = &cluster;
  how.numAttrs = 1;
  for (const unsigned blocks : {2u, 3u, 16u}) {
    cluster.val.clusterDim = {blocks, 1, 1};
    say("cluster", cudaLaunchKernelEx(&how, fill, memory, static_cast<int>(blocks)));
  }
}

static void copies(int* memory) {
  int host[64];
  say("beyond the end", cudaMemcpy(host, memory + 1, sizeof host, cudaMemcpyDeviceToHost));
  say("from the host", cudaMemcpy(host, host + 1, 4, cudaMemcpyDeviceToHost));
  say("to the host", cudaMemcpy(host, memory, 4, cudaMemcpyHostToDevice));
  say("no direction", cudaMemcpy(host, memory, 4, static_cast<cudaMemcpyKind>(7)));
  say("default", cudaMemcpy(memory, host, 4, cudaMemcpyDefault));
  say("nothing", cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  void* large = nullptr;
  say("100 GiB", cudaMalloc(&large, 100ull << 30));
  say("free of the host's", cudaFree(host));
}

static void graphs(int* memory) {
  cudaStream_t stream;
  cudaGraph_t graph, other;
  cudaGraphExec_t ready;
  cudaEvent_t event, recorded;
  cudaEventCreate(&event);
  cudaEventCreate(&recorded);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  float milliseconds;
  say("not passed", cudaEventElapsedTime(&milliseconds, event, event));
  cudaMemset(memory, 0, 256);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  cudaMemsetAsync(memory, 1, 256, stream);
  fill<<<1, 32, 0, stream>>>(memory, 7);
  cudaEventRecord(recorded, stream);
  say("end", cudaStreamEndCapture(stream, &graph));
  say("instantiate", cudaGraphInstantiate(&ready, graph, 0));
  show("recorded", memory, {0, 32});
  cudaEventRecord(event, stream);
  say("play", cudaGraphLaunch(ready, stream));
  show("played", memory, {0, 32});
  say("passed", cudaEventSynchronize(event));
  say("passed in a recording", cudaEventSynchronize(recorded));
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  cudaMemsetAsync(memory, 2, 256, stream);
  fill<<<1, 16, 0, stream>>>(memory, 8);
  cudaStreamEndCapture(stream, &other);
  cudaGraphExecUpdateResultInfo info;
  say("update", cudaGraphExecUpdate(ready, other, &info));
  cudaGraphLaunch(ready, stream);
  show("played again", memory, {0, 16});
  void* more;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  say("allocate while recording", cudaMalloc(&more, 4));
  cudaStreamCaptureStatus status;
  cudaStreamIsCapturing(stream, &status);
  std::printf("  %d\n", status == cudaStreamCaptureStatusInvalidated);
  say("end", cudaStreamEndCapture(stream, &other));
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  say("wait while recording", cudaStreamSynchronize(stream));
  say("end", cudaStreamEndCapture(stream, &other));
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  cudaStreamEndCapture(stream, &other);
  say("update with less", cudaGraphExecUpdate(ready, other, &info));
  say("destroy", cudaGraphDestroy(graph));
  say("destroy again", cudaGraphDestroy(graph));
}

static void faults(int* memory) {
  cudaFree(memory);
  fill<<<1, 1>>>(memory, 5);
  std::printf("%s\n", cudaGetErrorName(cudaGetLastError()));
  std::printf("%s\n", cudaGetErrorName(cudaMalloc(reinterpret_cast<void**>(&memory), 4)));
  std::printf("%s\n", cudaGetErrorName(cudaGetLastError()));
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}

int main(int, char** arguments) {
  int* memory = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&memory), 256);
  constexpr std::pair<const char*, void (*)(int*)> parts[] = {
      {"launches", launches}, {"copies", copies}, {"graphs", graphs}, {"faults", faults}};
  for (const auto& [name, part] : parts)
    if (std::strcmp(name, arguments[1]) == 0) part(memory);
}
