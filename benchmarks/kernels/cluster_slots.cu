// How many clusters of 1 to 16 blocks the device holds at once, where 1, 2, 3, 4 or 8 blocks share a multiprocessor: their
// shared memory says how many. Clusters of more than 8 blocks are of a size that not every GPU has.
//
//   nvcc -arch=sm_90 -o slots cluster_slots.cu && ./slots    (on a GPU with clusters)
#include <cuda_runtime.h>

#include <cstdio>

__global__ void __launch_bounds__(128) hold(int* out) {
  extern __shared__ int held[];
  if (out != nullptr) out[threadIdx.x] = held[threadIdx.x];
}

int main() {
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  std::printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);
  cudaFuncSetAttribute(hold, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  for (const int beside : {1, 2, 3, 4, 8}) {
    const int shared = (228 << 10) / beside - 1024;
    cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    cudaFuncSetAttribute(hold, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    std::printf("%d blocks a multiprocessor:", beside);
    for (unsigned blocks = 1; blocks <= 16; ++blocks) {
      cudaLaunchAttribute how{};
      how.id = cudaLaunchAttributeClusterDimension;
      how.val.clusterDim = {blocks, 1, 1};
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(blocks * 1000);
      config.blockDim = dim3(128);
      config.dynamicSmemBytes = static_cast<std::size_t>(shared);
      config.attrs = &how;
      config.numAttrs = 1;
      int clusters = 0;
      cudaError_t error = cudaOccupancyMaxActiveClusters(&clusters, hold, &config);
      if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, hold, static_cast<int*>(nullptr));
      if (error == cudaSuccess) error = cudaDeviceSynchronize();
      static_cast<void>(cudaGetLastError());
      std::printf(" %u:%d%s", blocks, clusters, error == cudaSuccess ? "" : "(no launch)");
    }
    std::printf("\n");
  }
}
