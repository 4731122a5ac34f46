// WGMMA whose factors both lie in shared memory, rows of the depth swizzled by TMA.
#pragma once

#include <cstdint>
#include <utility>

#include "bolt_cutlass/warpgroups/wide_mma.h"
#include "bolt_portable/element.h"
#include "cute/arch/mma_sm90_desc.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cute/arch/util.hpp"

namespace bolt::cutlass_kernels {

/// CUTLASS's instruction of 64 rows and so many columns: those of its plain header. Named one by one, because its
/// selector brings the headers of tensor algebra along.
template <int columns, typename Element>
struct SharedMma;
#define BOLT_SHARED_MMA(columns)                                                                                    \
  template <>                                                                                                       \
  struct SharedMma<columns, portable::f16>                                                                          \
      : cute::SM90::GMMA::MMA_64x##columns##x16_F32F16F16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K> {}; \
  template <>                                                                                                       \
  struct SharedMma<columns, portable::bf16>                                                                         \
      : cute::SM90::GMMA::MMA_64x##columns##x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K> {}
BOLT_SHARED_MMA(16);
BOLT_SHARED_MMA(32);
BOLT_SHARED_MMA(64);
BOLT_SHARED_MMA(96);
BOLT_SHARED_MMA(128);
BOLT_SHARED_MMA(192);
BOLT_SHARED_MMA(256);
#undef BOLT_SHARED_MMA

/// A factor as the instructions are told of it: rows of `width` halves (64, 32 or 16), one behind the other, swizzled
/// over as many bytes, beginning on a multiple of eight rows. Sixteen columns further on are 2 more.
template <int width>
CUTE_DEVICE std::uint64_t describe_factor(const void* rows) {
  using Swizzle = cute::SM90::GMMA::LayoutType;
  static_assert(width == 64 || width == 32 || width == 16);
  cute::GmmaDescriptor descriptor;
  descriptor.desc_ = 0;
  descriptor.bitfield.start_address_ = static_cast<std::uint16_t>(cute::cast_smem_ptr_to_uint(rows) >> 4);
  descriptor.bitfield.leading_byte_offset_ = 1;
  descriptor.bitfield.stride_byte_offset_ = 8 * width * 2 >> 4;
  descriptor.bitfield.layout_type_ =
      static_cast<std::uint8_t>(width == 64 ? Swizzle::B128 : width == 32 ? Swizzle::B64 : Swizzle::B32);
  return descriptor;
}

/// sums[64 rows, `columns`] += left[64, 16] * right[`columns`, 16]. `fresh` sums begin at zero.
template <int columns, typename Element = portable::f16, int... register_>
CUTE_DEVICE void multiply_shared(std::uint64_t left, std::uint64_t right, bool fresh, float* sums,
                                 std::integer_sequence<int, register_...>) {
  using Scale = cute::SM90::GMMA::ScaleOut;
  if constexpr (columns == 160)
    multiply_160<Element>(left, right, fresh, sums);
  else
    SharedMma<columns, Element>::fma(left, right, sums[register_]..., fresh ? Scale::Zero : Scale::One);
}

}  // namespace bolt::cutlass_kernels
