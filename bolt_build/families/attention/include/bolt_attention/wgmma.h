// WGMMA's instructions, of all widths that are multiples of 16: CUTLASS's usual ones are 64, 96, 128 and so on, and a
// second instruction of 16 columns for what is left takes nearly as long as one of 64.
#pragma once

#include <cstdint>

#include "bolt_attention/launch.h"

namespace bolt::attention {

/// sums[64, columns] += left[64, 16] * right. `shared`: both factors are matrices in shared memory with the depth in a row;
/// `registers`: the left one is the warp's registers, and of the right one rows are the depth. What was summed up before
/// does not count if `fresh`.
template <int columns, typename Element>
struct Wgmma;

// The registers of sums as text, and as operands.
#define BOLT_EIGHT_SUMS(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define BOLT_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define BOLT_SUMS_16 BOLT_EIGHT_SUMS(0)
#define BOLT_TEXT_32 BOLT_TEXT_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define BOLT_SUMS_32 BOLT_SUMS_16, BOLT_EIGHT_SUMS(8)
#define BOLT_TEXT_48 BOLT_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define BOLT_SUMS_48 BOLT_SUMS_32, BOLT_EIGHT_SUMS(16)
#define BOLT_TEXT_64 BOLT_TEXT_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define BOLT_SUMS_64 BOLT_SUMS_48, BOLT_EIGHT_SUMS(24)
#define BOLT_TEXT_80 BOLT_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define BOLT_SUMS_80 BOLT_SUMS_64, BOLT_EIGHT_SUMS(32)
#define BOLT_TEXT_96 BOLT_TEXT_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define BOLT_SUMS_96 BOLT_SUMS_80, BOLT_EIGHT_SUMS(40)
#define BOLT_TEXT_112 BOLT_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define BOLT_SUMS_112 BOLT_SUMS_96, BOLT_EIGHT_SUMS(48)
#define BOLT_TEXT_128 BOLT_TEXT_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define BOLT_SUMS_128 BOLT_SUMS_112, BOLT_EIGHT_SUMS(56)
#define BOLT_TEXT_144 BOLT_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define BOLT_SUMS_144 BOLT_SUMS_128, BOLT_EIGHT_SUMS(64)
#define BOLT_TEXT_160 BOLT_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define BOLT_SUMS_160 BOLT_SUMS_144, BOLT_EIGHT_SUMS(72)
#define BOLT_TEXT_176 BOLT_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define BOLT_SUMS_176 BOLT_SUMS_160, BOLT_EIGHT_SUMS(80)
#define BOLT_TEXT_192 BOLT_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define BOLT_SUMS_192 BOLT_SUMS_176, BOLT_EIGHT_SUMS(88)
#define BOLT_TEXT_208 BOLT_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define BOLT_SUMS_208 BOLT_SUMS_192, BOLT_EIGHT_SUMS(96)
#define BOLT_TEXT_224 BOLT_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define BOLT_SUMS_224 BOLT_SUMS_208, BOLT_EIGHT_SUMS(104)
#define BOLT_TEXT_240 BOLT_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define BOLT_SUMS_240 BOLT_SUMS_224, BOLT_EIGHT_SUMS(112)
#define BOLT_TEXT_256 BOLT_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define BOLT_SUMS_256 BOLT_SUMS_240, BOLT_EIGHT_SUMS(120)

#define BOLT_WGMMA(columns, type, Type, a, b, c, e, f, g)                                                              \
  template <>                                                                                                          \
  struct Wgmma<columns, Type> {                                                                                        \
    static __device__ inline void shared(std::uint64_t left, std::uint64_t right, bool fresh, float* d) {              \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %" #c ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_TEXT_##columns      \
                   "}, %" #a ", %" #b ", p, 1, 1, 0, 0;\n}"                                                            \
                   : BOLT_SUMS_##columns                                                                               \
                   : "l"(left), "l"(right), "r"(static_cast<int>(fresh)));                                             \
    }                                                                                                                  \
    static __device__ inline void registers(const std::uint32_t (&left)[4], std::uint64_t right, bool fresh, float* d) {\
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %" #g ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" BOLT_TEXT_##columns      \
                   "}, {%" #a ", %" #b ", %" #c ", %" #e "}, %" #f ", p, 1, 1, 1;\n}"                                  \
                   : BOLT_SUMS_##columns                                                                               \
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(fresh)));\
    }                                                                                                                  \
  };
#define BOLT_WIDTH(columns, ...)                                      \
  BOLT_WGMMA(columns, "f16", portable::f16, __VA_ARGS__)              \
  BOLT_WGMMA(columns, "bf16", portable::bf16, __VA_ARGS__)
BOLT_WIDTH(16, 8, 9, 10, 11, 12, 13)
BOLT_WIDTH(32, 16, 17, 18, 19, 20, 21)
BOLT_WIDTH(48, 24, 25, 26, 27, 28, 29)
BOLT_WIDTH(64, 32, 33, 34, 35, 36, 37)
BOLT_WIDTH(80, 40, 41, 42, 43, 44, 45)
BOLT_WIDTH(96, 48, 49, 50, 51, 52, 53)
BOLT_WIDTH(112, 56, 57, 58, 59, 60, 61)
BOLT_WIDTH(128, 64, 65, 66, 67, 68, 69)
BOLT_WIDTH(144, 72, 73, 74, 75, 76, 77)
BOLT_WIDTH(160, 80, 81, 82, 83, 84, 85)
BOLT_WIDTH(176, 88, 89, 90, 91, 92, 93)
BOLT_WIDTH(192, 96, 97, 98, 99, 100, 101)
BOLT_WIDTH(208, 104, 105, 106, 107, 108, 109)
BOLT_WIDTH(224, 112, 113, 114, 115, 116, 117)
BOLT_WIDTH(240, 120, 121, 122, 123, 124, 125)
BOLT_WIDTH(256, 128, 129, 130, 131, 132, 133)
#undef BOLT_WIDTH
#undef BOLT_WGMMA
#undef BOLT_EIGHT_SUMS
#undef BOLT_TEXT_16
#undef BOLT_SUMS_16
#undef BOLT_TEXT_32
#undef BOLT_SUMS_32
#undef BOLT_TEXT_48
#undef BOLT_SUMS_48
#undef BOLT_TEXT_64
#undef BOLT_SUMS_64
#undef BOLT_TEXT_80
#undef BOLT_SUMS_80
#undef BOLT_TEXT_96
#undef BOLT_SUMS_96
#undef BOLT_TEXT_112
#undef BOLT_SUMS_112
#undef BOLT_TEXT_128
#undef BOLT_SUMS_128
#undef BOLT_TEXT_144
#undef BOLT_SUMS_144
#undef BOLT_TEXT_160
#undef BOLT_SUMS_160
#undef BOLT_TEXT_176
#undef BOLT_SUMS_176
#undef BOLT_TEXT_192
#undef BOLT_SUMS_192
#undef BOLT_TEXT_208
#undef BOLT_SUMS_208
#undef BOLT_TEXT_224
#undef BOLT_SUMS_224
#undef BOLT_TEXT_240
#undef BOLT_SUMS_240
#undef BOLT_TEXT_256
#undef BOLT_SUMS_256

}  // namespace bolt::attention
