// Products of four warps (WGMMA) whose left factor lies in registers and whose right one lies in shared memory.
#pragma once

#include "bolt_grouped/warpgroup_product.h"

namespace bolt::grouped {

/// sums[64, columns] += left[64, 16] * right[columns, 16]^T, all of them in fp32 from `Element`s: a warp has sixteen rows of
/// the
/// left factor, as `mma.sync` wants them. Otherwise as WarpgroupProduct.
template <int columns, typename Element>
struct RegisterProduct;

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
#define BOLT_TEXT_72 BOLT_TEXT_64 ", %32, %33, %34, %35"
#define BOLT_SUMS_72 BOLT_SUMS_64, BOLT_FOUR(32)
#define BOLT_TEXT_80 BOLT_TEXT_72 ", %36, %37, %38, %39"
#define BOLT_SUMS_80 BOLT_SUMS_72, BOLT_FOUR(36)
#define BOLT_TEXT_88 BOLT_TEXT_80 ", %40, %41, %42, %43"
#define BOLT_SUMS_88 BOLT_SUMS_80, BOLT_FOUR(40)
#define BOLT_TEXT_96 BOLT_TEXT_88 ", %44, %45, %46, %47"
#define BOLT_SUMS_96 BOLT_SUMS_88, BOLT_FOUR(44)
#define BOLT_TEXT_104 BOLT_TEXT_96 ", %48, %49, %50, %51"
#define BOLT_SUMS_104 BOLT_SUMS_96, BOLT_FOUR(48)
#define BOLT_TEXT_112 BOLT_TEXT_104 ", %52, %53, %54, %55"
#define BOLT_SUMS_112 BOLT_SUMS_104, BOLT_FOUR(52)
#define BOLT_TEXT_120 BOLT_TEXT_112 ", %56, %57, %58, %59"
#define BOLT_SUMS_120 BOLT_SUMS_112, BOLT_FOUR(56)
#define BOLT_TEXT_128 BOLT_TEXT_120 ", %60, %61, %62, %63"
#define BOLT_SUMS_128 BOLT_SUMS_120, BOLT_FOUR(60)

#define BOLT_PRODUCT(columns, type, Type, a0, a1, a2, a3, b, p)                                                           \
  template <>                                                                                                            \
  struct RegisterProduct<columns, Type> {                                                                                \
    static __device__ inline void add(const std::uint32_t (&left)[4], std::uint64_t right, bool fresh, float* d) {       \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %" #p ", 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_TEXT_##columns        \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, 0;\n}"                                \
                   : BOLT_SUMS_##columns                                                                                 \
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),                                  \
                     "r"(static_cast<int>(fresh)));                                                                      \
    }                                                                                                                    \
  };
#define BOLT_WIDTH(columns, ...)                         \
  BOLT_PRODUCT(columns, "f16", portable::f16, __VA_ARGS__) \
  BOLT_PRODUCT(columns, "bf16", portable::bf16, __VA_ARGS__)
BOLT_WIDTH(8, 4, 5, 6, 7, 8, 9)
BOLT_WIDTH(16, 8, 9, 10, 11, 12, 13)
BOLT_WIDTH(24, 12, 13, 14, 15, 16, 17)
BOLT_WIDTH(32, 16, 17, 18, 19, 20, 21)
BOLT_WIDTH(40, 20, 21, 22, 23, 24, 25)
BOLT_WIDTH(48, 24, 25, 26, 27, 28, 29)
BOLT_WIDTH(56, 28, 29, 30, 31, 32, 33)
BOLT_WIDTH(64, 32, 33, 34, 35, 36, 37)
BOLT_WIDTH(72, 36, 37, 38, 39, 40, 41)
BOLT_WIDTH(80, 40, 41, 42, 43, 44, 45)
BOLT_WIDTH(88, 44, 45, 46, 47, 48, 49)
BOLT_WIDTH(96, 48, 49, 50, 51, 52, 53)
BOLT_WIDTH(104, 52, 53, 54, 55, 56, 57)
BOLT_WIDTH(112, 56, 57, 58, 59, 60, 61)
BOLT_WIDTH(120, 60, 61, 62, 63, 64, 65)
BOLT_WIDTH(128, 64, 65, 66, 67, 68, 69)
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
#undef BOLT_TEXT_72
#undef BOLT_SUMS_72
#undef BOLT_TEXT_80
#undef BOLT_SUMS_80
#undef BOLT_TEXT_88
#undef BOLT_SUMS_88
#undef BOLT_TEXT_96
#undef BOLT_SUMS_96
#undef BOLT_TEXT_104
#undef BOLT_SUMS_104
#undef BOLT_TEXT_112
#undef BOLT_SUMS_112
#undef BOLT_TEXT_120
#undef BOLT_SUMS_120
#undef BOLT_TEXT_128
#undef BOLT_SUMS_128

/// The products before the last `left` of those that were begun are there.
template <int left>
__device__ inline void await_products_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

}  // namespace bolt::grouped
