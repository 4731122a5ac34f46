// Where TMA puts 16-byte chunks in swizzled shared memory.
#pragma once

#include "cutlass/cutlass.h"

namespace bolt::cutlass_kernels {

/// Elements from a box's begin to chunk `chunk` of row `row`, whose rows are `width` halves (64, 32 or 16), one behind the
/// other, swizzled over as many bytes: chunks of 8 rows in turn are permuted, so that no two rows of a matrix share a bank.
template <int width>
CUTLASS_HOST_DEVICE constexpr int swizzled(int row, int chunk) {
  static_assert(width == 64 || width == 32 || width == 16);
  const int byte = row * width * 2 + chunk * 16;
  return (byte ^ (byte >> 3 & (width == 64 ? 0x70 : width == 32 ? 0x30 : 0x10))) / 2;
}

}  // namespace bolt::cutlass_kernels
