// WGMMA whose left factor lies in registers and whose right one in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "bolt_portable/element.h"
#include "cute/arch/mma_sm90_desc.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cute/arch/util.hpp"
#include "cutlass/numeric_types.h"

namespace bolt::cutlass_kernels {

/// Two bytes in shared memory, an element of either type.
using Half = ::cutlass::half_t;

/// A right factor as the instructions are told of it: rows of 64 halves, swizzled over 128 bytes, 1024 bytes from eight
/// rows to the next. `rows` lies on a multiple of 1024 bytes.
CUTLASS_DEVICE std::uint64_t describe_rows(const void* rows) {
  cute::GmmaDescriptor descriptor;
  descriptor.bitfield.start_address_ = static_cast<std::uint16_t>(cute::cast_smem_ptr_to_uint(rows) >> 4);
  descriptor.bitfield.leading_byte_offset_ = 1;
  descriptor.bitfield.stride_byte_offset_ = 1024 >> 4;
  descriptor.bitfield.layout_type_ = static_cast<std::uint8_t>(cute::SM90::GMMA::LayoutType::B128);
  return descriptor;
}

/// The width of 112, which CUTLASS has only in the header of all widths, three times as long as the plain one.
template <typename Element>
CUTLASS_DEVICE void multiply_112(const std::uint32_t (&left)[4], std::uint64_t right, bool fresh, float* sums) {
#if defined(CUTE_ARCH_MMA_SM90A_ENABLED)
#define BOLT_SUMS(i)                                                                                            \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define BOLT_MULTIPLY(types)                                                                                        \
  asm volatile(                                                                                                     \
      "{\n"                                                                                                         \
      ".reg .pred add;\n"                                                                                           \
      "setp.ne.b32 add, %61, 0;\n"                                                                                  \
      "wgmma.mma_async.sync.aligned.m64n112k16.f32." types " "                                                      \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "   \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "    \
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55}, "                                               \
      "{%56, %57, %58, %59}, %60, add, 1, 1, 0;\n"                                                                  \
      "}\n"                                                                                                         \
      : BOLT_SUMS(0), BOLT_SUMS(8), BOLT_SUMS(16), BOLT_SUMS(24), BOLT_SUMS(32), BOLT_SUMS(40), BOLT_SUMS(48)       \
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<std::int32_t>(!fresh)))
  if constexpr (std::is_same_v<Element, portable::f16>) {
    BOLT_MULTIPLY("f16.f16");
  } else {
    BOLT_MULTIPLY("bf16.bf16");
  }
#undef BOLT_MULTIPLY
#undef BOLT_SUMS
#endif
}

/// CUTLASS's instruction of a width, both factors with the depth in a row.
template <int columns, typename Element>
struct RegisterMma;
inline constexpr auto in_a_row = cute::SM90::GMMA::Major::K;
#define BOLT_REGISTER_MMA(columns)                                                                                     \
  template <>                                                                                                          \
  struct RegisterMma<columns, portable::f16> : cute::SM90::GMMA::MMA_64x##columns##x16_F32F16F16_RS<in_a_row, in_a_row> {}; \
  template <>                                                                                                          \
  struct RegisterMma<columns, portable::bf16>                                                                          \
      : cute::SM90::GMMA::MMA_64x##columns##x16_F32BF16BF16_RS<in_a_row, in_a_row> {}
BOLT_REGISTER_MMA(8);
BOLT_REGISTER_MMA(16);
BOLT_REGISTER_MMA(32);
BOLT_REGISTER_MMA(64);
BOLT_REGISTER_MMA(96);
BOLT_REGISTER_MMA(128);
BOLT_REGISTER_MMA(192);
BOLT_REGISTER_MMA(256);
#undef BOLT_REGISTER_MMA

/// sums[64 rows, `columns`] += left[64, 16] * right[`columns`, 16]. `fresh` sums begin at zero.
template <int columns, typename Element = portable::f16, int... register_>
CUTLASS_DEVICE void multiply_once(const std::uint32_t (&left)[4], std::uint64_t right, bool fresh, float* sums,
                                  std::integer_sequence<int, register_...>) {
  using Scale = cute::SM90::GMMA::ScaleOut;
  if constexpr (columns == 112)
    multiply_112<Element>(left, right, fresh, sums);
  else
    RegisterMma<columns, Element>::fma(left[0], left[1], left[2], left[3], right, sums[register_]...,
                              fresh ? Scale::Zero : Scale::One);
}

}  // namespace bolt::cutlass_kernels
