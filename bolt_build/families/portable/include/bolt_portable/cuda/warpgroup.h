// Factors of WGMMA in rows of 128 swizzled bytes, barriers and boxes of TMA, as kernels of Hopper use them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt_portable/cuda/mbarrier.h"
#include "bolt_portable/cuda/wgmma.h"

namespace bolt::portable {

/// The compiler moves no access to these sums past this.
template <int count>
__device__ inline void hold_sums(float (&sum)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
/// What others' copies and stores left in shared memory is there for products: behind the barrier that says so.
__device__ inline void see_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A matrix of rows of 128 swizzled bytes as products are told of it. Where its rows are the depth, the next 64 columns lie
/// `apart` bytes behind.
__device__ inline std::uint64_t described(std::uint32_t at, int apart = 16) {
  return std::uint64_t{1} << 62 | std::uint64_t{1024 >> 4} << 32 | static_cast<std::uint64_t>(apart >> 4) << 16 |
         (at & 0x3ffffu) >> 4;
}

/// Registers of this warp's threads from here on: a multiple of eight. All four warps must call.
template <int count>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

/// A barrier of 8 bytes in shared memory, at an address of it. Whoever waits for its n-th phase gives n's parity.
struct PhaseBarrier {
  std::uint32_t at;

  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
  }
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
  /// Arrives when all copies that this thread began (cp.async) have come.
  __device__ void arrive_with_copies() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
  }
  /// Arrives, and makes so many bytes of boxes part of the phase.
  __device__ void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  __device__ void wait(int parity) const { await_phase(at, static_cast<std::uint32_t>(parity)); }
};

/// Barriers are there for TMA.
__device__ inline void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// One thread's: copies the box of a stack of matrices whose first number is `column` of `row` of matrix `matrix`.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, PhaseBarrier barrier, int column, int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier.at), "r"(column), "r"(row), "r"(matrix)
      : "memory");
}

/// TMA's view of `matrices` of `rows` by `columns` numbers of two bytes: boxes of `box_rows` rows by 64 columns, swizzled over
/// 128 bytes, with zeros outside. Throws std::runtime_error.
inline CUtensorMap boxes_of(const void* data, Index matrices, Index rows, Index columns, int box_rows) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status) != cudaSuccess ||
      status != cudaDriverEntryPointSuccess)
    throw std::runtime_error("the driver cannot describe tensors to TMA");
  CUtensorMap map{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[] = {extents[0] * 2, extents[0] * extents[1] * 2};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[] = {1, 1, 1};
  if (reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
          &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(data), extents, strides, box, steps,
          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    throw std::runtime_error("could not describe a stack of matrices to TMA");
  return map;
}

/// Multiprocessors of the device in use. Throws std::runtime_error.
inline int multiprocessors() {
  int device = 0, found = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    throw std::runtime_error("the device does not say how many multiprocessors it has");
  return found;
}

}  // namespace bolt::portable
