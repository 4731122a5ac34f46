// Tensor-core instructions of one warp on factors in half precision, and the loads that bring these into its registers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "bolt_portable/element.h"

namespace bolt::portable {

/// Four matrices of 8 x 8 halves from shared memory; a lane says where its row lies.
template <bool transposed, typename T>
__device__ inline void load_matrices(std::uint32_t (&x)[4], const T* row) {
  const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

/// sums[16, 8] += left[16, 16] * right[16, 8]. Before sm_80 the depth of an instruction is 8: registers lie the same, and
/// there is no bf16.
template <typename T>
__device__ inline void multiply_halves(float (&sums)[4], const std::uint32_t (&left)[4], std::uint32_t low,
                                       std::uint32_t high) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(left[0]), "r"(left[1]), "r"(low));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(left[2]), "r"(left[3]), "r"(high));
#endif
}

/// A lane's words of `fragments` neighbouring fragments become neighbours of one of them: those that the lanes of its row
/// had. Lane i of the four has fragment i of four then, and of two fragment i % 2, whose half i / 2.
template <int fragments>
__device__ inline void exchange_fragments(std::uint32_t (&x)[fragments]) {
  static_assert(fragments == 2 || fragments == 4);
  const bool odd = threadIdx.x & 1;
#pragma unroll
  for (int i = 0; i < fragments; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
    x[i] = odd ? other : x[i];
    x[i + 1] = odd ? x[i + 1] : other;
  }
  if constexpr (fragments == 4) {
    const bool high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i + 2], 2);
      x[i] = high ? other : x[i];
      x[i + 2] = high ? x[i + 2] : other;
    }
  }
}

}  // namespace bolt::portable
