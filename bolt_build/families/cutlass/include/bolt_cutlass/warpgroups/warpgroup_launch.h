// How kernels of WGMMA are queued, whatever they compute.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "bolt_cutlass/shared_memory.h"
#include "cutlass/cutlass.h"
#include "cutlass/kernel_hardware_info.hpp"

namespace bolt::cutlass_kernels {

/// The current device and its multiprocessors, over which the tiles are spread.
inline ::cutlass::KernelHardwareInfo hardware() {
  ::cutlass::KernelHardwareInfo info;
  if (cudaGetDevice(&info.device_id) != cudaSuccess ||
      cudaDeviceGetAttribute(&info.sm_count, cudaDevAttrMultiProcessorCount, info.device_id) != cudaSuccess)
    throw std::runtime_error("could not ask the device for its multiprocessors");
  return info;
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)
    run_kernel(const __grid_constant__ typename Kernel::Params params) {
  extern __shared__ char memory[];
  Kernel()(params, memory);
}

/// Blocks of the kernel that the device holds at once. Clusters of more than two are of one group of multiprocessors, which
/// they may not fill. Throws std::runtime_error.
template <typename Kernel>
int resident_blocks() {
  constexpr int together = static_cast<int>(Kernel::cluster_x * Kernel::cluster_y);
  const int multiprocessors = hardware().sm_count;
  if constexpr (together <= 2) return multiprocessors * Kernel::MinBlocksPerMultiprocessor;
  const void* const kernel = reinterpret_cast<const void*>(&run_kernel<Kernel>);
  cudaLaunchAttribute how{};
  how.id = cudaLaunchAttributeClusterDimension;
  how.val.clusterDim = {Kernel::cluster_x, Kernel::cluster_y, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(Kernel::cluster_x, Kernel::cluster_y * static_cast<unsigned>(multiprocessors), 1);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.attrs = &how;
  config.numAttrs = 1;
  int clusters = 0;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::SharedStorageSize) !=
          cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess || clusters < 1)
    throw std::runtime_error("could not ask the device how many clusters it holds");
  return clusters * together;
}

/// Queues the kernel; with `overlap` it may begin before the one in front of it has finished. `waiting`: so many neighbouring
/// blocks, in no clusters, wait for each other and for nobody else (MemoryExchange says why they all run). Their launch is
/// cooperative where kernels do not overlap; where they do it cannot be. Multiprocessors beyond whole groups of such
/// blocks stay idle, so that a group takes the same tiles side by side in every round. Throws std::runtime_error naming
/// `what`, also where the device has no room for one group.
template <typename Kernel, int waiting = 1>
void launch(const typename Kernel::Arguments& arguments, bool overlap, void* stream, const char* what) {
  const void* const kernel = reinterpret_cast<const void*>(&run_kernel<Kernel>);
  typename Kernel::Params params = Kernel::params(arguments);
  constexpr int together = static_cast<int>(Kernel::cluster_x * Kernel::cluster_y);
  static_assert(Kernel::SharedStorageSize <= shared_bytes_of(Kernel::MinBlocksPerMultiprocessor));
  cudaLaunchAttribute how[2] = {};
  if constexpr (waiting > 1) {
    if (params.multiprocessors < waiting)
      throw std::runtime_error(std::string("could not launch a ") + what + ": " + std::to_string(waiting) +
                               " blocks wait for each other, and the device runs one on each of " +
                               std::to_string(params.multiprocessors) + " multiprocessors");
    params.multiprocessors -= params.multiprocessors % waiting;
    static_assert(waiting % together == 0);
  }
  // A cooperative launch of blocks in no clusters does not say so.
  how[0].id = waiting > 1 && together == 1 ? cudaLaunchAttributeIgnore : cudaLaunchAttributeClusterDimension;
  how[0].val.clusterDim = {Kernel::cluster_x, Kernel::cluster_y, 1};
  if (overlap) {
    how[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how[1].val.programmaticStreamSerializationAllowed = 1;
  } else {
    how[1].id = cudaLaunchAttributeCooperative;
    how[1].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = Kernel::get_grid_shape(params);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = how;
  config.numAttrs = overlap || waiting > 1 ? 2 : 1;
  void* values[] = {&params};
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::SharedStorageSize);
  // Two blocks have room where nothing is left to L1.
  if (Kernel::MinBlocksPerMultiprocessor > 1 && error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess) error = cudaLaunchKernelExC(&config, kernel, values);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw std::runtime_error(std::string("could not launch a ") + what + ": " + cudaGetErrorString(error));
  }
}

}  // namespace bolt::cutlass_kernels
