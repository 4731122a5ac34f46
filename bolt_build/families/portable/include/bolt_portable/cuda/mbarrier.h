// Waiting for a phase of a barrier in shared memory (mbarrier), from Hopper on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace bolt::portable {

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

/// Waits until the phase of this parity is over, of the barrier whose address in shared memory is `at`.
__device__ inline void await_phase(std::uint32_t at, std::uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t there = 0;
  while (!there)
    asm volatile(
        "{\n.reg .pred there;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 there, [%1], %2;\n"
        "selp.b32 %0, 1, 0, there;\n}"
        : "=r"(there)
        : "r"(at), "r"(parity)
        : "memory");
#endif
}

}  // namespace bolt::portable
