// WGMMA's factors in shared memory: rows of the depth that TMA swizzles.
#pragma once

#include <cstdint>

#include "bolt_portable/cuda/wgmma.h"
#include "cute/arch/mma_sm90_desc.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cute/arch/util.hpp"
#include "cutlass/numeric_types.h"

namespace bolt::cutlass_kernels {

/// Two bytes in shared memory, an element of either type.
using Half = ::cutlass::half_t;

/// What is not `fresh` is scaled by one, as in CUTLASS.
template <int columns, typename Element>
using WarpgroupMma = portable::Wgmma<columns, Element, true>;

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

}  // namespace bolt::cutlass_kernels
