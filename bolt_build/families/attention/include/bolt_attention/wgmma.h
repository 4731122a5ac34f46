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
#define BOLT_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define BOLT_SUMS_16 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define BOLT_TEXT_32 BOLT_TEXT_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define BOLT_SUMS_32 BOLT_SUMS_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define BOLT_TEXT_48 BOLT_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define BOLT_SUMS_48 BOLT_SUMS_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define BOLT_TEXT_64 BOLT_TEXT_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define BOLT_SUMS_64 BOLT_SUMS_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define BOLT_TEXT_80 BOLT_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define BOLT_SUMS_80 BOLT_SUMS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define BOLT_TEXT_96 BOLT_TEXT_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define BOLT_SUMS_96 BOLT_SUMS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define BOLT_TEXT_112 BOLT_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define BOLT_SUMS_112 BOLT_SUMS_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define BOLT_TEXT_128 BOLT_TEXT_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define BOLT_SUMS_128 BOLT_SUMS_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define BOLT_TEXT_144 BOLT_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define BOLT_SUMS_144 BOLT_SUMS_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define BOLT_TEXT_160 BOLT_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define BOLT_SUMS_160 BOLT_SUMS_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define BOLT_TEXT_176 BOLT_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define BOLT_SUMS_176 BOLT_SUMS_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define BOLT_TEXT_192 BOLT_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define BOLT_SUMS_192 BOLT_SUMS_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define BOLT_TEXT_208 BOLT_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define BOLT_SUMS_208 BOLT_SUMS_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define BOLT_TEXT_224 BOLT_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define BOLT_SUMS_224 BOLT_SUMS_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define BOLT_TEXT_240 BOLT_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define BOLT_SUMS_240 BOLT_SUMS_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define BOLT_TEXT_256 BOLT_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define BOLT_SUMS_256 BOLT_SUMS_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

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
