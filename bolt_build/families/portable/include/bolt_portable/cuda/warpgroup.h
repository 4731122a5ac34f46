// Products of four warps (WGMMA), barriers and boxes of TMA, as kernels of Hopper use them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt_portable/cuda/mbarrier.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// sums[64, columns] += left[64, 16] * right, of which both lie in shared memory in rows of 128 swizzled bytes. `along`: rows of
/// `right` are columns, with the depth in a row; otherwise its rows are the depth. What was summed up before does not count if
/// `fresh`. A lane has of each run of eight columns two neighbours of two rows, eight rows apart.
template <int columns, bool along, typename Element>
struct WarpgroupSums;

#define BOLT_EIGHT(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define BOLT_THIRTY_TWO(i) BOLT_EIGHT(i), BOLT_EIGHT(i + 8), BOLT_EIGHT(i + 16), BOLT_EIGHT(i + 24)
#define BOLT_TEXT_64                                                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define BOLT_TEXT_128                                                                                                         \
  BOLT_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "  \
               "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BOLT_TEXT_192                                                                                                         \
  BOLT_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
                "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define BOLT_TEXT_256                                                                                                       \
  BOLT_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
                "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define BOLT_SUMS_64 BOLT_THIRTY_TWO(0)
#define BOLT_SUMS_128 BOLT_SUMS_64, BOLT_THIRTY_TWO(32)
#define BOLT_SUMS_192 BOLT_SUMS_128, BOLT_THIRTY_TWO(64)
#define BOLT_SUMS_256 BOLT_SUMS_192, BOLT_THIRTY_TWO(96)
#define BOLT_SUM_OF(columns, along, turned, type, Type, a, b, p)                                                            \
  template <>                                                                                                              \
  struct WarpgroupSums<columns, along, Type> {                                                                             \
    static __device__ inline void add(std::uint64_t left, std::uint64_t right, bool fresh, float* d) {                     \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %" #p ", 0;\n"                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_TEXT_##columns          \
                   "}, %" #a ", %" #b ", p, 1, 1, 0, " #turned ";\n}"                                                      \
                   : BOLT_SUMS_##columns                                                                                   \
                   : "l"(left), "l"(right), "r"(static_cast<int>(fresh)));                                                 \
    }                                                                                                                      \
  };
#define BOLT_WIDTH(columns, ...)                                    \
  BOLT_SUM_OF(columns, true, 0, "f16", f16, __VA_ARGS__)            \
  BOLT_SUM_OF(columns, false, 1, "f16", f16, __VA_ARGS__)           \
  BOLT_SUM_OF(columns, true, 0, "bf16", bf16, __VA_ARGS__)          \
  BOLT_SUM_OF(columns, false, 1, "bf16", bf16, __VA_ARGS__)
BOLT_WIDTH(64, 32, 33, 34)
BOLT_WIDTH(128, 64, 65, 66)
BOLT_WIDTH(192, 96, 97, 98)
BOLT_WIDTH(256, 128, 129, 130)
#undef BOLT_WIDTH
#undef BOLT_SUM_OF
#undef BOLT_SUMS_256
#undef BOLT_SUMS_192
#undef BOLT_SUMS_128
#undef BOLT_SUMS_64
#undef BOLT_TEXT_256
#undef BOLT_TEXT_192
#undef BOLT_TEXT_128
#undef BOLT_TEXT_64
#undef BOLT_THIRTY_TWO
#undef BOLT_EIGHT

/// What was written to registers is there for the products that follow.
__device__ inline void begin_sums() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ inline void end_sums() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits for all groups but the last `groups` ones.
template <int groups>
__device__ inline void await_sums() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
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
