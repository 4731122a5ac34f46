// Boxes of shared memory through which TMA stores what WGMMA leaves in registers, and brings a residual.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt_cutlass/shared_memory.h"
#include "bolt_portable/divisor.h"
#include "cute/arch/copy_sm90_desc.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cutlass/cuda_host_adapter.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/numeric_types.h"

namespace bolt::cutlass_kernels {

/// Two bytes in shared memory, an element of either type.
using Half = ::cutlass::half_t;

/// TMA's view of [rows, columns] in half precision, in boxes of 64 rows by `width` columns whose 16-byte
/// chunks are swizzled as `swizzled` says. Rows lie `row` elements apart (0: dense). Throws std::runtime_error.
template <int width>
cute::TmaDescriptor boxes(const void* tensor, int rows, int columns, int row = 0) {
  cute::TmaDescriptor descriptor{};
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row == 0 ? columns : row) * sizeof(Half)};
  const cuuint32_t box[] = {width, 64}, steps[] = {1, 1};
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &descriptor, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(tensor), extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      width == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : width == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("could not describe an output to TMA");
  return descriptor;
}

/// Rows of an output, and of a residual, as TMA reaches them: those of a matrix, one behind the other.
struct DenseRows {
  /// Whether all threads of a warpgroup store a box, instead of TMA.
  static constexpr bool by_threads = false;
  template <int width>
  cute::TmaDescriptor view(const void* tensor, int rows, int columns, int row) const {
    return boxes<width>(tensor, rows, columns, row);
  }
  CUTLASS_DEVICE void load(const cute::TmaDescriptor& from, std::uint64_t* barrier, void* to, int column, int row) const {
    cute::SM90_TMA_LOAD_2D::copy(&from, barrier, static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL), to,
                                 column, row);
  }
  CUTLASS_DEVICE void store(const cute::TmaDescriptor& to, const void* from, int column, int row) const {
    cute::SM90_TMA_STORE_2D::copy(&to, from, column, row);
  }
  /// The output's channel in a tile's column, and all of them.
  CUTLASS_DEVICE static constexpr int channel(int column) { return column; }
  CUTLASS_DEVICE static constexpr int channels(int columns) { return columns; }
  /// That a row is of, where each has so many pixels.
  CUTLASS_DEVICE static int image_of(int row, const portable::Divisor& pixels) {
    return static_cast<int>(pixels.quotient(static_cast<std::uint32_t>(row)));
  }
  /// What a tile's column, and those behind it, end in front of; and whether a row of tiles is some of the output.
  CUTLASS_DEVICE static constexpr int end(int, int columns) { return columns; }
  CUTLASS_DEVICE static constexpr bool is_pixel(int) { return true; }
};

/// Shared memory between registers and TMA, in boxes of 64 rows by `width` columns: two of each warpgroup for
/// the output, and `loaded` for the residual, each as high as the warpgroups that share a tile.
///
/// The residual is asked for as far ahead as its boxes reach: memory gives its full rate only to some 40 KiB under way to
/// each multiprocessor. Boxes of 64 columns are whole lines of memory. Both give way where the pipeline of the product,
/// whose stages take `stage` bytes, would keep less than four beside the `taken` ones. Three warpgroups that share a tile
/// have larger stages, of which three hide as much, and boxes of their residual that are larger too.
template <int n, int warpgroups, bool residual, int stage, int taken, int teams>
struct StoreBoxes {
  static constexpr int together = warpgroups, staged = 2 * together * teams;
  // Half of the room is another block's where one warpgroup has the block.
  static constexpr bool single = together == 1 && teams == 1;
  static constexpr int room = (together == 3 ? 48 : single ? 16 : 32) << 10, least = together == 3 && residual ? 3 : 4;
  static constexpr int narrow = n % 32 == 0 ? 32 : 16;
  static constexpr int boxes(int width, int room) {
    const int fit = room / (together * 64 * width * 2);
    return !residual ? 0 : fit < 16 ? fit : 16;
  }
  static constexpr bool enough(int width) {
    const int bytes = (staged + together * boxes(width, room)) * 64 * width * 2;
    // Barriers take 2 KiB.
    return (shared_bytes_of(single ? 2 : 1) - 2048 - taken - bytes) / (stage + 16) >= least;
  }

  static constexpr int width = n % 64 == 0 && enough(64) ? 64 : narrow;
  static constexpr int loaded = boxes(width, enough(width) ? room : 16 << 10);
};

/// Boxes of whole tiles, one of each team, and nothing else: the residual of a tile comes to them ahead of its products,
/// and what becomes of it is written where it lies, and stored from there.
template <int m, int n, int warpgroups, int teams>
struct WholeBoxes {
  static constexpr int together = warpgroups, staged = 0;
  static constexpr bool single = false;
  static constexpr int width = n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : 16;
  static constexpr int loaded = teams * (m / (64 * together)) * (n / width);
};

}  // namespace bolt::cutlass_kernels
