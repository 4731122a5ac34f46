// What kernels of warpgroup instructions share: their types from a tile, and the launch. CUTLASS's builders are left
// out, which would bring the headers of every other architecture along.
#pragma once

// Kernels wait by themselves for the one in front of them, and let the next one begin when they compute their last tile.
// The same in every file: it changes what the kernels' types mean.
#define CUTLASS_ENABLE_GDC_FOR_SM90 1

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "bolt_cutlass/warpgroup_store.h"
#include "cutlass/gemm/collective/builders/sm90_common.inl"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/kernel/gemm_universal_decl.h"
#include "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp"
#include "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp"

#if defined(__CUDA_ARCH__) && !defined(CUTLASS_GDC_ENABLED)
#error "these kernels would not wait for the one in front of them: include this header first, and compile for sm_90a"
#endif

namespace bolt::cutlass_kernels {

template <int m, int n, int k, bool cooperative, typename Stages>
struct StoreOf {
  using Type = TileStore<m, n, cooperative, Stages, (m + n) * k * 2>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Stages& stages) {
    return {a.bias, a.residual, a.y, stages, a.y_row};
  }
};
template <int m, int n, int k, bool cooperative>
struct StoreOf<m, n, k, cooperative, Partial> {
  using Type = PartialStore<m, n, cooperative>;
  template <typename Arguments>
  static typename Type::Arguments arguments(const Arguments& a, const Partial&) {
    return {static_cast<float*>(a.y)};
  }
};

/// `BlockTile` is the tile with the k of the mainloop in its own profile; all blocks of a cluster load together.
template <int m, int n, int k, bool cooperative, int cluster_m, int cluster_n, typename Stages>
struct Warpgroups {
  using Cluster = cute::Shape<cute::Int<cluster_m>, cute::Int<cluster_n>, cute::_1>;
  using Schedule = std::conditional_t<cooperative, ::cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                      ::cutlass::gemm::KernelTmaWarpSpecializedPingpong>;
  using Finish = StoreOf<m, n, k, cooperative, Stages>;
  using Store = typename Finish::Type;
  using BlockTile = cute::Shape<cute::Int<m>, cute::Int<n>, cute::Int<k>>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Half, Half, float, BlockTile, cute::GMMA::Major::K, cute::GMMA::Major::K>(),
      cute::Layout<cute::Shape<cute::Int<cooperative ? 2 : 1>, cute::_1, cute::_1>>{}));
  // Rows of x are the same for blocks along n, and weights for blocks along m.
  using LoadWeights =
      std::conditional_t<cluster_m == 1, cute::SM90_TMA_LOAD, cute::SM90_TMA_LOAD_MULTICAST>;
  using AtomX = decltype(::cutlass::gemm::collective::detail::ss_smem_selector<cute::GMMA::Major::K, Half, cute::Int<m>,
                                                                              cute::Int<k>>());
  using AtomWeights = decltype(::cutlass::gemm::collective::detail::ss_smem_selector<cute::GMMA::Major::K, Half,
                                                                                    cute::Int<n>, cute::Int<k>>());
  // Stages of the pipeline: what 227 KiB leave beside the output's tile and the barriers.
  static constexpr int depth =
      (227 * 1024 - static_cast<int>(sizeof(typename Store::TensorStorage)) - 2048) / ((m + n) * k * 2 + 16);
  static_assert(depth >= 3, "LEAST_STAGES of warpgroups.py");
};

/// The current device and its multiprocessors, over which the tiles are spread.
inline ::cutlass::KernelHardwareInfo hardware() {
  ::cutlass::KernelHardwareInfo info;
  if (cudaGetDevice(&info.device_id) != cudaSuccess ||
      cudaDeviceGetAttribute(&info.sm_count, cudaDevAttrMultiProcessorCount, info.device_id) != cudaSuccess)
    throw std::runtime_error("could not ask the device for its multiprocessors");
  return info;
}

/// How the persistent blocks go through the tiles.
template <typename Kernel, typename Arguments>
typename Kernel::TileSchedulerArguments order(const Arguments& a) {
  using Along = typename Kernel::TileScheduler::RasterOrderOptions;
  return {a.swizzle, a.along == 0 ? Along::Heuristic : a.along == 1 ? Along::AlongM : Along::AlongN};
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)
    run_kernel(const __grid_constant__ typename Kernel::Params params) {
  extern __shared__ char memory[];
  Kernel()(params, memory);
}

/// Queues the kernel; with `overlap` it may begin before the one in front of it has finished. Throws std::runtime_error
/// naming `what`.
template <typename Kernel>
void launch(const typename Kernel::Arguments& arguments, bool overlap, void* stream, const char* what) {
  const void* const kernel = reinterpret_cast<const void*>(&run_kernel<Kernel>);
  typename Kernel::Params params = Kernel::to_underlying_arguments(arguments, nullptr);
  using Cluster = typename Kernel::ClusterShape;
  static_assert(Kernel::SharedStorageSize <= 227 * 1024);
  cudaLaunchAttribute how[2] = {};
  how[0].id = cudaLaunchAttributeClusterDimension;
  how[0].val.clusterDim = {cute::size<0>(Cluster{}), cute::size<1>(Cluster{}), 1};
  how[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  how[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = Kernel::get_grid_shape(params);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = how;
  config.numAttrs = overlap ? 2 : 1;
  void* values[] = {&params};
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::SharedStorageSize);
  if (error == cudaSuccess) error = cudaLaunchKernelExC(&config, kernel, values);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw std::runtime_error(std::string("could not launch a ") + what + ": " + cudaGetErrorString(error));
  }
}

}  // namespace bolt::cutlass_kernels
