// What blocks of a cluster do with each other, from Hopper on: they read each other's shared memory, and wait for each other.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bolt_portable/cuda/mbarrier.h"

namespace bolt::portable {

/// Where this block's number `own` lies in shared memory of another block of the cluster.
__device__ inline std::uint32_t place_in_block(const void* own, int block) {
  std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
#endif
  return at;
}

/// A number in shared memory of a block of the cluster, at the place of this block's `own`.
__device__ inline float of_block(const float* own, int block) {
  float found = *own;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(found) : "r"(place_in_block(own, block)) : "memory");
#endif
  return found;
}

/// Two numbers, as of_block.
__device__ inline float2 of_block(const float2* own, int block) {
  float2 found = *own;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(found.x), "=f"(found.y)
               : "r"(place_in_block(own, block))
               : "memory");
#endif
  return found;
}

/// Four numbers that begin at whole sixteen bytes, as of_block.
__device__ inline float4 of_block(const float4* own, int block) {
  float4 found = *own;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w)
               : "r"(place_in_block(own, block))
               : "memory");
#endif
  return found;
}

/// Writes two numbers to shared memory of a block of the cluster, to the place of this block's `own`. The other block must
/// have begun, and must not have ended.
__device__ inline void to_block(float2* own, int block, float2 value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(place_in_block(own, block)), "f"(value.x), "f"(value.y)
               : "memory");
#else
  *own = value;
#endif
}

/// A barrier in shared memory that waits for bytes which blocks of the cluster write beside it: so they tell each other numbers
/// without fences. One that is used once.
struct ToldBytes {
  std::uint64_t bits;

  /// One thread of a block, before the block arrives at the cluster's barrier: others may write when they have waited there.
  __device__ void begin(std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    const std::uint32_t at = shared_address(this);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
#endif
  }
  /// Writes two numbers to the place of this block's `own` in a block of the cluster, whose barrier counts them.
  __device__ void tell(float2* own, int block, float2 value) const {
#if __CUDA_ARCH__ >= 900
    const auto both = static_cast<std::uint64_t>(__float_as_uint(value.y)) << 32 | __float_as_uint(value.x);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(place_in_block(own, block)),
                 "l"(both), "r"(place_in_block(this, block))
                 : "memory");
#else
    *own = value;
#endif
  }
  /// All bytes have come. Behind __syncthreads() of the thread that began it.
  __device__ void wait() {
#if __CUDA_ARCH__ >= 900
    await_phase(shared_address(this), 0);
#endif
  }
};

/// Says that this thread has read what it wants of the other blocks.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}

/// The same, and that others will see what it wrote.
__device__ inline void cluster_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

/// All threads of all blocks of the cluster have arrived.
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// Behind __syncthreads(): all threads of all blocks of the cluster have come here, and see what the others wrote to shared
/// memory before. A fence takes long, and one warp's is for all that its block wrote.
__device__ inline void cluster_meet() {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x < 32)
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  else
    cluster_arrive();
#endif
  cluster_wait();
}

}  // namespace bolt::portable
