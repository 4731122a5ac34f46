// WGMMA: products of four warps, of every width that kernels have. CUTLASS's usual ones are 64, 96, 128 and so on, and its
// header of all widths takes three times as long to compile.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_portable/element.h"

namespace bolt::portable {

/// sums[64, columns] += left[64, 16] * right, all of them in fp32 from `Element`s. `shared`: both factors lie in shared memory;
/// `registers`: of the left one a warp has sixteen rows, as `mma.sync` wants them. The depth lies in a row of each factor, but
/// rows of a `turned` right one are the depth. What was summed up before does not count if `fresh`. A lane has of each run of
/// eight columns two neighbours of two rows, eight rows apart.
///
/// What is summed up is asked for as `fresh` sums or, in the words of CUTLASS, as a `scale` of those that are there, which is 0 or
/// 1: the same, but where a program knows either only when it runs, compilers keep what it has.
template <int columns, typename Element, bool scaled = false>
struct Wgmma;

// The registers of sums as text, and as operands.
#define BOLT_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BOLT_WGMMA_TEXT_8 "%0, %1, %2, %3"
#define BOLT_WGMMA_SUMS_8 BOLT_FOUR(0)
#define BOLT_WGMMA_TEXT_16 BOLT_WGMMA_TEXT_8 ", %4, %5, %6, %7"
#define BOLT_WGMMA_SUMS_16 BOLT_WGMMA_SUMS_8, BOLT_FOUR(4)
#define BOLT_WGMMA_TEXT_24 BOLT_WGMMA_TEXT_16 ", %8, %9, %10, %11"
#define BOLT_WGMMA_SUMS_24 BOLT_WGMMA_SUMS_16, BOLT_FOUR(8)
#define BOLT_WGMMA_TEXT_32 BOLT_WGMMA_TEXT_24 ", %12, %13, %14, %15"
#define BOLT_WGMMA_SUMS_32 BOLT_WGMMA_SUMS_24, BOLT_FOUR(12)
#define BOLT_WGMMA_TEXT_40 BOLT_WGMMA_TEXT_32 ", %16, %17, %18, %19"
#define BOLT_WGMMA_SUMS_40 BOLT_WGMMA_SUMS_32, BOLT_FOUR(16)
#define BOLT_WGMMA_TEXT_48 BOLT_WGMMA_TEXT_40 ", %20, %21, %22, %23"
#define BOLT_WGMMA_SUMS_48 BOLT_WGMMA_SUMS_40, BOLT_FOUR(20)
#define BOLT_WGMMA_TEXT_56 BOLT_WGMMA_TEXT_48 ", %24, %25, %26, %27"
#define BOLT_WGMMA_SUMS_56 BOLT_WGMMA_SUMS_48, BOLT_FOUR(24)
#define BOLT_WGMMA_TEXT_64 BOLT_WGMMA_TEXT_56 ", %28, %29, %30, %31"
#define BOLT_WGMMA_SUMS_64 BOLT_WGMMA_SUMS_56, BOLT_FOUR(28)
#define BOLT_WGMMA_TEXT_72 BOLT_WGMMA_TEXT_64 ", %32, %33, %34, %35"
#define BOLT_WGMMA_SUMS_72 BOLT_WGMMA_SUMS_64, BOLT_FOUR(32)
#define BOLT_WGMMA_TEXT_80 BOLT_WGMMA_TEXT_72 ", %36, %37, %38, %39"
#define BOLT_WGMMA_SUMS_80 BOLT_WGMMA_SUMS_72, BOLT_FOUR(36)
#define BOLT_WGMMA_TEXT_88 BOLT_WGMMA_TEXT_80 ", %40, %41, %42, %43"
#define BOLT_WGMMA_SUMS_88 BOLT_WGMMA_SUMS_80, BOLT_FOUR(40)
#define BOLT_WGMMA_TEXT_96 BOLT_WGMMA_TEXT_88 ", %44, %45, %46, %47"
#define BOLT_WGMMA_SUMS_96 BOLT_WGMMA_SUMS_88, BOLT_FOUR(44)
#define BOLT_WGMMA_TEXT_104 BOLT_WGMMA_TEXT_96 ", %48, %49, %50, %51"
#define BOLT_WGMMA_SUMS_104 BOLT_WGMMA_SUMS_96, BOLT_FOUR(48)
#define BOLT_WGMMA_TEXT_112 BOLT_WGMMA_TEXT_104 ", %52, %53, %54, %55"
#define BOLT_WGMMA_SUMS_112 BOLT_WGMMA_SUMS_104, BOLT_FOUR(52)
#define BOLT_WGMMA_TEXT_120 BOLT_WGMMA_TEXT_112 ", %56, %57, %58, %59"
#define BOLT_WGMMA_SUMS_120 BOLT_WGMMA_SUMS_112, BOLT_FOUR(56)
#define BOLT_WGMMA_TEXT_128 BOLT_WGMMA_TEXT_120 ", %60, %61, %62, %63"
#define BOLT_WGMMA_SUMS_128 BOLT_WGMMA_SUMS_120, BOLT_FOUR(60)
#define BOLT_WGMMA_TEXT_144 BOLT_WGMMA_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define BOLT_WGMMA_SUMS_144 BOLT_WGMMA_SUMS_128, BOLT_FOUR(64), BOLT_FOUR(68)
#define BOLT_WGMMA_TEXT_160 BOLT_WGMMA_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define BOLT_WGMMA_SUMS_160 BOLT_WGMMA_SUMS_144, BOLT_FOUR(72), BOLT_FOUR(76)
#define BOLT_WGMMA_TEXT_176 BOLT_WGMMA_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define BOLT_WGMMA_SUMS_176 BOLT_WGMMA_SUMS_160, BOLT_FOUR(80), BOLT_FOUR(84)
#define BOLT_WGMMA_TEXT_192 BOLT_WGMMA_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define BOLT_WGMMA_SUMS_192 BOLT_WGMMA_SUMS_176, BOLT_FOUR(88), BOLT_FOUR(92)
#define BOLT_WGMMA_TEXT_208 BOLT_WGMMA_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define BOLT_WGMMA_SUMS_208 BOLT_WGMMA_SUMS_192, BOLT_FOUR(96), BOLT_FOUR(100)
#define BOLT_WGMMA_TEXT_224 BOLT_WGMMA_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define BOLT_WGMMA_SUMS_224 BOLT_WGMMA_SUMS_208, BOLT_FOUR(104), BOLT_FOUR(108)
#define BOLT_WGMMA_TEXT_240 BOLT_WGMMA_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define BOLT_WGMMA_SUMS_240 BOLT_WGMMA_SUMS_224, BOLT_FOUR(112), BOLT_FOUR(116)
#define BOLT_WGMMA_TEXT_256 BOLT_WGMMA_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define BOLT_WGMMA_SUMS_256 BOLT_WGMMA_SUMS_240, BOLT_FOUR(120), BOLT_FOUR(124)
#define BOLT_WGMMA(columns, type, Type, scaled, asks, scale, a, b, c, e, f, g, h)                                           \
  template <>                                                                                                               \
  struct Wgmma<columns, Type, scaled> {                                                                                     \
    template <bool turned = false>                                                                                          \
    static __device__ inline void shared(std::uint64_t left, std::uint64_t right, bool fresh, float* d) {                   \
      asm volatile("{\n.reg .pred p;\nsetp." asks ".b32 p, %" #c ", 0;\n"                                                   \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_WGMMA_TEXT_##columns     \
                   "}, %" #a ", %" #b ", p, 1, 1, 0, %" #e ";\n}"                                                           \
                   : BOLT_WGMMA_SUMS_##columns                                                                              \
                   : "l"(left), "l"(right), "r"(static_cast<int>(scale)), "n"(static_cast<int>(turned)));                   \
    }                                                                                                                       \
    template <bool turned = false>                                                                                          \
    static __device__ inline void registers(const std::uint32_t (&left)[4], std::uint64_t right, bool fresh, float* d) {    \
      asm volatile("{\n.reg .pred p;\nsetp." asks ".b32 p, %" #g ", 0;\n"                                                   \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_WGMMA_TEXT_##columns     \
                   "}, {%" #a ", %" #b ", %" #c ", %" #e "}, %" #f ", p, 1, 1, %" #h ";\n}"                                 \
                   : BOLT_WGMMA_SUMS_##columns                                                                              \
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(scale)),      \
                     "n"(static_cast<int>(turned)));                                                                        \
    }                                                                                                                       \
  };
#define BOLT_WIDTH(columns, ...)                                                                                            \
  BOLT_WGMMA(columns, "f16", f16, false, "eq", fresh, __VA_ARGS__)                                                          \
  BOLT_WGMMA(columns, "f16", f16, true, "ne", !fresh, __VA_ARGS__)                                                          \
  BOLT_WGMMA(columns, "bf16", bf16, false, "eq", fresh, __VA_ARGS__)                                                        \
  BOLT_WGMMA(columns, "bf16", bf16, true, "ne", !fresh, __VA_ARGS__)
BOLT_WIDTH(8, 4, 5, 6, 7, 8, 9, 10)
BOLT_WIDTH(16, 8, 9, 10, 11, 12, 13, 14)
BOLT_WIDTH(24, 12, 13, 14, 15, 16, 17, 18)
BOLT_WIDTH(32, 16, 17, 18, 19, 20, 21, 22)
BOLT_WIDTH(40, 20, 21, 22, 23, 24, 25, 26)
BOLT_WIDTH(48, 24, 25, 26, 27, 28, 29, 30)
BOLT_WIDTH(56, 28, 29, 30, 31, 32, 33, 34)
BOLT_WIDTH(64, 32, 33, 34, 35, 36, 37, 38)
BOLT_WIDTH(72, 36, 37, 38, 39, 40, 41, 42)
BOLT_WIDTH(80, 40, 41, 42, 43, 44, 45, 46)
BOLT_WIDTH(88, 44, 45, 46, 47, 48, 49, 50)
BOLT_WIDTH(96, 48, 49, 50, 51, 52, 53, 54)
BOLT_WIDTH(104, 52, 53, 54, 55, 56, 57, 58)
BOLT_WIDTH(112, 56, 57, 58, 59, 60, 61, 62)
BOLT_WIDTH(120, 60, 61, 62, 63, 64, 65, 66)
BOLT_WIDTH(128, 64, 65, 66, 67, 68, 69, 70)
BOLT_WIDTH(144, 72, 73, 74, 75, 76, 77, 78)
BOLT_WIDTH(160, 80, 81, 82, 83, 84, 85, 86)
BOLT_WIDTH(176, 88, 89, 90, 91, 92, 93, 94)
BOLT_WIDTH(192, 96, 97, 98, 99, 100, 101, 102)
BOLT_WIDTH(208, 104, 105, 106, 107, 108, 109, 110)
BOLT_WIDTH(224, 112, 113, 114, 115, 116, 117, 118)
BOLT_WIDTH(240, 120, 121, 122, 123, 124, 125, 126)
BOLT_WIDTH(256, 128, 129, 130, 131, 132, 133, 134)
#undef BOLT_WIDTH
#undef BOLT_WGMMA
#undef BOLT_FOUR

/// What was written to registers is there for the products that follow.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits for all groups but the last `groups` ones.
template <int groups>
__device__ inline void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

}  // namespace bolt::portable
