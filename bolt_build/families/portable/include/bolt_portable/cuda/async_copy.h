// Copies to shared memory that kernels wait for later: cp.async, from Ampere on; before it they are made at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_portable/cuda/launch.h"

namespace bolt::portable {

/// `count` numbers of two bytes to shared memory, zeros where they are not `inside`. May still be under way when it returns:
/// see settle.
template <int count, typename T>
__device__ inline void copy(T* to, const T* from, bool inside) {
  static_assert(sizeof(T) == 2);
  static_assert(count == 1 || count == 2 || count == 4 || count == 8);
#if __CUDA_ARCH__ >= 800
  if constexpr (count > 1) {
    const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
    const std::uint32_t bytes = inside ? 2 * count : 0;
    if constexpr (count == 8) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(2 * count), "r"(bytes)
                   : "memory");
    }
    return;
  }
#endif
  Lanes<T, count> read{};
  if (inside) read = *reinterpret_cast<const Lanes<T, count>*>(from);
  *reinterpret_cast<Lanes<T, count>*>(to) = read;
}

/// The first `there` of the numbers that 16 bytes have, zeros behind them; none else is read. Both ends begin at whole
/// sixteens. May still be under way when it returns: see settle.
template <typename T>
__device__ inline void copy_first(T* to, const T* from, int there) {
#if __CUDA_ARCH__ >= 800
  const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const std::uint32_t bytes = static_cast<std::uint32_t>(there) * sizeof(T);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#else
  constexpr int all = 16 / sizeof(T);
  Lanes<T, all> read{};
  if (there == all) {
    read = *reinterpret_cast<const Lanes<T, all>*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < all; ++i)
      if (i < there) read.at[i] = from[i];
  }
  *reinterpret_cast<Lanes<T, all>*>(to) = read;
#endif
}

/// Ends a group of copies.
__device__ inline void commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for this thread's copies, but for the last `groups` groups of them.
template <int groups>
__device__ inline void settle() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

}  // namespace bolt::portable
