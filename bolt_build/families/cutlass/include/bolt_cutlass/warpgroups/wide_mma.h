// WGMMA of 160 columns, whose factors both lie in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "bolt_portable/element.h"
#include "cute/arch/mma_sm90_desc.hpp"
#include "cute/arch/util.hpp"

namespace bolt::cutlass_kernels {

/// sums[64 rows, 160] += left[64, 16] * right[160, 16], as `multiply_shared`. CUTLASS has the width only in the header of
/// all widths, three times as long as the plain one. Operands are in the order of PTX's wgmma.mma_async.
template <typename Element>
CUTE_DEVICE void multiply_160(std::uint64_t left, std::uint64_t right, bool fresh, float* sums) {
#if defined(CUTE_ARCH_MMA_SM90A_ENABLED)
#define BOLT_SUMS(i)                                                                                                   \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),        \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define BOLT_MULTIPLY(types)                                                                                           \
  asm volatile(                                                                                                        \
      "{\n"                                                                                                            \
      ".reg .pred add;\n"                                                                                              \
      "setp.ne.b32 add, %82, 0;\n"                                                                                     \
      "wgmma.mma_async.sync.aligned.m64n160k16.f32." types " "                                                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                        \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                               \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                               \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                               \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "                              \
      "%80, %81, add, 1, 1, 0, 0;\n"                                                                                   \
      "}\n"                                                                                                            \
      : BOLT_SUMS(0), BOLT_SUMS(8), BOLT_SUMS(16), BOLT_SUMS(24), BOLT_SUMS(32), BOLT_SUMS(40), BOLT_SUMS(48),         \
        BOLT_SUMS(56), BOLT_SUMS(64), BOLT_SUMS(72)                                                                    \
      : "l"(left), "l"(right), "r"(static_cast<std::int32_t>(!fresh)))
  if constexpr (std::is_same_v<Element, portable::f16>) {
    BOLT_MULTIPLY("f16.f16");
  } else {
    BOLT_MULTIPLY("bf16.bf16");
  }
#undef BOLT_MULTIPLY
#undef BOLT_SUMS
#endif
}

}  // namespace bolt::cutlass_kernels
