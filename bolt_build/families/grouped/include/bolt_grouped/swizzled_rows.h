// Factors of WGMMA in shared memory, of fewer numbers a row than fill 128 bytes too.
#pragma once

#include <cstdint>

#include "bolt_portable/cuda/wgmma.h"

namespace bolt::grouped {

/// What this thread's copies and stores left in shared memory is there for products: in front of a barrier.
__device__ inline void leave_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A factor in shared memory: `rows` rows, a multiple of eight, of `depth` numbers, a multiple of 16. Rows lie in runs of up to
/// 128 bytes, whose 16-byte pieces change places as WGMMA's swizzles have it: so eight rows of a piece lie in all banks.
template <int depth, int run_ = (depth > 32 ? 64 : depth > 16 ? 32 : 16)>
struct SwizzledRows {
  static constexpr int run = run_, runs = (depth + run - 1) / run;  // numbers
  static constexpr int pieces = run / 8, align = 16 * run;
  static constexpr __host__ __device__ int numbers(int rows) { return rows * run * runs; }

  /// Where eight numbers of a row from `channel` on lie.
  static __device__ int place(int rows, int row, int channel) {
    const int piece = channel / 8 % pieces, turned = piece ^ (row * pieces / 8 % pieces);
    return (channel / run * rows + row) * run + turned * 8;
  }
  /// Of sixteen numbers of each row from `step` times as many on, as WGMMA wants it; of rows from `row` on, a multiple of eight.
  static __device__ std::uint64_t described(std::uint32_t at, int rows, int row, int step) {
    constexpr std::uint64_t swizzle = run == 64 ? 1 : run == 32 ? 2 : 3;
    const std::uint32_t from = at + static_cast<std::uint32_t>(2 * ((step * 16 / run * rows + row) * run + step * 16 % run));
    return swizzle << 62 | std::uint64_t{run} << 32 | std::uint64_t{1} << 16 | (from & 0x3ffffu) >> 4;
  }
};

}  // namespace bolt::grouped
