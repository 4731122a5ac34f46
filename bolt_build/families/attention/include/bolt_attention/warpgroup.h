// WGMMA, TMA and barriers in shared memory, as kernels of this family use them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "bolt_attention/launch.h"
#include "bolt_portable/cuda/mbarrier.h"
#include "bolt_portable/cuda/wgmma.h"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "these kernels' instructions are those of sm_90a alone"
#endif

namespace bolt::attention {

using portable::await_products;
using portable::begin_products;
using portable::commit_products;
using portable::shared_address;

/// A barrier in shared memory: whoever waits for its n-th phase gives n's parity.
struct Barrier {
  std::uint64_t bits;

  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  /// Arrives, and makes so many bytes of copies part of the phase.
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }
  __device__ void wait(int parity) { portable::await_phase(shared_address(this), parity); }
};

/// Counts those that need something no more, a lane each; true for the last of `all`, which sees what the others did. It
/// then does itself what a thread that waits for them would do.
struct Leavers {
  std::uint32_t count;

  __device__ bool last(int all) {
    std::uint32_t before;
    asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "r"(shared_address(this))
                 : "memory");
    return static_cast<int>(before % static_cast<std::uint32_t>(all)) == all - 1;
  }
};

/// Barriers are there for TMA.
__device__ inline void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// One lane's: copies a box whose first element is `column` of `row` of a head.
__device__ inline void copy_box(void* to, const CUtensorMap& map, Barrier& barrier, int column, int row, int head,
                                int image) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(image)
      : "memory");
}

__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// The driver's function that describes tensors to TMA. Throws std::runtime_error.
inline auto encode_tiled() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status) !=
          cudaSuccess ||
      status != cudaDriverEntryPointSuccess)
    throw std::runtime_error("the driver cannot describe tensors to TMA");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

/// TMA's view of heads: boxes of `count` rows by `width` elements of one head, swizzled over as many bytes.
/// Zeros beyond rows and heads. Throws std::runtime_error.
inline CUtensorMap boxes(const void* data, const Rows& rows, int length, int there, int heads, int images, int width,
                         int count) {
  CUtensorMap map{};
  const auto bytes = [](Index elements) { return static_cast<cuuint64_t>(elements) * sizeof(Half); };
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(length), static_cast<cuuint64_t>(there),
                                static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(images)};
  const cuuint64_t strides[] = {bytes(rows.row), bytes(rows.apart(length)), bytes(rows.image)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(count), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const auto swizzle = width == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                       : width == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : CU_TENSOR_MAP_SWIZZLE_32B;
  void* const from = const_cast<Half*>(static_cast<const Half*>(data) + rows.first);
  if (encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, from, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    throw std::runtime_error("could not describe heads to TMA");
  return map;
}

/// TMA's view of a mask that lies as scores do: boxes of 64 queries by `keys` keys. Throws std::runtime_error.
inline CUtensorMap pieces(const Arguments& a, int keys) {
  CUtensorMap map{};
  constexpr Index piece = 256;
  const Index heads = (a.mask_steps[0] ? a.mask_images : 1) * (a.mask_steps[1] ? a.heads : 1), bands = (a.queries + 15) / 16;
  const cuuint64_t extents[] = {piece, static_cast<cuuint64_t>(a.mask_steps[2] / piece), static_cast<cuuint64_t>(heads * bands), 1};
  const cuuint64_t strides[] = {piece * sizeof(Half), extents[1] * piece * sizeof(Half),
                                extents[1] * extents[2] * piece * sizeof(Half)};
  const cuuint32_t box[] = {piece, static_cast<cuuint32_t>(keys / 16), 4, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  if (encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, const_cast<void*>(a.mask), extents, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    throw std::runtime_error("could not describe a mask to TMA");
  return map;
}

/// The elements of a row of a box: the most of 64, 32 and 16 that rows of `length` are made of.
constexpr int box_width(int length) { return length % 64 == 0 ? 64 : length % 32 == 0 ? 32 : 16; }

/// The same for boxes that may reach behind the last element of a row: longer ones take fewer copies and banks.
constexpr int whole_width(int length) { return length > 32 ? 64 : box_width(length); }

/// The same for boxes that may reach behind the last element, where shared memory is short: the longest of those that take
/// least of it. For example 48 elements are one box of 64, and 80 are three of 32: boxes of 16 took twice as long.
constexpr int even_width(int length) {
  return length <= 16 ? 16 : (length + 63) / 64 * 2 == (length + 31) / 32 ? 64 : 32;
}

/// A matrix in shared memory as instructions are told of it: rows of `width` halves, swizzled over as many bytes, eight of
/// them `8 * width * 2` bytes from the next eight. Where the rows are the depth (`transposed`), the next columns lie
/// `apart` bytes behind. The address counts in 16 bytes.
template <int width>
__device__ inline std::uint64_t describe(const Half* rows, int apart = 16) {
  constexpr std::uint64_t swizzle = width == 64 ? 1 : width == 32 ? 2 : 3;
  return static_cast<std::uint64_t>(shared_address(rows) >> 4 & 0x3fff) | static_cast<std::uint64_t>(apart >> 4) << 16 |
         static_cast<std::uint64_t>(8 * width * 2 >> 4) << 32 | swizzle << 62;
}

/// The same, by parts of 16 bytes behind where a matrix begins: what varies is 32 bits of it.
template <int width>
struct Descriptor {
  std::uint32_t first;

  __device__ explicit Descriptor(const void* rows, int apart = 16)
      : first((shared_address(rows) >> 4 & 0x3fff) | static_cast<std::uint32_t>(apart >> 4) << 16) {}
  __device__ std::uint64_t at(int parts) const {
    constexpr std::uint32_t swizzle = width == 64 ? 1 : width == 32 ? 2 : 3, rest = (8 * width * 2 >> 4) | swizzle << 30;
    return static_cast<std::uint64_t>(rest) << 32 | (first + static_cast<std::uint32_t>(parts));
  }
};

/// sums[64, columns] += left[64, 16] * right[columns, 16]^T, or what is added if `fresh`. `right` has rows of `width` halves.
template <int columns, int width, typename Element>
__device__ inline void multiply_keys(std::uint64_t left, std::uint64_t right, bool fresh, float* sums) {
  static_assert(columns <= 256, "keys of a step are those of one instruction");
  portable::Wgmma<columns, Element>::shared(left, right, fresh, sums);
}

/// sums[64, columns] += left[64, 16] * right[16, columns], the left factor in registers. Of `right` each `width` columns
/// lie `apart` bytes behind the ones in front: an instruction has whole parts of them, or some of one. `from` columns are done.
template <int columns, int width, typename Element, int from = 0>
__device__ inline void multiply_values(const std::uint32_t (&left)[4], std::uint64_t right, int apart, bool fresh,
                                       float* sums) {
  static_assert(from + columns <= 256 && from % width == 0);
  constexpr int now = columns <= width ? columns : columns / width * width;
  portable::Wgmma<now, Element>::template registers<true>(left, right + from / width * (apart / 16), fresh, sums + from / 2);
  if constexpr (columns > now) multiply_values<columns - now, width, Element, from + now>(left, right, apart, fresh, sums);
}

/// The compiler moves no access to these registers past this.
template <int count>
__device__ inline void hold(float (&x)[count][4]) {
#pragma unroll
  for (int j = 0; j < count; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(x[j][i])::"memory");
}
template <int count>
__device__ inline void hold(std::uint32_t (&x)[count][4]) {
#pragma unroll
  for (int j = 0; j < count; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(x[j][i])::"memory");
}

}  // namespace bolt::attention
