// Activations of two neighbours at once, in half precision: half of the instructions that their fp32 forms take, and of the
// power, which is what limits long products.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_portable/element.h"
#include "bolt_portable/epilogue.h"

namespace bolt::portable {

/// Whether a function of the two numbers of a word is there, and the function. A function that is there is as exact as its
/// fp32 form of a number that was rounded to `Element`, to a small multiple.
template <typename Element, typename Function>
struct PairedFunction {
  static constexpr bool there = false;
};

/// max(x, 0) - |x| Q(|x|), as Approximate::gelu has it: Q = 2^p, p a polynomial whose coefficients are halves. It errs by 4
/// units in the last place for |x| < 1. Where Q falls to 2^-14, p's own rounding makes it 14: rounding x before an exact GELU
/// makes it 16. NaN gives NaN.
template <>
struct PairedFunction<f16, Gelu> {
  static constexpr bool there = true;
  static __device__ std::uint32_t of(std::uint32_t both) {
    const __half2 x = *reinterpret_cast<const __half2*>(&both);
    // Beyond the bound nothing of 2^p is left, and infinity times 2^p would be none.
    const __half2 a = __hmin2(__habs2(x), half2_of(5.5f));
    __half2 p = half2_of(-2.32338905e-4f);
    p = __hfma2(p, a, half2_of(4.79125977e-3f));
    p = __hfma2(p, a, half2_of(-4.38232422e-2f));
    p = __hfma2(p, a, half2_of(-0.472167969f));
    p = __hfma2(p, a, half2_of(-1.14355469f));
    p = __hfma2(p, a, half2_of(-1.00097656f));
    std::uint32_t power;
    asm("ex2.approx.f16x2 %0, %1;" : "=r"(power) : "r"(*reinterpret_cast<const std::uint32_t*>(&p)));
    const __half2 y =
        __hfma2(__hneg2(a), *reinterpret_cast<const __half2*>(&power), __hmax2_nan(x, half2_of(0.0f)));
    return *reinterpret_cast<const std::uint32_t*>(&y);
  }

 private:
  static __device__ __half2 half2_of(float x) { return __float2half2_rn(x); }
};

}  // namespace bolt::portable
