// What the loads of all factors share: how TMA is told of them, and to load them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "cute/arch/copy_sm90_desc.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cutlass/cuda_host_adapter.hpp"

namespace bolt::cutlass_kernels {

constexpr CUtensorMapSwizzle swizzle_of(int width) {
  return width == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : width == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
}

/// TMA's view of halves [slice, row, column], strides in elements, in boxes of `height` rows by `width`
/// columns, swizzled over as many bytes; zero beyond the tensor. Throws std::runtime_error.
inline cute::TmaDescriptor factor_boxes(const void* factor, long long columns, long long rows, long long slices,
                                        long long row, long long slice, int width, int height, int deep = 1) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                                static_cast<cuuint64_t>(slices)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row) * 2, static_cast<cuuint64_t>(slice) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(height),
                            static_cast<cuuint32_t>(deep)},
                   steps[] = {1, 1, 1};
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(factor), extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(width), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe a factor to TMA");
  return descriptor;
}

/// One thread: asks for a box at (column, row, slice), `shared` by the blocks of `mask` where they load together.
template <bool shared>
CUTE_DEVICE void load_box(const cute::TmaDescriptor& factor, std::uint64_t* barrier, std::uint16_t mask, void* to,
                          int column, int row, int slice) {
  constexpr auto hint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
  if constexpr (shared)
    cute::SM90_TMA_LOAD_MULTICAST_3D::copy(&factor, barrier, mask, hint, to, column, row, slice);
  else
    cute::SM90_TMA_LOAD_3D::copy(&factor, barrier, hint, to, column, row, slice);
}

}  // namespace bolt::cutlass_kernels
