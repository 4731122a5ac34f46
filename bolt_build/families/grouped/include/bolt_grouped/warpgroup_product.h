// Products of four warps (WGMMA) whose factors both lie in shared memory, with the depth in a row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "bolt_portable/cuda/launch.h"
#include "bolt_portable/element.h"

namespace bolt::grouped {

/// sums[64, columns] += left[64, 16] * right[columns, 16]^T, all of them in fp32 from `Element`s. What was summed up before does
/// not count if `fresh`. A lane has of each run of eight columns two neighbours of two rows, eight rows apart.
template <int columns, typename Element>
struct WarpgroupProduct;

#define BOLT_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BOLT_TEXT_8 "%0, %1, %2, %3"
#define BOLT_SUMS_8 BOLT_FOUR(0)
#define BOLT_TEXT_16 BOLT_TEXT_8 ", %4, %5, %6, %7"
#define BOLT_SUMS_16 BOLT_SUMS_8, BOLT_FOUR(4)
#define BOLT_TEXT_24 BOLT_TEXT_16 ", %8, %9, %10, %11"
#define BOLT_SUMS_24 BOLT_SUMS_16, BOLT_FOUR(8)
#define BOLT_TEXT_32 BOLT_TEXT_24 ", %12, %13, %14, %15"
#define BOLT_SUMS_32 BOLT_SUMS_24, BOLT_FOUR(12)
#define BOLT_TEXT_40 BOLT_TEXT_32 ", %16, %17, %18, %19"
#define BOLT_SUMS_40 BOLT_SUMS_32, BOLT_FOUR(16)
#define BOLT_TEXT_48 BOLT_TEXT_40 ", %20, %21, %22, %23"
#define BOLT_SUMS_48 BOLT_SUMS_40, BOLT_FOUR(20)
#define BOLT_TEXT_56 BOLT_TEXT_48 ", %24, %25, %26, %27"
#define BOLT_SUMS_56 BOLT_SUMS_48, BOLT_FOUR(24)
#define BOLT_TEXT_64 BOLT_TEXT_56 ", %28, %29, %30, %31"
#define BOLT_SUMS_64 BOLT_SUMS_56, BOLT_FOUR(28)

#define BOLT_PRODUCT(columns, type, Type, a, b, p)                                                                         \
  template <>                                                                                                            \
  struct WarpgroupProduct<columns, Type> {                                                                               \
    static __device__ inline void add(std::uint64_t left, std::uint64_t right, bool fresh, float* d) {                   \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %" #p ", 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_TEXT_##columns        \
                   "}, %" #a ", %" #b ", p, 1, 1, 0, 0;\n}"                                                              \
                   : BOLT_SUMS_##columns                                                                                 \
                   : "l"(left), "l"(right), "r"(static_cast<int>(fresh)));                                               \
    }                                                                                                                    \
  };
#define BOLT_WIDTH(columns, ...)                         \
  BOLT_PRODUCT(columns, "f16", portable::f16, __VA_ARGS__) \
  BOLT_PRODUCT(columns, "bf16", portable::bf16, __VA_ARGS__)
BOLT_WIDTH(8, 4, 5, 6)
BOLT_WIDTH(16, 8, 9, 10)
BOLT_WIDTH(24, 12, 13, 14)
BOLT_WIDTH(32, 16, 17, 18)
BOLT_WIDTH(40, 20, 21, 22)
BOLT_WIDTH(48, 24, 25, 26)
BOLT_WIDTH(56, 28, 29, 30)
BOLT_WIDTH(64, 32, 33, 34)
#undef BOLT_WIDTH
#undef BOLT_PRODUCT
#undef BOLT_FOUR
#undef BOLT_TEXT_8
#undef BOLT_SUMS_8
#undef BOLT_TEXT_16
#undef BOLT_SUMS_16
#undef BOLT_TEXT_24
#undef BOLT_SUMS_24
#undef BOLT_TEXT_32
#undef BOLT_SUMS_32
#undef BOLT_TEXT_40
#undef BOLT_SUMS_40
#undef BOLT_TEXT_48
#undef BOLT_SUMS_48
#undef BOLT_TEXT_56
#undef BOLT_SUMS_56
#undef BOLT_TEXT_64
#undef BOLT_SUMS_64

/// What was written to registers and to shared memory is there for products that follow.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ inline void await_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/// What this thread's copies and stores left in shared memory is there for products: in front of a barrier.
__device__ inline void leave_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A factor in shared memory: `rows` rows, a multiple of eight, of `depth` numbers, a multiple of 16. Rows lie in runs of up to
/// 128 bytes, whose 16-byte pieces change places as WGMMA's swizzles have it: so eight rows of a piece lie in all banks.
template <int depth>
struct SwizzledRows {
  static constexpr int run = depth > 32 ? 64 : depth > 16 ? 32 : 16, runs = (depth + run - 1) / run;  // numbers
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
