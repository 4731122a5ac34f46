// What probes share: memory, and what they print.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int kThreads = 128;

static void finish(const char* what) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess)
    std::printf("%s\n", what);
  else
    std::printf("%s\n", cudaGetErrorString(error));
}

static int* numbers(int count) {
  int* memory = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(int));
  return memory;
}

static int wrong(const int* memory, int count, int (*wanted)(int)) {
  std::vector<int> host(count);
  if (cudaMemcpy(host.data(), memory, count * sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return -1;
  int found = 0;
  for (int i = 0; i < count; ++i) found += host[i] != wanted(i);
  return found;
}

template <typename Launch>
static void compared(int count, int (*wanted)(int), const Launch& launch) {
  int* const to = numbers(count);
  launch(to);
  const int found = wrong(to, count, wanted);
  if (found >= 0) std::printf("%d wrong\n", found);
  if (found < 0) finish("");
}

/// Launches the kernel with one attribute.
template <typename Kernel, typename... Given>
static void launch(unsigned blocks, unsigned threads, const cudaLaunchAttribute& attribute, Kernel kernel, Given... given) {
  cudaLaunchAttribute own = attribute;
  cudaLaunchConfig_t how{};
  how.gridDim = blocks;
  how.blockDim = threads;
  how.attrs = &own;
  how.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&how, kernel, given...);
  if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorName(error));
}
