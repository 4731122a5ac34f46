// What kernels of warpgroup instructions share: the epilogue as a visitor tree, schedules, the launch.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "bolt_cutlass/launch.h"
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"

namespace bolt::cutlass_kernels {

using Half = ::cutlass::half_t;

/// y = epilogue(accumulator + bias, residual) as the node of a visitor tree.
template <typename Stages>
struct Finish {
  template <typename T>
  struct Function {
    using Arguments = Stages;
    CUTLASS_HOST_DEVICE T operator()(const T& sums, const T& bias, const Stages& stages) const {
      T y;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < T::kElements; ++i) y[i] = stages(sums[i] + bias[i], 0.0f);
      return y;
    }
    CUTLASS_HOST_DEVICE T operator()(const T& sums, const T& bias, const T& residual, const Stages& stages) const {
      T y;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < T::kElements; ++i) y[i] = stages(sums[i] + bias[i], residual[i]);
      return y;
    }
  };
};

template <typename BlockTile, typename Stages, bool reads_residual = Stages::reads_residual>
struct Visitor {
  using Bias = ::cutlass::epilogue::fusion::Sm90RowBroadcast<0, BlockTile, float, float>;
  using Node = ::cutlass::epilogue::fusion::Sm90Compute<Finish<Stages>::template Function, Half, float,
                                                        ::cutlass::FloatRoundStyle::round_to_nearest>;
  using Tree = ::cutlass::epilogue::fusion::Sm90EVT<Node, ::cutlass::epilogue::fusion::Sm90AccFetch, Bias>;
  using Residual = void;
  static typename Tree::Arguments arguments(const float* bias, const Stages& stages) {
    return {{}, {bias, 0.0f, {}}, stages};
  }
};
template <typename BlockTile, typename Stages>
struct Visitor<BlockTile, Stages, true> {
  using Bias = ::cutlass::epilogue::fusion::Sm90RowBroadcast<0, BlockTile, float, float>;
  using Node = ::cutlass::epilogue::fusion::Sm90Compute<Finish<Stages>::template Function, Half, float,
                                                        ::cutlass::FloatRoundStyle::round_to_nearest>;
  using Tree = ::cutlass::epilogue::fusion::Sm90EVT<Node, ::cutlass::epilogue::fusion::Sm90AccFetch, Bias,
                                                    ::cutlass::epilogue::fusion::Sm90SrcFetch<Half>>;
  using Residual = Half;
  static typename Tree::Arguments arguments(const float* bias, const Stages& stages) {
    return {{}, {bias, 0.0f, {}}, {}, stages};
  }
};

template <bool cooperative>
struct Schedule {
  using Mainloop = ::cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Epilogue = ::cutlass::epilogue::TmaWarpSpecialized;
};
template <>
struct Schedule<true> {
  using Mainloop = ::cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Epilogue = ::cutlass::epilogue::TmaWarpSpecializedCooperative;
};

template <int m, int n, int k, bool cooperative, typename Stages>
struct Warpgroups {
  using BlockTile = cute::Shape<cute::Int<m>, cute::Int<n>, cute::Int<k>>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Sch = Schedule<cooperative>;
  using Visit = Visitor<BlockTile, Stages>;
  using RowMajor = ::cutlass::layout::RowMajor;
  using Store = typename ::cutlass::epilogue::collective::CollectiveBuilder<
      ::cutlass::arch::Sm90, ::cutlass::arch::OpClassTensorOp, BlockTile, Cluster,
      ::cutlass::epilogue::collective::EpilogueTileAuto, float, float, typename Visit::Residual, RowMajor, 8, Half,
      RowMajor, 8, typename Sch::Epilogue, typename Visit::Tree>::CollectiveOp;
};

inline void require_success(::cutlass::Status status, const char* what) {
  if (status == ::cutlass::Status::kSuccess) return;
  const cudaError_t error = cudaGetLastError();
  const char* reason = error == cudaSuccess ? ::cutlass::cutlassGetStatusString(status) : cudaGetErrorString(error);
  throw std::runtime_error(std::string("could not launch a ") + what + ": " + reason);
}

/// The current device and its multiprocessors, over which the tiles are spread.
inline ::cutlass::KernelHardwareInfo hardware() {
  ::cutlass::KernelHardwareInfo info;
  if (cudaGetDevice(&info.device_id) != cudaSuccess ||
      cudaDeviceGetAttribute(&info.sm_count, cudaDevAttrMultiProcessorCount, info.device_id) != cudaSuccess)
    throw std::runtime_error("could not ask the device for its multiprocessors");
  return info;
}

}  // namespace bolt::cutlass_kernels
